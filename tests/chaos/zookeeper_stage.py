"""ZooKeeper, those who use its locks, and the judgement: nothing is excused, whatever happens to servers and networks.

A lease ends before its session does, so that no fault may let two in. And a session leaves nothing: once all have
ended, there is no node in any line, and the janitor removes what the lines hung from.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

import gripfast
from chaos.stage import LONG, Crew, Stage
from gripfast.stores.zookeeper import janitor
from gripfast_lab.sim.history import Event
from gripfast_lab.verify.journal import now
from support.processes import Worker
from support.waiting import until

TTL = 0.9
SESSION = TTL / 0.75
"""Seconds after which a silent session is over."""
SERVED_AGAIN = 3.0
"""Seconds, beside a session's, until each lock is in use: a client that was refused pauses before it tries again."""
LOAD: dict[str, Any] = {"threads": 1, "tasks": 2, "keepers": 1, "ttls": (TTL,), "waits": (0.0, 0.02, 0.2, 2.0)}
F = TypeVar("F")
LAYOUT = "%layout"
"""The number of the layout: this one stays."""
JANITOR = "janitor"
ANSWERED = 10.0
"""Seconds for an answer when no fault is left: far above what it takes, so that only a hang reaches it."""

Observer = Callable[[], AbstractContextManager[KazooClient]]
"""Connects, to look at the nodes themselves. When the faults are over: a server that is being started may accept a
connection and never answer on it, and kazoo waits there for as long as a session lives."""


class ZooKeeperStage(Stage):
    def __init__(self, nursery: Worker, url: str, observer: Observer, folder: Path, seed: str) -> None:
        """`url`: with a root of its own."""
        super().__init__(nursery, [], url, folder, seed)
        self._observer = observer

    def play(self, **settings: Any) -> Crew:
        return self.crew(**LOAD | settings)

    def over(self) -> None:
        """A fault has ended: each lock is soon in use again, and whoever asks from now on is not told that no server
        can be reached."""
        self.healed()
        healed = self._healed
        until(lambda: self._reader.all_held_since(healed), within=SESSION + SERVED_AGAIN)
        self.go_on(grants=10)
        asked: dict[str, float] = {}
        for event in self.events():
            if event.kind == "asked":
                asked[event.who] = event.at
            assert event.kind != "unreachable" or asked[event.who] < healed, self._report([str(event)])

    def judge_all(self, crew: Crew) -> None:
        self.judge(crew, ttl=SESSION, may_be_unreachable=True, recover_within=SESSION + SERVED_AGAIN)

    def _left(self, ttl: float) -> Iterator[Event]:
        with self._observer() as observer:
            left = left_behind(observer, self.url, within=ttl + 1.0)
        for node in left:
            yield Event(now(), "ensemble", node, "left")


def histories(faults: Mapping[str, F]) -> dict[str, list[F]]:
    """Of each fault, or of all of them one after the other: the locks are used by the same processes throughout."""
    each = {name: [fault] for name, fault in faults.items()}
    return each if LONG else {"one fault follows another": list(faults.values())}


def left_behind(observer: KazooClient, url: str, within: float) -> list[str]:
    """Nodes below the root once sessions have ended, for which they have some seconds, and the janitor has passed."""
    root = parse_qs(urlsplit(url).query)["root"][0]

    def children(path: str) -> list[str]:
        """None of a name that the janitor has just removed."""
        with suppress(NoNodeError):
            found: list[str] = answer(observer.get_children_async(path), f"the children of {path}")
            return [f"{path}/{child}" for child in found if child not in (JANITOR, LAYOUT)]
        return []

    def nodes() -> list[str]:
        answer(observer.sync_async(root), f"sync of {root}")
        names = children(root)
        return [*names, *(node for name in names for node in children(name))]

    with suppress(AssertionError):
        until(lambda: all(node.count("/") == root.count("/") + 1 for node in nodes()), within=within)
    pass_with_the_janitor(url, lambda: not nodes())
    return nodes()


def answer(result: Any, asked: str) -> Any:
    try:
        return result.get(timeout=ANSWERED)
    except KazooTimeoutError:
        raise AssertionError(f"asked for {asked}, the server has not answered for {ANSWERED:g} s") from None


def pass_with_the_janitor(url: str, is_done: Callable[[], bool]) -> None:
    """It looks at all names soon after the first use of a session, and removes what it has found idle twice."""
    usual = {name: getattr(janitor, name) for name in ("IDLE", "FIRST_SAMPLE", "SAMPLES_LEAST")}
    vars(janitor).update(dict.fromkeys(usual, 0.2))
    try:
        with gripfast.connect(url) as client:
            client.lock(JANITOR).acquire(wait=5.0).release()
            with suppress(AssertionError), client.lock(JANITOR).acquire(wait=5.0):  # it is quick while a lock is held
                until(is_done, within=ANSWERED)
    finally:
        vars(janitor).update(usual)


def zookeeper_nursery() -> Worker:
    return Worker(str(Path(__file__).with_name("zookeeper_nursery.py")))
