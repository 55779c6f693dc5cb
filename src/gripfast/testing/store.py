"""The store of a World: memory that can have an outage, and in which others hold locks.

It is the memory engine, so everything that clients do there is real. Each request first looks whether there is an
outage. Inboxes and pauses follow the clock (`moments.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from gripfast.core.ports import (
    Claim,
    Granted,
    Hold,
    Kind,
    Label,
    LockInfo,
    Page,
    PermitInfo,
    PermitPage,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import StoreUnavailable
from gripfast.machine import Process, boottime
from gripfast.stores import AioStores, StoreFactory
from gripfast.stores.holder import Holder, dump_holder, write_holder
from gripfast.stores.inboxes import BlockingInbox
from gripfast.stores.local import LocalStore, directly
from gripfast.stores.local_aio import AioInbox, yielding
from gripfast.stores.memory.engine import MemoryEngine
from gripfast.stores.memory.spec import CAPABILITIES
from gripfast.testing.clock import runtimes, skipping
from gripfast.testing.moments import moments

T = TypeVar("T")

FOR_EVER = 3600.0
"""Seconds of the clock after which a wait that is skipped counts as endless."""


class ThreadInbox(BlockingInbox):
    since: float | None = None

    async def hear(self, until: float) -> Granted | None:
        self.since = self.since or boottime()
        with moments.waits(self, until, self.nudge):
            push = await super().hear(until)
        if push is not None:
            moments.is_over(self)
        return push


class TaskInbox(AioInbox):
    since: float | None = None

    async def hear(self, until: float) -> Granted | None:
        self.since = self.since or boottime()
        with moments.waits(self, until, lambda: self.deliver(None)):
            push = await super().hear(until)
        if push is not None:
            moments.is_over(self)
        return push


class ThreadPause:
    """Before a thread retries."""

    def __init__(self) -> None:
        self._bell = threading.Event()

    async def pause(self, until: float) -> None:
        while (left := until - boottime()) > 0.0:
            self._bell.clear()
            with moments.waits(self, until, self._bell.set):
                self._bell.wait(left)
        moments.is_over(self)


class TaskPause:
    """Before a task retries."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._bell = asyncio.Event()

    async def pause(self, until: float) -> None:
        try:
            while (left := until - boottime()) > 0.0:
                self._bell.clear()
                with moments.waits(self, until, self._wake), contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._bell.wait()
        finally:
            moments.is_over(self)

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._bell.set)


async def _pause_thread(seconds: float) -> None:
    await ThreadPause().pause(boottime() + seconds)


async def _pause_task(seconds: float) -> None:
    await TaskPause().pause(boottime() + seconds)


class Named(str):
    """An argument of a request that is a name, or how names begin."""

    __slots__ = ()


class WorldStore(LocalStore):
    """For threads or tasks, as the inboxes and the way to call the engine say.

    `left_out`: with what the names of its client begin, and those in this world do not.
    """

    def __init__(
        self,
        factory: WorldFactory,
        inbox: type[ThreadInbox] | type[TaskInbox],
        call: Callable[..., Any],
        left_out: str = "",
    ) -> None:
        super().__init__(factory.engine, inbox, call)
        self.factory = factory
        self._left_out = left_out
        self._follows_clock = False

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        if not self._follows_clock:
            self._follow_clock()
        inbox = claim.inbox
        if isinstance(inbox, ThreadInbox | TaskInbox):
            _check_for_ever(self.name_here(claim.name), inbox.since)
            moments.is_awake(inbox)
        answer = await super().claim(claim)
        if inbox is not None and not isinstance(answer, Taken):
            moments.is_over(inbox)
        return answer

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        answers = await super().abandon(holds)
        for hold in holds:
            if (inbox := self.inboxes.find(hold.owner)) is not None:
                moments.is_over(inbox)
        return answers

    async def _ask(self, request: Callable[..., T], *args: Any, is_held: bool = False) -> T | Unreachable:
        if self.factory.outages:
            return unreachable(StoreUnavailable(*self.factory.refusal()), was_sent=False, was_refused=True)
        self.factory.tend()
        if not self._left_out:
            return await super()._ask(request, *args, is_held=is_held)
        answer = await super()._ask(request, *[self._as_here(each) for each in args], is_held=is_held)
        return self._as_there(answer)  # type: ignore[no-any-return]

    def name_here(self, key: str) -> str:
        """In this world, of what the client calls by its prefix, too."""
        return key.removeprefix(self._left_out)

    def _as_here(self, arg: Any) -> Any:
        """Of the arguments of a request."""
        if isinstance(arg, Claim | Hold):
            return arg._replace(name=self.name_here(arg.name))
        if isinstance(arg, Named):
            return self.name_here(arg)
        return [self._as_here(each) for each in arg] if isinstance(arg, list | tuple) else arg

    def _as_there(self, answer: Any) -> Any:
        if isinstance(answer, LockInfo | PermitInfo):
            return replace(answer, name=self._left_out + answer.name)
        if isinstance(answer, Taken):
            return answer._replace(holder=self._as_there(answer.holder))
        if isinstance(answer, Page | PermitPage):
            return answer._replace(infos=[self._as_there(info) for info in answer.infos])
        return answer

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        return await super().inspect(Named(name))

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        return await super().page(Named(prefix), after)

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        return await super().force_release(Named(name), note)

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        return await super().resize(Named(name), limit)

    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        return await super().inspect_permits(Named(name), kind)

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        return await super().page_permits(kind, Named(prefix), after)

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None = None, slot: int | None = None, note: str | None = None
    ) -> bool | Unreachable:
        return await super().force_release_permits(Named(name), kind, owner, slot, note)

    def _follow_clock(self) -> None:
        """The pauses of its client, which is just made."""
        for env in [runtime.env for runtime in runtimes() if runtime.env.store is self]:
            env.pause = _pause_thread if self._new_inbox is ThreadInbox else _pause_task
            self._follows_clock = True


