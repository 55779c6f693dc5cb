"""Many seeds, one after the other or in several processes, and what came of them.

Theory of operation. A `Chunk` is a range of seeds of one task; a `Worker` runs it to its end, to its first failing seed
or until it is told to stop, and gives back a `Tally`, which is all that leaves a process: histories are had again by
running the seed again. Tallies are taken in the order of the chunks and none after the first failure, so the result
does not depend on how many processes there were. They are spawned, not forked: each starts with nothing but the names
of what to run, and with a hash seed of its own.

The cyclic garbage collector is off while a seed runs, so that no finaliser runs at a moment that the seed did not
decide; between seeds what has gathered is collected now and then.

Scenarios and mutants are imported when they are asked for: they need the extra `sim`, this module does not.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import PurePath
from types import FrameType
from typing import NamedTuple, Protocol

from gripfast_lab.sim.checks import Violation
from gripfast_lab.sim.history import Event
from gripfast_lab.sim.plan import Plan

COLLECT_EVERY = 200
CHUNK_AT_MOST = 25
CHUNKS_AHEAD = 4
"""For each process: as many wait for it, so that it never waits for them."""
GRACE = 0.5
"""Seconds in which processes that were asked to stop do so, unless their seed does not end."""
LOOK_EVERY = 0.05
"""Seconds from one look to the next, whether a second Ctrl-C came while this waits for other processes."""
CRASHED = "crashed"
"""The rule that a run breaks which raises: the world itself, or a scenario, has a bug."""

_SPAWN = multiprocessing.get_context("spawn")


class Outcome(Protocol):
    """What a run of a plan tells; `faults`: kind → how often it fired. There is no plan if making it raised."""

    @property
    def plan(self) -> Plan | None: ...
    @property
    def history(self) -> Sequence[Event]: ...
    @property
    def violations(self) -> Sequence[Violation]: ...
    @property
    def faults(self) -> Mapping[str, int]: ...
    @property
    def grants(self) -> int: ...
    @property
    def two_holders(self) -> int:
        """How often there were, as is expected where nothing prevents it: these are no violations."""
        ...


class Scenario(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def faults(self) -> Sequence[str]: ...
    def plan(self, seed: int) -> Plan: ...
    def run(self, plan: Plan) -> Outcome: ...


class Mutant(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def area(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def scenario(self) -> str: ...
    def planted(self) -> AbstractContextManager[object]: ...


class Explored(Protocol):
    """Tells itself as text."""

    @property
    def violations(self) -> Sequence[object]: ...


def scenarios() -> Mapping[str, Scenario]:
    from gripfast_lab.sim.scenarios import SCENARIOS

    return SCENARIOS


def mutants() -> Mapping[str, Mutant]:
    return {mutant.name: mutant for mutant in import_module("gripfast_lab.sim.mutants").MUTANTS}


def explorations() -> Mapping[str, Callable[[], Explored]]:
    found: Mapping[str, Callable[[], Explored]] = import_module("gripfast_lab.sim.explore").EXPLORATIONS
    return found


class Crash(NamedTuple):
    """The outcome of a run that raised."""

    plan: Plan | None
    violations: Sequence[Violation]
    trace: str
    history: Sequence[Event] = ()
    faults: Mapping[str, int] = {}
    grants: int = 0
    two_holders: int = 0


def ran(scenario: Scenario, plan: Plan) -> Outcome:
    try:
        return scenario.run(plan)
    except Exception as error:
        return _crash(scenario, plan, error)


def ran_seed(scenario: Scenario, seed: int) -> Outcome:
    try:
        plan = scenario.plan(seed)
    except Exception as error:
        return _crash(scenario, None, error)
    return ran(scenario, plan)


def _crash(scenario: Scenario, plan: Plan | None, error: Exception) -> Crash:
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error} ({PurePath(last.filename).name}:{last.lineno})"
    return Crash(plan, [Violation(CRASHED, scenario.name, what)], "".join(traceback.format_exception(error)))


# What to run, and what came of it -----------------------------------------------------------------------------------


class Task(NamedTuple):
    """By name, because a scenario itself may not be fit to be sent to another process."""

    scenario: str
    mutant: str | None = None

    @contextmanager
    def staged(self) -> Iterator[Scenario]:
        scenario = scenarios()[self.scenario]
        with nullcontext() if self.mutant is None else mutants()[self.mutant].planted():
            yield scenario


class Chunk(NamedTuple):
    task: Task
    seeds: range
    keep_going: bool = False


class Failure(NamedTuple):
    seed: int
    rules: tuple[str, ...]
    """That were broken, each once, in the order in which the checker tells them."""


@dataclass(slots=True)
class Tally:
    seeds: int = 0
    grants: int = 0
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    two_holders: int = 0
    """Seeds in which there were, as is expected."""

    def count(self, seed: int, outcome: Outcome) -> None:
        self.seeds += 1
        self.grants += outcome.grants
        self.events += len(outcome.history)
        self.two_holders += outcome.two_holders > 0
        self._fired(outcome.faults)
        if outcome.violations:
            self.failures.append(Failure(seed, rules_of(outcome)))

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.grants += other.grants
        self.events += other.events
        self.two_holders += other.two_holders
        self._fired(other.faults)
        self.failures += other.failures

    def _fired(self, faults: Mapping[str, int]) -> None:
        for kind, times in faults.items():
            self.faults[kind] = self.faults.get(kind, 0) + times


def rules_of(outcome: Outcome) -> tuple[str, ...]:
    return tuple(dict.fromkeys(violation.rule for violation in outcome.violations))


# Stopping -----------------------------------------------------------------------------------------------------------


class Stop:
    """Whether to stop after the seed at hand: one flag for all processes, without a lock, so that a signal may set it.

    The first Ctrl-C asks for it; the second is for a seed that does not end. It raises a KeyboardInterrupt that names
    the seed. While someone looks at `given_up`, only a third one raises: it may break a pool of processes.
    """

    def __init__(self) -> None:
        self._flag = _SPAWN.RawValue(ctypes.c_bool, False)
        self.interrupted = False
        self.given_up = False
        self.looked_at = False

    @property
    def asked(self) -> bool:
        return bool(self._flag.value)

    def ask(self) -> None:
        self._flag.value = True

    @contextmanager
    def on_ctrl_c(self) -> Iterator[None]:
        before = signal.signal(signal.SIGINT, self._hear)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _hear(self, signum: int, frame: FrameType | None) -> None:
        if self.interrupted:
            raises = self.given_up or not self.looked_at
            self.given_up = True
            if raises:
                raise KeyboardInterrupt
        self.interrupted = True
        self.ask()


# Running ------------------------------------------------------------------------------------------------------------


@contextmanager
def collector_off() -> Iterator[None]:
    was_on = gc.isenabled()
    _turn_collector_off()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def _turn_collector_off() -> None:
    """What is there already stays; not to look at it makes the collections between seeds cheap."""
    gc.collect()
    gc.freeze()
    gc.disable()


class Worker:
    """Runs chunks in this process; the collector must be off."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._uncollected = 0

    def run(self, chunk: Chunk) -> Tally:
        tally = Tally()
        with chunk.task.staged() as scenario:
            for seed in chunk.seeds:
                if self._stop.asked or (tally.failures and not chunk.keep_going):
                    break
                try:
                    tally.count(seed, ran_seed(scenario, seed))
                except KeyboardInterrupt:
                    raise KeyboardInterrupt(f"seed {seed}") from None
                self._collect_now_and_then()
        return tally

    def _collect_now_and_then(self) -> None:
        self._uncollected += 1
        if self._uncollected >= COLLECT_EVERY:
            self._uncollected = 0
            gc.collect()


