"""A server or several, those who use them, and the judgement at the end.

A test starts a crew, lets faults happen while it works, declares the faults over, and has the history judged:

    crew = stage.crew()
    stage.go_on(grants=20)
    ...                         # the fault
    stage.healed()
    stage.judge(crew)

GRIPFAST_CHAOS=long makes everything LONGER times as long, with another seed each time; GRIPFAST_SEED sets the seed.
"""

import dataclasses
import json
import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from chaos.actors import Play
from gripfast_lab.sim.checks import Violation, violations
from gripfast_lab.sim.history import ANY, ONLY_TOKENS, WORLD, Event
from gripfast_lab.verify.journal import Fenced, Journal, Plain, Reader, now
from support.processes import Worker
from support.redis_server import RedisServer
from support.waiting import until

LONG = os.environ.get("GRIPFAST_CHAOS") == "long"
LONGER = 20 if LONG else 1
SHOWN = 12
"""Violations that are shown: the first ones tell the story."""
NURSERY = Path(__file__).with_name("nursery.py")
LINE_MS = 20_000
"""How long the line of waiters that have all vanished may be remembered."""
MEMORY_MS = 26 * 3600 * 1000
"""How long a token may: a day, past the later of now and the token itself, which some tests put an hour ahead."""
STAYS = {b"gripfast\0gripfast:birth", b"gripfast\0gripfast:layout"}
MARKERS = (b"\0gripfast:primary", b"\0gripfast:stamp", b"\0gripfast:epoch")
"""Of a server, or of a node of a Cluster: these stay."""


