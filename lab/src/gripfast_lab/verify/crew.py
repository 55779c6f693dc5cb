"""The workers of a run: started, paused, killed and replaced, as chance has it. Every second one is on asyncio.

Each is in a process group of its own. So Ctrl-C does not reach it, and if this process is killed while one is paused,
the system ends that one: nobody else could wake it.

A worker that is to be killed is paused first. What it believed ends when its death is noted, and a store may free its
locks as soon as it is dead: so it must do nothing any more when that is noted, and not be dead yet.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gripfast.machine import boottime as now
from gripfast_lab.sim.history import ANY, WORLD, Event
from gripfast_lab.verify.journal import Journal, Reader
from gripfast_lab.verify.worker import Order

SHORT_PAUSE, LONG_PAUSE = (0.1, 0.5), (1.05, 1.6)
"""In ttls: one that a lease survives, and one that it does not."""
PAUSES = 0.6
"""How many of the faults are pauses; the others are deaths."""
REST = 1.0
"""Ttls at most between two faults."""
PATIENCE = 15.0
"""Seconds that a worker may take to begin, or to end, besides what it waits for."""


class Broken(Exception):
    """A worker ended by itself; what it said."""


class Crew:
    def __init__(self, order: Order) -> None:
        """`order`: that of all; each gets its own name."""
        self._order = order
        self._chance = random.Random(order.seed)
        self._journal = Journal(Path(order.folder) / "journal")
        self.reader = Reader(Path(order.folder) / "journal")
        self.faults: Counter[str] = Counter()
        self._started = 0
        self._workers: dict[str, subprocess.Popen[str]] = {}

    def start(self, size: int) -> None:
        for _ in range(size):
            self._start()

    def _start(self) -> None:
        who = f"w{self._started:04}"  # no name begins with another one: a death is of all that begin with a name
        order = replace(self._order, who=who, is_async=self._started % 2 == 1)
        self._started += 1
        with (Path(self._order.folder) / f"{who}.err").open("w") as errors:
            worker = subprocess.Popen(
                [sys.executable, "-m", "gripfast_lab.verify.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                text=True,
                process_group=0,
            )
        self._workers[who] = worker
        self._say(worker, order.to_json())

    @staticmethod
    def _say(worker: subprocess.Popen[str], line: str) -> None:
        assert worker.stdin is not None
        with suppress(BrokenPipeError):  # why it is dead, it has said elsewhere
            worker.stdin.write(f"{line}\n")
            worker.stdin.flush()

    # -- trouble -------------------------------------------------------------------------------------------------------

    def trouble(self, until: float, rest: Callable[[float], object]) -> None:
        """Pause and kill until this moment; `rest` waits until the moment that it is given."""
        self._note(WORLD, "broke")
        while now() < until:
            rest(min(until, now() + self._chance.uniform(0.0, REST) * self._order.ttl))
            self.check()
            who = self._victim()
            if self._chance.random() < PAUSES:
                self._pause(who, rest)
            else:
                self._kill(who)
                self._start()
        self._note(WORLD, "healed")

    def _victim(self) -> str:
        """More often than not one that holds something."""
        holders = sorted(self.reader.holders() & self._workers.keys())
        among = holders if holders and self._chance.random() < 0.7 else sorted(self._workers)
        return self._chance.choice(among)

    def _pause(self, who: str, rest: Callable[[float], object]) -> None:
        self.faults["paused"] += 1
        lasts = self._chance.uniform(*self._chance.choice((SHORT_PAUSE, LONG_PAUSE, LONG_PAUSE))) * self._order.ttl
        self._stop(who)
        since = now()
        try:
            rest(since + lasts)
        finally:
            self._workers[who].send_signal(signal.SIGCONT)
        self._note(who, "fault", at=since, until=now(), note="process paused")

    def _kill(self, who: str) -> None:
        self.faults["killed"] += 1
        self._stop(who)
        self._note(who, "died")
        self._end(self._workers.pop(who))

    def _stop(self, who: str) -> None:
        """Stopped on return."""
        worker = self._workers[who]
        worker.send_signal(signal.SIGSTOP)
        state = os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if state is None or state.si_code != os.CLD_STOPPED:
            self.check()

    def _note(self, who: str, kind: Any, **what: Any) -> None:
        self._journal.note(Event(**{"at": now(), "who": who, "name": ANY, "kind": kind, **what}))

    # -- the end -------------------------------------------------------------------------------------------------------

    def has_lost(self) -> bool:
        return any(worker.poll() is not None for worker in self._workers.values())

    def check(self) -> None:
        """Nobody may have ended by itself."""
        for who, worker in self._workers.items():
            if worker.poll() is not None:
                said = (Path(self._order.folder) / f"{who}.err").read_text(encoding="utf-8", errors="replace")
                last = [line for line in said.splitlines() if line.strip()][-1:]
                raise Broken(f"{who} ended with {worker.returncode}: {''.join(last) or 'it said nothing'}")

    def end(self) -> None:
        """Let everyone finish. Whoever does not is killed, without a note: then the history shows an attempt that
        never ended."""
        self.check()
        for worker in self._workers.values():
            self._say(worker, "end")
        ends = now() + 2 * self._order.ttl + PATIENCE
        for worker in self._workers.values():
            with suppress(subprocess.TimeoutExpired):
                worker.wait(max(0.0, ends - now()))
        self.vanish()

    def vanish(self) -> None:
        """Whoever is left, also one that is paused."""
        while self._workers:
            self._end(self._workers.popitem()[1])

    @staticmethod
    def _end(worker: subprocess.Popen[str]) -> None:
        worker.kill()
        worker.wait()
        assert worker.stdin is not None
        with suppress(BrokenPipeError):
            worker.stdin.close()

    def close(self) -> None:
        self.vanish()
        self._journal.close()
        self.reader.close()
