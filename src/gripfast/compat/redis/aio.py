"""The lock for tasks, in the shape of redis.asyncio.lock.Lock. One object may be used in several event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal, Self

from gripfast.api.aio.client import AsyncClient
from gripfast.api.aio.lease import AsyncLease
from gripfast.compat.redis.book import this_task
from gripfast.compat.redis.shape import Shape
from gripfast.interrupts.scope import Exit, Scope, scope_of_this_entry


class AsyncLock(Shape[AsyncLease]):
    """Like redis.asyncio.lock.Lock. Not re-entrant. Tasks may share one object.

    If the lock is lost, the body of `async with` is not cancelled. `await lock.lease.lost.wait()` returns when that
    happens.
    """

    _who = staticmethod(this_task)
    _lease_type = AsyncLease
    _is_async = True

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Return True as soon as the caller has the lock. If someone else holds it, return False: at once with
        `blocking=False`, otherwise after `blocking_timeout` seconds. If one of these is None, the constructor's value
        counts; if that `blocking_timeout` is None as well, wait for ever.

        `token` becomes the value of the lock's key. Use a new one each time, or none: then Gripfast makes one.
        """
        lease = await self._acquired(self._patience(blocking, blocking_timeout), self._token(token))
        if lease is None:
            return False
        holdings, hold = self.local._room_for(lease)
        holdings[hold] = None  # last, and no call: see `holdings`
        return True

    async def release(self) -> None:
        """Release the lock. Raises LockError if nothing is held, and LockNotOwnedError if the lock was lost."""
        await self._release(self.local._take())

    async def locked(self) -> bool:
        """Whether anyone holds the lock."""
        return await self._inspected() is not None

    async def owned(self) -> bool:
        """Whether the caller holds the lock, according to the server and to the clock of this process."""
        return await self._is_owned()

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add `additional_time` seconds to the lease; with `replace_ttl`, let it last that long from now."""
        return await self._extend(additional_time, replace_ttl)

    async def reacquire(self) -> Literal[True]:
        """Reset the lease to a full `timeout`, counted from now."""
        return await self._reacquire()

    @property
    def _client(self) -> AsyncClient:
        return self._clients.per_loop.here()

    async def _eval(self, *command: Any) -> Any:
        """In a task of its own: redis-py swallows some cancels, and drops its connection for others."""
        return await asyncio.shield(asyncio.ensure_future(self.redis.eval(*command)))

    async def _let_go(self, lease: AsyncLease) -> None:
        if asyncio.get_running_loop() is lease._runtime.loop:
            await lease.release()
        else:
            lease._release_soon()

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        return self._enter(scope_of_this_entry(self))

    @Exit
    async def __aexit__(scope: Scope, kind: type[BaseException] | None, *_: Any) -> None:
        await scope.lock._leave(scope, kind)
