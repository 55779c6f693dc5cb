"""One worker, as a process of its own: `python -m gripfast_lab.verify.worker`.

The first line of its standard input is its order, as JSON: so a password in a URL is in no list of processes. The next
one, `end`, lets it finish what it is at. If the input ends without it, its crew is gone, and it ends at once.

What a worker does is written once, as a coroutine. With an AsyncClient it runs as a task. With a Client it runs to its
end in one step, because nothing that it awaits suspends.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gripfast
from gripfast.core.lease import RW_LIMIT
from gripfast_lab.sim.quiet import quietly
from gripfast_lab.verify.journal import Fenced, Journal, now
from gripfast_lab.verify.notes import Notes

LIMIT = 2
"""Permits of the semaphore."""
LOCKS = ("lock-a", "lock-b")
SEMAPHORE, RWLOCK = "semaphore", "rwlock"
WAITS = (0.0, 0.0, 0.1, 0.5, 1.5)
"""In ttls."""
RESTS, HOLDS = 0.03, 0.02
"""Seconds at most, between two attempts and for most holds."""
LONG, KEEPS = 0.07, 1.8
"""How likely a long hold is, and how many ttls it takes at most: it needs renewals."""
LOOKS = 20
"""How often in a ttl somebody who holds for long looks at its lease."""


@dataclass(frozen=True)
class Order:
    url: str
    prefix: str
    ttl: float
    request_timeout: float
    seed: str
    folder: str
    who: str
    kinds: tuple[str, ...]
    """Besides locks: of those SEMAPHORE and RWLOCK that the store has."""
    bug: str = ""
    """A mutant of the simulation, to be planted."""
    is_async: bool = False
    """It has an AsyncClient."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Order:
        given: dict[str, Any] = json.loads(text)
        return cls(**given | {"kinds": tuple(given["kinds"])})


class Plan(NamedTuple):
    """One attempt, as chance has it."""

    lock: Any
    """Of any kind."""
    wait: float
    hold: float
    renews: bool
    says: str = ""
    """The note of the attempt: permits, and their limit."""


class Recorder(gripfast.Observer):
    """Writes down what observers are told."""

    def __init__(self, journal: Path, who: str) -> None:
        self._file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._who = who

    def _told(self, event: gripfast.Event) -> None:
        told = (event.kind, self._who, event.name, event.token, event.waited, event.margin, event.reason, event.request)
        os.write(self._file, (json.dumps(told) + "\n").encode())

    claimed = granted = refused = renewed = lost = released = unreachable = _told


class Worker:
    def __init__(self, order: Order, client: Any, stop: threading.Event) -> None:
        """`client`: of the kind that the order says."""
        self._order = order
        self._client = client
        self._stop = stop
        self._chance = random.Random(f"{order.seed} {order.who}")
        self._notes = Notes(order.who, Journal(Path(order.folder) / "journal").note)
        self._fences = {name: Fenced.of(Path(order.folder), name) for name in LOCKS}

    async def work(self) -> None:
        while not self._stop.is_set():
            await self._attempt(self._plan())
            await self._rest(self._chance.uniform(0.0, RESTS))

    async def _rest(self, seconds: float) -> None:
        if self._order.is_async:
            await asyncio.sleep(seconds)
        else:
            self._stop.wait(seconds)

    def _plan(self) -> Plan:
        chance, ttl = self._chance, self._order.ttl
        renews = chance.random() < 0.7
        lock, says = self._lock(chance.choice((*LOCKS, *self._order.kinds)), renews)
        is_long = chance.random() < LONG
        hold = chance.uniform(0.3, KEEPS) * ttl if is_long else chance.uniform(0.0, HOLDS)
        return Plan(lock, chance.choice(WAITS) * ttl, hold, renews, says)

    def _lock(self, name: str, renews: bool) -> tuple[Any, str]:
        terms: Any = {"ttl": self._order.ttl, "renew": renews, "label": "gripfast verify"}
        if name == SEMAPHORE:
            return self._client.semaphore(name, LIMIT, **terms), f"1 of {LIMIT}"
        if name == RWLOCK:
            both = self._client.rwlock(name, **terms)
            is_reader = self._chance.random() < 0.7
            return both.read() if is_reader else both.write(), f"{1 if is_reader else RW_LIMIT} of {RW_LIMIT}"
        return self._client.lock(name, **terms), ""

    async def _attempt(self, plan: Plan) -> None:
        name, notes, order = plan.lock.name, self._notes, self._order
        notes.asked(name, plan.wait, order.request_timeout, ttl=order.ttl, renews=plan.renews, note=plan.says)
        try:
            lease = await _result(plan.lock.acquire(wait=plan.wait) if plan.wait else plan.lock.try_acquire())
            notes.answered(name, lease, note=",".join(map(str, getattr(lease, "slots", ()))))
            if lease is not None:
                await self._hold(plan, lease)
                notes.note("releasing", name)
                await _result(lease.release())
                notes.note("released", name)
        except BaseException as error:
            notes.error(name, error)

    async def _hold(self, plan: Plan, lease: Any) -> None:
        fence, ends = self._fences.get(lease.name), now() + plan.hold
        read = None if fence is None else fence.read(self._order.who, lease.token)
        while (left := ends - now()) > 0.0 and not self._stop.is_set():
            self._look(lease)
            await _result(lease.lost.wait(min(left, self._order.ttl / LOOKS)))
        if fence is not None and read is not None:
            fence.write(self._order.who, lease.token, read, read + 1)
        self._look(lease)

    def _look(self, lease: Any) -> None:
        if not self._notes.held(lease):
            lease.ensure_held()


async def _result(answer: Any) -> Any:
    """Of a call to either kind of client."""
    return await answer if inspect.isawaitable(answer) else answer


def plant(name: str) -> None:
    """For good: this process ends with it."""
    from gripfast_lab.sim.mutants import MUTANTS

    next(mutant for mutant in MUTANTS if mutant.name == name).plant_for_good()


def _listen(stop: threading.Event) -> None:
    if sys.stdin.readline() != "end\n":
        os._exit(1)
    stop.set()


def main() -> None:
    order = Order.of_json(sys.stdin.readline())
    stop = threading.Event()
    threading.Thread(target=_listen, args=(stop,), daemon=True).start()
    if order.bug:
        plant(order.bug)
    options: dict[str, Any] = {"prefix": order.prefix, "request_timeout": order.request_timeout}
    recorder = Recorder(Path(order.folder) / "observed", order.who)
    with quietly():
        if order.is_async:
            asyncio.run(work_async(order, stop, options | {"observers": [recorder]}))
        else:
            with gripfast.connect(order.url, observers=[recorder], **options) as client:
                work_at_once(Worker(order, client, stop))


def work_at_once(worker: Worker) -> None:
    """With a Client: whatever it awaits blocks instead."""
    work = worker.work()
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise RuntimeError("a worker with a Client has suspended")


async def work_async(order: Order, stop: threading.Event, options: dict[str, Any]) -> None:
    async with gripfast.connect_async(order.url, **options) as client:
        await Worker(order, client, stop).work()


if __name__ == "__main__":
    main()
