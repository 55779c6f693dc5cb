"""A SQL server and those who use its three kinds of locks, all at the same time: one fault is a fault for all three.

A lease is kept by the server whatever happens to connections, or to the server: nothing is excused. Locks that live in
sessions end with them. Then the next may have the lock before the last one knows: for a second, and no longer.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import gripfast
from chaos.stage import Crew, Stage
from gripfast_lab.sim.attempts import Attempt, attempts_of
from gripfast_lab.sim.history import Event
from gripfast_lab.verify.journal import now
from support.processes import Worker
from support.proxy import Proxy
from support.sql_process import HOST, SqlServer
from support.waiting import until

MODES = ("lease", "row", "advisory")
TTL = 1.0
"""The largest of the load."""
TOLD_WITHIN = 1.0
"""Seconds after which a holder knows that its session is gone."""
LOAD: dict[str, Any] = {"threads": 1, "tasks": 2, "keepers": 1, "ttls": (TTL,), "waits": (0.0, 0.02, 0.2, 2.0)}
SERVED_AGAIN = 2.0
"""Seconds, beside a ttl, until each lock is in use: the machine may be busy, and pauses between two tries long."""


class SqlStage(Stage):
    """One kind of locks."""

    def __init__(self, nursery: Worker, url: str, mode: str, folder: Path, seed: str) -> None:
        super().__init__(nursery, [], url, folder, seed)
        self.mode = mode
        self.ends: list[tuple[float, float]] = []
        """When all sessions were ended: from, to."""

    def lost_sessions(self, since: float) -> None:
        """Some have ended; what lived in them is gone."""
        if self.mode != "lease":
            self.forgot(since)

    def ended_sessions(self, since: float) -> None:
        """All of them have."""
        self.lost_sessions(since)
        self.ends.append((since, now()))

    def wait_for_recovery(self, within: float) -> None:
        """What it means if there is none is for the judgement to say."""
        with suppress(AssertionError):
            until(lambda: self._reader.all_held_since(self._healed), within=within)

    def told_too_late(self) -> list[str]:
        """Those who were told held although their session had ended before, and they had had the time to see it."""
        if self.mode == "lease":
            return []
        return [
            f"{attempt}: told held {event.at - ended:.3f} s after its session was gone"
            for attempt in attempts_of(self.events())
            for event in attempt.told
            for began, ended in self.ends
            if event.kind == "held" and _is_granted_before(attempt, began) and event.at > ended + TOLD_WITHIN
        ]

    def _left(self, ttl: float) -> Iterator[Event]:
        """Locks are gone when their ttl is over."""
        with gripfast.connect(self.url) as client:
            try:
                until(lambda: not list(client.list()), within=ttl + 1.5)
            except AssertionError:
                for info in client.list():
                    yield Event(now(), "server", info.name, "left", note=repr(info))


def _is_granted_before(attempt: Attempt, moment: float) -> bool:
    return attempt.granted is not None and attempt.granted.at < moment


class Theatre:
    """Stages for all modes, on one server, behind one proxy."""

    def __init__(
        self,
        nursery: Worker,
        server: SqlServer,
        proxy: Proxy,
        folder: Path,
        seed: str,
        modes: Sequence[str] = MODES,
    ) -> None:
        self.server = server
        self.proxy = proxy
        self.nursery = nursery
        self.stages = [self._stage(mode, folder / mode, seed) for mode in modes]
        self.chance = self.stages[0].chance
        self.crews: list[Crew] = []

    def _stage(self, mode: str, folder: Path, seed: str) -> SqlStage:
        folder.mkdir()
        url = behind(self.proxy, self.server.lock_space(mode=mode))
        return SqlStage(self.nursery, url, mode, folder, seed)

    def play(self, processes: int = 2, bug: str = "", **settings: Any) -> None:
        """With a bug of `sql_bugs` planted in everyone."""
        self.nursery.say(f"bug {bug}")
        self.crews = [stage.crew(processes=processes, **LOAD | settings) for stage in self.stages]

    def go_on(self, grants: int) -> None:
        for stage in self.stages:
            stage.go_on(grants=grants)

    def rounds(self, usual: int) -> range:
        return self.stages[0].rounds(usual)

    def wait_out(self, seconds: float) -> None:
        self.stages[0].wait_out(seconds)

    def each(self, note: Callable[[SqlStage], None]) -> None:
        for stage in self.stages:
            note(stage)

    def broke(self) -> None:
        self.each(Stage.broke)

    def healed(self) -> None:
        self.each(Stage.healed)

    def kill_sessions(self, share: float) -> int:
        """Some of them, chosen by chance; gone on return."""
        since = now()
        doomed = {session.id for session in self.server.sessions() if self.chance.random() < share}
        for session in doomed:
            self.server.kill_session(session)
        until(lambda: not doomed & {session.id for session in self.server.sessions()})
        self.each(lambda stage: stage.lost_sessions(since))
        return len(doomed)

    def judge(self, may_be_unreachable: bool = True) -> None:
        """All stages; then nothing may be connected any more."""
        for stage in self.stages:
            stage.wait_for_recovery(TTL + SERVED_AGAIN)
        self.end()
        for stage, crew in zip(self.stages, self.crews, strict=True):
            stage.judge(crew, may_be_unreachable=may_be_unreachable, recover_within=TTL + SERVED_AGAIN)
            assert not stage.told_too_late(), (stage.mode, stage.told_too_late()[:5])
        until(lambda: not self.server.sessions(), within=10.0)

    def end(self) -> None:
        """Everyone finishes; whoever does not is asked where its threads are."""
        for crew in self.crews:
            stuck = dict(crew.pids)
            try:
                crew.end()
            except AssertionError:
                for pid in stuck.values():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGUSR1)
                until(lambda: "Current thread" in self.nursery.errors or "Thread 0x" in self.nursery.errors)
                raise AssertionError(f"a process does not end: {self.nursery.errors}") from None

    def close(self) -> None:
        for stage in self.stages:
            stage.close()


def sql_nursery() -> Worker:
    return Worker(str(Path(__file__).with_name("sql_nursery.py")))


def behind(proxy: Proxy, url: str) -> str:
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@{HOST}:{proxy.port}"))