def run_seeds(task: Task, seeds: range, *, jobs: int, keep_going: bool, stop: Stop) -> Generator[Tally, None, None]:
    """The tallies of consecutive parts of the seeds, up to the first failing one unless `keep_going`."""
    size = max(1, min(CHUNK_AT_MOST, len(seeds) // (jobs * CHUNKS_AHEAD)))
    chunks = (Chunk(task, seeds[start : start + size], keep_going) for start in range(0, len(seeds), size))
    with closing(run_chunks(chunks, jobs, stop)) as tallies:
        for tally in tallies:
            yield tally
            if tally.failures and not keep_going:
                break


def run_chunks(chunks: Iterable[Chunk], jobs: int, stop: Stop) -> Generator[Tally, None, None]:
    """In the order of the chunks; the last one is cut short if a stop was asked for."""
    with closing(_in_this_process(chunks, stop) if jobs == 1 else _in_processes(chunks, jobs, stop)) as tallies:
        for tally in tallies:
            yield tally
            if stop.asked:
                break


def _in_this_process(chunks: Iterable[Chunk], stop: Stop) -> Generator[Tally, None, None]:
    worker = Worker(stop)
    with collector_off():
        for chunk in chunks:
            yield worker.run(chunk)


def _in_processes(chunks: Iterable[Chunk], jobs: int, stop: Stop) -> Generator[Tally, None, None]:
    pool = ProcessPoolExecutor(jobs, mp_context=_SPAWN, initializer=_begin_child, initargs=(stop,))
    waiting: deque[tuple[Chunk, Future[Tally]]] = deque()
    stop.looked_at = True
    try:
        yield from _in_order(pool, chunks, jobs, waiting, stop)
    finally:
        stop.ask()
        endless = _not_ending(waiting, stop)
        if stop.given_up:
            for child in multiprocessing.active_children():
                child.terminate()
        pool.shutdown(cancel_futures=True)
        stop.looked_at = False
        if stop.given_up:
            raise KeyboardInterrupt(*endless)


def _not_ending(waiting: Iterable[tuple[Chunk, Future[Tally]]], stop: Stop) -> list[str]:
    """The first chunk that was given up because it does not end; all others have ended, or do so at once."""
    futures = [future for _, future in waiting]
    _wait(futures, stop)
    wait(futures, GRACE)
    endless = [chunk.seeds for chunk, future in waiting if future.running()]
    return [f"one of the seeds {seeds[0]} to {seeds[-1]}" for seeds in endless[:1]]


def _in_order(
    pool: ProcessPoolExecutor,
    chunks: Iterable[Chunk],
    jobs: int,
    waiting: deque[tuple[Chunk, Future[Tally]]],
    stop: Stop,
) -> Iterator[Tally]:
    for chunk in chunks:
        with _deaf_to_ctrl_c() if len(waiting) < jobs else nullcontext():
            waiting.append((chunk, pool.submit(_run_in_child, chunk)))
        if len(waiting) >= jobs * CHUNKS_AHEAD:
            yield _result(waiting[0][1], stop)
            waiting.popleft()
    while waiting:
        yield _result(waiting[0][1], stop)
        waiting.popleft()


def _result(future: Future[Tally], stop: Stop) -> Tally:
    _wait([future], stop)
    if not future.done():
        raise KeyboardInterrupt
    return future.result()


def _wait(futures: Sequence[Future[Tally]], stop: Stop) -> None:
    """Until they end, or a second Ctrl-C gives them up."""
    while wait(futures, LOOK_EVERY).not_done and not stop.given_up:
        pass


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """A process that is started now ignores it from its first moment: whoever started it decides what it means."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_worker_of_child: Worker


def _begin_child(stop: Stop) -> None:
    global _worker_of_child
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    scenarios()
    _turn_collector_off()
    _worker_of_child = Worker(stop)


def _end_with_parent() -> None:
    """A parent that was killed tells nobody to stop; its processes would wait for ever for more to do."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_in_child(chunk: Chunk) -> Tally:
    return _worker_of_child.run(chunk)