class Crew:
    """Some processes full of actors."""

    def __init__(self, nursery: Worker, plays: list[Play], journal: Journal) -> None:
        self._nursery = nursery
        self._journal = journal
        self.pids: dict[str, int] = {}
        for play in plays:  # one after the other, so that it is known who is who
            nursery.say(json.dumps(dataclasses.asdict(play)))
            self.pids[play.process] = int(nursery.expect("born")[0])

    def kill(self, process: str) -> None:
        """SIGKILL, and gone on return."""
        pid = self.pids.pop(process)
        os.kill(pid, signal.SIGKILL)
        until(lambda: _state(pid) in ("", "Z", "X"))
        self._journal.note(Event(now(), f"{process}/", ANY, "died"))

    def stop(self, process: str) -> None:
        """SIGSTOP, and stopped on return."""
        os.kill(self.pids[process], signal.SIGSTOP)
        until(lambda: _state(self.pids[process]) == "T")

    def go_on(self, process: str) -> None:
        os.kill(self.pids[process], signal.SIGCONT)

    def end(self) -> None:
        """Everyone finishes what it is at."""
        for pid in self.pids.values():
            os.kill(pid, signal.SIGTERM)
        left = set(self.pids.values())
        while left:
            left.discard(int(self._nursery.expect("over")[0]))
        self.pids.clear()

    def vanish(self) -> None:
        """Whatever is left, after a failed test."""
        for pid in self.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _state(pid: int) -> str:
    """As the system calls it: T is stopped, Z a zombie; nothing if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[0]


def _tokens_by_the_clock(history: Sequence[Event]) -> list[Violation]:
    """Nodes that came back empty are excused if tokens start anew there; on one machine, where all clocks agree, they
    must not."""
    remembered = [event for event in history if event.note != ONLY_TOKENS]
    found = violations(remembered) if len(remembered) < len(history) else []
    return [each for each in found if each.rule in ("token", "lost update")]


class Stage:
    def __init__(self, nursery: Worker, servers: Sequence[RedisServer], url: str, folder: Path, seed: str) -> None:
        self.servers = servers
        self.url = url
        self.seed = seed
        self.chance = random.Random(seed)
        self.crews: list[Crew] = []
        self._healed = 0.0
        self._nursery = nursery
        self._folder = folder
        self._journal = Journal(folder / "journal")
        self._reader = Reader(folder / "journal")

    @property
    def server(self) -> RedisServer:
        """The only one."""
        (server,) = self.servers
        return server

    # The play ---------------------------------------------------------------------------------------------------------

    def crew(self, processes: int = 2, first: int = 0, nursery: Worker | None = None, **settings: Any) -> Crew:
        """`first`: their numbers start there; `nursery`: if not the usual one; `settings`: of their play."""
        given = {"url": self.url, "request_timeout": 1.0, "folder": str(self._folder), "seed": self.seed, **settings}
        plays = [Play(process=f"process {first + number}", **given) for number in range(processes)]
        self.crews.append(Crew(nursery or self._nursery, plays, self._journal))
        return self.crews[-1]

    def go_on(self, grants: int, within: float = 10.0, process: str | None = None) -> None:
        """Until there are this many more grants, of anyone or of one."""
        wanted = self._reader.grants(process) + grants
        until(lambda: self._reader.grants(process) >= wanted, within=within)

    def rounds(self, usual: int) -> range:
        return range(usual * LONGER)

    def wait_out(self, seconds: float) -> None:
        """What is waited for is the time itself: that a ttl is over while nobody can do anything about it."""
        ends = now() + seconds
        until(lambda: now() >= ends, within=seconds + 5.0)

    # What the world did -----------------------------------------------------------------------------------------------

    def broke(self) -> None:
        """A fault begins."""
        self._journal.note(Event(now(), WORLD, ANY, "broke"))

    def healed(self) -> None:
        self._healed = now()
        self._journal.note(Event(self._healed, WORLD, ANY, "healed"))

    def forgot(self, since: float, note: str = "") -> None:
        self._journal.note(Event(since, WORLD, ANY, "forgot", until=now(), note=note))

    def jumped(self, since: float) -> None:
        self._journal.note(Event(since, WORLD, ANY, "jumped", until=now()))

    # The judgement ----------------------------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        return self._reader.events()

    def judge(
        self, crew: Crew, *, ttl: float = 1.0, may_be_unreachable: bool = False, recover_within: float | None = None
    ) -> None:
        """End the play; the history, the registers and the servers must all be as they should. `ttl`: the largest."""
        if recover_within is not None:
            with suppress(AssertionError):  # what that means is for the history to say
                until(lambda: self._reader.all_held_since(self._healed), within=recover_within + 1.0)
        crew.end()
        history = [*self.events(), *self._writes(), *self._left(ttl)]
        found = violations(history, may_be_unreachable=may_be_unreachable, recover_within=recover_within)
        found += _tokens_by_the_clock(history)
        assert not found, self._report([*map(str, found[:SHOWN]), f"{len(found)} in all"])
        self._judge_plain_registers()

    def _names(self) -> list[str]:
        return sorted({event.name for event in self.events() if event.kind == "granted"})

    def _writes(self) -> Iterator[Event]:
        for name in self._names():
            with closing(Fenced.of(self._folder, name)) as register:
                writes = register.writes()
            assert writes, self._report([f"the register of {name!r} was never used"])
            yield from writes

    def _left(self, ttl: float) -> Iterator[Event]:
        """Nothing stays for good: locks are gone when their ttl is over, everything else has an end."""
        at = max(event.at for event in self.events())
        for number, server in enumerate(self.servers):
            with server.client() as client:
                with suppress(AssertionError):
                    until(lambda: all(b"\0" in key for key in client.scan_iter()), within=ttl + 0.5)
                for key in client.scan_iter():
                    left = client.pttl(key)
                    limit = (MEMORY_MS if b"\0gripfast:token" in key else LINE_MS) if b"\0" in key else -1
                    if key not in STAYS and not key.endswith(MARKERS) and left != -2 and not 0 <= left <= limit:
                        yield Event(at, f"server {number}", repr(key), "left", note=f"for {left} ms more")

    def _judge_plain_registers(self) -> None:
        declared = [event for event in self.events() if event.kind in ("forgot", "jumped")]
        if any(event.note != ONLY_TOKENS for event in declared):
            return  # then only the fence protects anything
        for name in self._names():
            with closing(Plain.of(self._folder, name)) as register:
                tally = register.tally()
            assert not tally.lost, self._report([f"the register of {name!r} has lost updates: {tally}"])

    def _report(self, lines: list[str]) -> str:
        return "\n  ".join([f"GRIPFAST_SEED={self.seed!r}", *lines])

    def close(self) -> None:
        for crew in self.crews:
            crew.vanish()
        self._journal.close()
        self._reader.close()
