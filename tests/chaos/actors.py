"""Those who use the locks: threads and tasks that ask, wait, give up, hold, extend and release, as chance has it.

They note everything they do and are told, and update registers while they hold. What they raise that no caller should
ever see is noted as a failure.
"""

import asyncio
import random
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gripfast
from gripfast_lab.verify.journal import Fenced, Journal, Plain, now
from gripfast_lab.verify.notes import Notes


@dataclass(frozen=True)
class Play:
    """What the actors of one process are given."""

    url: str
    request_timeout: float
    folder: str
    seed: str
    process: str
    names: tuple[str, ...] = ("a", "b")
    ttls: tuple[float, ...] = (0.5, 1.0)
    waits: tuple[float, ...] = (0.0, 0.0, 0.02, 0.2, 2.0)
    hold: tuple[float, float] = (0.0, 0.005)
    renews: float = 0.7
    """How likely."""
    threads: int = 2
    tasks: int = 3
    keepers: int = 1


class _Plan(NamedTuple):
    """One attempt, as chance has it."""

    name: str
    ttl: float
    renews: bool
    wait: float
    hold: float
    extends: bool
    gives_up: float | None
    """Seconds after which the caller cancels; only tasks can."""


class _Actor:
    def __init__(self, who: str, play: Play, journal: Journal, stop: threading.Event) -> None:
        self.play = play
        self.stop = stop
        self._who = f"{play.process}/{who}"
        self._chance = random.Random(f"{play.seed} {self._who}")
        self.notes = Notes(self._who, journal.note)
        self._registers: dict[str, tuple[Plain, Fenced]] = {}

    def plan(self) -> _Plan:
        chance, play = self._chance, self.play
        return _Plan(
            name=chance.choice(play.names),
            ttl=chance.choice(play.ttls),
            renews=chance.random() < play.renews,
            wait=chance.choice(play.waits),
            hold=chance.uniform(*play.hold),
            extends=chance.random() < 0.2,
            gives_up=chance.uniform(0.0, 0.02) if chance.random() < 0.15 else None,
        )

    def note_asked(self, plan: _Plan) -> None:
        self.notes.asked(plan.name, plan.wait, self.play.request_timeout, ttl=plan.ttl, renews=plan.renews)

    def registers(self, name: str) -> tuple[Plain, Fenced]:
        if name not in self._registers:
            folder = Path(self.play.folder)
            self._registers[name] = Plain.of(folder, name), Fenced.of(folder, name)
        return self._registers[name]

    def before_update(self, lease: Any) -> tuple[int, int | None]:
        plain, fenced = self.registers(lease.name)
        return plain.read(), fenced.read(self._who, lease.token)

    def update(self, lease: Any, plain_value: int, fenced_value: int | None) -> None:
        plain, fenced = self.registers(lease.name)
        if fenced_value is not None:
            fenced.write(self._who, lease.token, fenced_value, fenced_value + 1)
        if lease.held:
            plain.write(plain_value + 1)
            plain.wrote(in_time=lease.held)

    def close(self) -> None:
        for plain, fenced in self._registers.values():
            plain.close()
            fenced.close()


class Thread(_Actor):
    """Asks again and again."""

    def __init__(self, client: gripfast.Client, who: str, play: Play, journal: Journal, stop: threading.Event) -> None:
        super().__init__(who, play, journal, stop)
        self._client = client

    def act(self) -> None:
        while not self.stop.is_set():
            self.attempt(self.plan())
        self.close()

    def attempt(self, plan: _Plan) -> None:
        lock = self._client.lock(plan.name, ttl=plan.ttl, renew=plan.renews)
        self.note_asked(plan)
        try:
            lease = lock.acquire(wait=plan.wait) if plan.wait else lock.try_acquire()
        except BaseException as error:
            self.notes.error(plan.name, error)
            return
        self.notes.answered(plan.name, lease)
        if lease is None:
            return
        try:
            self.body(plan, lease)
            self.notes.held(lease)
            self.notes.note("releasing", plan.name)
            lease.release()
            self.notes.note("released", plan.name)
        except BaseException as error:
            self.notes.error(plan.name, error)

    def body(self, plan: _Plan, lease: gripfast.Lease) -> None:
        read = self.before_update(lease)
        lease.lost.wait(plan.hold)
        if plan.extends:
            extend(lease)
        self.update(lease, *read)


def extend(lease: gripfast.Lease) -> None:
    try:
        lease.extend()
    except gripfast.StoreUnavailable:
        pass  # an answer, too; the lease goes on as it was


class Keeper(Thread):
    """Holds for longer than a ttl, and looks at its lease all the time."""

    def plan(self) -> _Plan:
        chosen = super().plan()
        hold = self._chance.uniform(0.5, 1.5) * chosen.ttl
        return chosen._replace(name="kept", hold=hold, wait=2.0)

    def body(self, plan: _Plan, lease: gripfast.Lease) -> None:
        ends = now() + plan.hold
        read = self.before_update(lease)
        while now() < ends and not self.stop.is_set():
            if not self.notes.held(lease):
                lease.ensure_held()
            lease.lost.wait(0.02)
        self.update(lease, *read)


class Task(_Actor):
    """The same on an event loop; gives up by cancelling."""

    def __init__(
        self, client: gripfast.AsyncClient, who: str, play: Play, journal: Journal, stop: threading.Event
    ) -> None:
        super().__init__(who, play, journal, stop)
        self._client = client

    async def act(self) -> None:
        while not self.stop.is_set():
            await self.attempt(self.plan())
            await asyncio.sleep(0)
        self.close()

    async def attempt(self, plan: _Plan) -> None:
        self.note_asked(plan)
        try:
            async with asyncio.timeout(plan.gives_up):
                lease = await self._acquired(plan)
        except BaseException as error:
            self.notes.error(plan.name, error)
            return
        self.notes.answered(plan.name, lease)
        if lease is None:
            return
        try:
            read = self.before_update(lease)
            await lease.lost.wait(plan.hold)
            if plan.extends:
                await aextend(lease)
            self.update(lease, *read)
            self.notes.held(lease)
            self.notes.note("releasing", plan.name)
            async with asyncio.timeout(plan.gives_up):
                await lease.release()
            self.notes.note("released", plan.name)
        except BaseException as error:
            self.notes.error(plan.name, error)

    async def _acquired(self, plan: _Plan) -> gripfast.AsyncLease | None:
        lock = self._client.lock(plan.name, ttl=plan.ttl, renew=plan.renews)
        return await lock.acquire(wait=plan.wait) if plan.wait else await lock.try_acquire()


async def aextend(lease: gripfast.AsyncLease) -> None:
    try:
        await lease.extend()
    except gripfast.StoreUnavailable:
        pass


async def act_together(play: Play, journal: Journal, stop: threading.Event) -> None:
    """The tasks of a process: all of one client."""
    async with gripfast.connect_async(play.url, request_timeout=play.request_timeout) as client:
        async with asyncio.TaskGroup() as group:
            for number in range(play.tasks):
                group.create_task(Task(client, f"task {number}", play, journal, stop).act())