def _check_for_ever(name: str, since: float | None) -> None:
    if skipping and since is not None and boottime() - since > FOR_EVER:
        raise AssertionError(
            f"the code waits for {name!r} without an end: for more than an hour of the clock that fast_forward() "
            "moves. Give the code a `wait`, or have the lock released: world.hold(name, seconds=…)"
        )


class Stranger(NamedTuple):
    """Somebody else, who is not there."""

    host: str
    label: str | None
    pid: int


class WorldEngine(MemoryEngine):
    def __init__(self) -> None:
        super().__init__()
        self._details = functools.lru_cache(maxsize=256)(_details)  # of strangers, too

    def keep(self, hold: Hold) -> None:
        """A stranger renews whatever happens here: also while this process was suspended."""
        self._guard.run(self._keep, hold)

    def _keep(self, hold: Hold) -> None:
        row = self._row(hold.name)
        if row.owner == hold.owner:
            self._rows[hold.name] = row._replace(expires=boottime() + hold.ttl)

    def claim_for(self, hold: Hold, stranger: Stranger) -> Granted | Taken:
        return self.claim(Claim(hold.name, hold.owner, hold.ttl, stranger, None))  # type: ignore[arg-type]


def _details(label: Label | Stranger) -> str:
    if not isinstance(label, Stranger):
        return write_holder(label)
    return dump_holder(Holder(label.host, label.label, (Process("", "", "", label.pid, ""),)))


class WorldFactory(StoreFactory):
    capabilities = CAPABILITIES

    def __init__(self, name: str) -> None:
        self.where = f"memory://{name}"
        self.engine = WorldEngine()
        self.outages: list[object] = []
        self.tend: Callable[[], None] = lambda: None
        """Before each request: what others do meanwhile, who are not there."""

    def refusal(self) -> tuple[str, dict[str, str]]:
        reason = "connection refused (world.outage() of a test)"
        return f"can't reach {self.where}: {reason}", {self.where: reason}

    def blocking(self, request_timeout: float, left_out: str = "") -> WorldStore:
        return WorldStore(self, ThreadInbox, directly, left_out)

    def aio(self, request_timeout: float, left_out: str = "") -> AioStores:
        aside = self.blocking(request_timeout, left_out)
        return AioStores(WorldStore(self, TaskInbox, yielding, left_out), aside)


class WithoutPrefix(StoreFactory):
    """The same store, for a client that was moved into the world. What it has made before begins with the default
    prefix of its former store. That prefix is not part of the names in a world."""

    capabilities = CAPABILITIES

    def __init__(self, world: WorldFactory, prefix: str) -> None:
        self.world = world
        self.where = world.where
        self.prefix = prefix

    def blocking(self, request_timeout: float) -> WorldStore:
        return self.world.blocking(request_timeout, self.prefix)

    def aio(self, request_timeout: float) -> AioStores:
        return self.world.aio(request_timeout, self.prefix)
