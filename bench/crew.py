"""Several processes that want one lock all the time.

The processes are started once. For each round they are told when to begin and when to stop, by the clock that all
processes of a machine share, and then report every turn they had.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

from bench.locks import Lock, Locks

SPAWN = multiprocessing.get_context("spawn")
PATIENCE = 60.0
"""More than anyone waits for a lock that is wanted by a few."""
GOODBYE = 10.0
RUN_UP = 0.2
"""Between telling and beginning, so that nobody begins late."""


class Turn(NamedTuple):
    asked: float
    entered: float
    left: float


class Shift(NamedTuple):
    begin: float
    end: float
    section: float
    """How long the lock is kept, in seconds: slept, so that it takes no core from those who wait."""


class Crew:
    def __init__(self, workers: Sequence[Connection]) -> None:
        self._workers = workers

    def work(self, seconds: float, section: float) -> tuple[Shift, list[list[Turn]]]:
        """One round: the turns of each process, in order. A turn that was asked for in time is waited for."""
        begin = time.monotonic() + RUN_UP
        shift = Shift(begin, begin + seconds, section)
        for worker in self._workers:
            worker.send(shift)
        return shift, [_answer(worker, seconds) for worker in self._workers]


@contextmanager
def crew(count: int, locks: Locks, url: str, name: str) -> Iterator[Crew]:
    """`count` processes, each with a connection and a lock object of its own."""
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(locks, url, name)) for _ in range(count)]
        for worker in workers:
            _answer(worker, 0)
        yield Crew(workers)


@contextmanager
def _worker(locks: Locks, url: str, name: str) -> Iterator[Connection]:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=_main, args=(there, locks, url, name), daemon=True)
    process.start()
    there.close()
    with closing(here):
        yield here
    process.join(GOODBYE)
    if process.is_alive():
        process.kill()
        process.join()


def _answer(worker: Connection, seconds: float) -> list[Turn]:
    if not worker.poll(seconds + PATIENCE):
        raise TimeoutError("a process of the crew does not answer")
    try:
        answer = worker.recv()
    except EOFError:
        raise RuntimeError("a process of the crew died") from None
    if isinstance(answer, str):
        raise RuntimeError(answer)
    turns: list[Turn] = answer
    return turns


def _main(told: Connection, locks: Locks, url: str, name: str) -> None:
    """What each process does, until the other end of its pipe is closed."""
    try:
        with locks(url) as lock_of:
            lock = lock_of(name)
            told.send([_turn(lock, 0, time.monotonic())])
            while True:
                told.send(turns(lock, told.recv()))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    except Exception as error:
        told.send(f"{type(error).__name__}: {error}")


def turns(lock: Lock, shift: Shift) -> list[Turn]:
    """At least one, however late this process comes."""
    time.sleep(max(0.0, shift.begin - time.monotonic()))
    had = [_turn(lock, shift.section, time.monotonic())]
    while (now := time.monotonic()) < shift.end:
        had.append(_turn(lock, shift.section, now))
    return had


def _turn(lock: Lock, section: float, asked: float) -> Turn:
    with lock:
        entered = time.monotonic()
        if section:
            time.sleep(section)
        return Turn(asked, entered, time.monotonic())
