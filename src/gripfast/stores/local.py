"""Stores whose engine is a plain Python object in this process: what the engine must offer, and the ways to call it.

The blocking store calls it on the calling thread. For an event loop there are the ways of `stores/local_aio.py`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gripfast.core.ports import (
    Capabilities,
    Claim,
    Granted,
    Hold,
    Inbox,
    Kind,
    LockInfo,
    Loss,
    Page,
    PermitInfo,
    PermitPage,
    Store,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import ClientClosed, GripfastError, StoreUnavailable
from gripfast.stores import AioStores
from gripfast.stores.inboxes import BlockingInbox, Inboxes
from gripfast.stores.layout import OtherLayout

if TYPE_CHECKING:
    from gripfast.stores.local_aio import AioInbox

T = TypeVar("T")


class Engine(Protocol):
    """The requests of a Store as plain calls, from any thread; what can't be done raises StoreUnavailable."""

    capabilities: Capabilities
    inboxes: Inboxes

    def claim(self, claim: Claim) -> Granted | Taken: ...
    def renew(self, holds: Sequence[Hold]) -> Sequence[Loss | None]: ...
    def release(self, hold: Hold) -> Loss | None: ...
    def abandon(self, holds: Sequence[Hold]) -> None: ...
    def inspect(self, name: str) -> LockInfo | None: ...
    def page(self, prefix: str, after: str | None) -> Page: ...
    def force_release(self, name: str, note: str | None = None) -> bool: ...
    def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss: ...
    def detach(self, hold: Hold) -> Loss | None: ...
    def vouch(self, hold: Hold, pid: int) -> None: ...
    def close(self) -> None: ...

    def permits(self) -> EnginePermits:
        """Made when they are first used: most programs have none."""
        ...


class EnginePermits(Protocol):
    """Semaphores and read/write locks of an engine, in the same way. Their claims, renewals and releases go through the
    engine, together with those of locks."""

    def downgrade(self, hold: Hold, n: int) -> Loss | None: ...
    def resize(self, name: str, limit: int) -> None: ...
    def inspect(self, name: str, kind: Kind) -> PermitInfo | None: ...
    def page(self, kind: Kind, prefix: str, after: str | None) -> PermitPage: ...
    def force_release(self, name: str, kind: Kind, owner: str | None, slot: int | None, note: str | None) -> bool: ...


class LocalStore(Store):
    def __init__(
        self,
        engine: Engine,
        new_inbox: type[BlockingInbox] | type[AioInbox],
        call: Callable[..., Awaitable[Any]],
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.capabilities = engine.capabilities
        self._engine = engine
        self._new_inbox = new_inbox
        self._call = call
        self._at_end = at_end

    @property
    def inboxes(self) -> Inboxes:
        return self._engine.inboxes

    def inbox(self) -> Inbox:
        return self._new_inbox()

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        return await self._ask(self._engine.claim, claim)

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Loss | None] | Unreachable:
        return await self._ask(self._engine.renew, holds, is_held=True)

    async def release(self, hold: Hold) -> Loss | Unreachable | None:
        return await self._ask(self._engine.release, hold, is_held=True)

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        return [await self._ask(self._engine.abandon, holds, is_held=True)] * len(holds)

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        return await self._ask(self._engine.inspect, name)

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        return await self._ask(self._engine.page, prefix, after)

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        return await self._ask(self._engine.force_release, name, *([] if note is None else [note]))

    async def downgrade(self, hold: Hold, n: int) -> Loss | Unreachable | None:
        return await self._ask(self._engine.permits().downgrade, hold, n, is_held=True)

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        return await self._ask(self._engine.permits().resize, name, limit)

    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        return await self._ask(self._engine.permits().inspect, name, kind)

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        return await self._ask(self._engine.permits().page, kind, prefix, after)

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None = None, slot: int | None = None, note: str | None = None
    ) -> bool | Unreachable:
        return await self._ask(self._engine.permits().force_release, name, kind, owner, slot, note)

    async def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss | Unreachable:
        return await self._ask(self._engine.adopt, hold, claim)

    async def detach(self, hold: Hold, token: int) -> Loss | Unreachable | None:
        return await self._ask(self._engine.detach, hold, is_held=True)

    async def vouch(self, hold: Hold, pid: int) -> Unreachable | None:
        return await self._ask(self._engine.vouch, hold, pid)

    def stop_waiting(self) -> None:
        self._engine.inboxes.ask_again()

    async def close(self) -> None:
        await self._call(self._engine.close)
        self._at_end()

    async def _ask(self, request: Callable[..., T], *args: Any, is_held: bool = False) -> T | Unreachable:
        try:
            return await self._call(request, *args)  # type: ignore[no-any-return]
        except GripfastError as error:
            return _answer_to(error, is_held)


class BlockingLocalStore(LocalStore):
    """Calls the engine on the calling thread."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, BlockingInbox, directly)

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        """As above, without a coroutine in between: this and `release` are the hot path."""
        try:
            return self._engine.claim(claim)
        except GripfastError as error:
            return _answer_to(error, False)

    async def release(self, hold: Hold) -> Loss | Unreachable | None:
        try:
            return self._engine.release(hold)
        except GripfastError as error:
            return _answer_to(error, True)

    async def _ask(self, request: Callable[..., T], *args: Any, is_held: bool = False) -> T | Unreachable:
        try:
            return request(*args)
        except GripfastError as error:
            return _answer_to(error, is_held)


def _answer_to(error: GripfastError, is_held: bool) -> Unreachable:
    """For what is held already, that the engine has become unusable since is a reason to try again."""
    if isinstance(error, OtherLayout):
        return unreachable(StoreUnavailable(*error.args), is_permanent=True)
    if isinstance(error, StoreUnavailable | ClientClosed):
        return unreachable(error)
    if is_held:
        return unreachable(StoreUnavailable(str(error)))
    raise error


async def directly(request: Callable[..., T], *args: Any) -> T:
    return request(*args)


def on_a_thread(engine: Engine, name: str, request_timeout: float) -> AioStores:
    """The stores of an async client whose engine would block the event loop."""
    from gripfast.stores.local_aio import AioInbox, Worker

    worker = Worker(name, request_timeout)
    return AioStores(
        LocalStore(engine, AioInbox, worker.call, worker.stop),
        LocalStore(engine, BlockingInbox, worker.call_blocking, worker.stop),
    )
