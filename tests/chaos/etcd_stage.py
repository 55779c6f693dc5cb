"""A cluster of etcd's, those who use its locks, and the judgement: nothing is excused, whatever happens to members.

A lease of Gripfast's ends before the one of etcd's that it was dated by, so no fault may let two in. And nothing stays:
once all have ended, there is no key of a holder or waiter.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from chaos.stage import LONG, Crew, Stage
from gripfast_lab.sim.history import Event
from gripfast_lab.verify.journal import now
from support.etcd_servers import EtcdServer, Trio, url_of
from support.jumping_clock import JumpingClock
from support.processes import Worker
from support.waiting import until

TTLS = (1.0, 2.0)
TTL = max(TTLS)
EXPIRED = TTL + 1.0
"""Seconds after which a lease of etcd's is over, and what hung on it is gone."""
SERVED_AGAIN = 15.0
"""Seconds, beside that, until each lock is in use. A new leader counts leases anew, and clients pause between tries,
which takes 2 s. A machine with other work needs longer."""
LOAD: dict[str, Any] = {"threads": 1, "tasks": 2, "keepers": 1, "ttls": TTLS, "waits": (0.0, 0.02, 0.2, 2.0)}
REQUEST_TIMEOUT = 5.0
PATIENT = 30.0
"""Seconds for some grants, which only a hang takes."""
F = TypeVar("F")


class EtcdStage(Stage):
    def __init__(self, nursery: Worker, trio: Trio, folder: Path, seed: str) -> None:
        self.root = f"chaos-{uuid.uuid4().hex}/"
        super().__init__(nursery, [], "", folder, seed)
        self.trio = trio
        self.url = self.url_by(trio.servers)

    def url_by(self, members: list[EtcdServer]) -> str:
        """In the order in which they are tried."""
        return url_of([member.address for member in members], root=self.root)

    def play(self, **settings: Any) -> Crew:
        """Each process begins at another member."""
        members, crew = self.trio.servers, None
        processes = settings.pop("processes", 2)
        for number in range(processes):
            url = self.url_by([*members[number % 3 :], *members[: number % 3]])
            given = {"request_timeout": REQUEST_TIMEOUT, **LOAD, **settings}
            added = self.crew(processes=1, first=number, url=url, **given)
            if crew is not None:
                crew.pids.update(added.pids)
                added.pids.clear()
            crew = crew or added
        assert crew is not None
        return crew

    def go_on(self, grants: int, within: float = PATIENT, process: str | None = None) -> None:
        super().go_on(grants, within, process)

    def over(self) -> None:
        """A fault has ended: each lock is soon in use again, and whoever asks from now on is not told that no member
        can be reached."""
        self.trio.all_serve()
        self.healed()
        healed = self._healed
        until(lambda: self._reader.all_held_since(healed), within=EXPIRED + SERVED_AGAIN)
        self.go_on(grants=10)
        asked: dict[str, float] = {}
        for event in self.events():
            if event.kind == "asked":
                asked[event.who] = event.at
            assert event.kind != "unreachable" or asked[event.who] < healed, self._report([str(event)])

    def grants(self) -> int:
        return self._reader.grants()

    def judge_all(self, crew: Crew) -> None:
        self.judge(crew, ttl=EXPIRED, may_be_unreachable=True, recover_within=EXPIRED + SERVED_AGAIN)

    def _left(self, ttl: float) -> Iterator[Event]:
        with suppress(AssertionError):
            until(lambda: not self.keys(), within=ttl + SERVED_AGAIN)
        for key in self.keys():
            yield Event(now(), "cluster", key, "left")

    def keys(self) -> list[str]:
        lines = self.trio.ctl("get", self.root, "--prefix", "--keys-only").splitlines()
        return [line for line in lines if line and not line.endswith("/%layout")]


def histories(faults: Mapping[str, F]) -> dict[str, list[F]]:
    """Of each fault, or of all of them one after the other: the locks are used by the same processes throughout."""
    each = {name: [fault] for name, fault in faults.items()}
    return each if LONG else {"one fault follows another": list(faults.values())}


def etcd_nursery(clock: JumpingClock | None = None) -> Worker:
    """`clock`: its processes live by this one."""
    environment = [] if clock is None else [f"{name}={value}" for name, value in clock.environment.items()]
    return Worker(str(Path(__file__).with_name("etcd_nursery.py")), wrapper=("env", *environment))
