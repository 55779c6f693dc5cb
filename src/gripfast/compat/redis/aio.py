"""The lock for tasks, in the shape of redis.asyncio.lock.Lock. One object may be used in several event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal, Self, cast

from redis.exceptions import LockError

from gripfast.api.aio.client import AsyncClient
from gripfast.api.aio.lease import AsyncLease
from gripfast.compat.redis.book import Borrowed, Held, this_task
from gripfast.compat.redis.shape import Shape
from gripfast.compat.redis.tokens import Renaming
from gripfast.errors import LockTimeout
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
        with self._in_redis_terms("inspect"):
            return await self._client.inspect(self._terms().name) is not None

    async def owned(self) -> bool:
        """Whether the caller holds the lock, according to the server and to the clock of this process."""
        held = self.local._held()
        return held is not None and await self._left(held) is not None and (isinstance(held, Borrowed) or held.held)

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add `additional_time` seconds to the lease; with `replace_ttl`, let it last that long from now."""
        held = self._due("extend")
        ttl = self._longer(0.0 if replace_ttl else await self._left(held), additional_time)
        return await self._renew("extend", held, ttl)

    async def reacquire(self) -> Literal[True]:
        """Reset the lease to a full `timeout`, counted from now."""
        held = self._due("reacquire")
        return await self._renew("reacquire", held, cast(float, self.timeout))

    @property
    def _client(self) -> AsyncClient:
        return self._clients.per_loop.here()

    async def _acquired(self, patience: float | None, token: bytes | None) -> AsyncLease | None:
        terms = self._terms()
        with self._in_redis_terms("acquire"):
            try:
                lease = await self._client.lock(terms.name, terms.ttl, terms.renew and token is None).acquire(patience)
            except LockTimeout:
                return None
            if token is not None:
                await self._rename(lease, token, terms.renew)
            return lease

    async def _rename(self, lease: AsyncLease, token: bytes, renew: bool) -> None:
        renaming = Renaming(lease, token)
        try:
            if not await self._eval(*renaming.command()):
                raise self._not_owned("acquire")
            renaming.done(renew)
            lease.ensure_held()
            if renew:
                await lease.extend()
        except BaseException:
            renaming.failed()
            raise

    async def _eval(self, *command: Any) -> Any:
        """In a task of its own: redis-py swallows some cancels, and drops its connection for others."""
        return await asyncio.shield(asyncio.ensure_future(self.redis.eval(*command)))

    async def _release(self, held: Held | None) -> None:
        if held is None:
            raise self._not_locked()
        if isinstance(held, Borrowed):
            return await self._release_by_token(held)
        lease = cast(AsyncLease, held)
        with self._in_redis_terms("release"):
            if asyncio.get_running_loop() is lease._runtime.loop:
                await lease.release()
            else:
                lease._release_soon()
        if lease.lost.is_set():  # inherited by a fork: it is the parent's
            raise self._not_owned("release")
        return None

    async def _release_by_token(self, held: Borrowed) -> None:
        try:
            with self._in_redis_terms("release"):
                reason = await self._client._free(self._terms().name, held.owner)
        except BaseException:
            self.local._keep(held)  # for another try
            raise
        if reason is not None:
            raise self._not_owned("release")

    async def _left(self, held: Held) -> float | None:
        with self._in_redis_terms("inspect"):
            return self._left_of(held, await self._client.inspect(self._terms().name))

    async def _renew(self, verb: str, held: Held, ttl: float) -> Literal[True]:
        with self._in_redis_terms(verb):
            if not isinstance(held, Borrowed):
                await cast(AsyncLease, held).extend(ttl)
            elif await self._client._renew(self._terms().name, held.owner, ttl) is not None:
                raise self._not_owned(verb)
        return True

    async def _leave(self, scope: Scope, kind: type[BaseException] | None) -> None:
        try:
            await self._release(self._take_what_was_entered(scope))
        except LockError as error:
            self._not_given_back(kind is not None, error)

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        return self._enter(scope_of_this_entry(self))

    async def _enter(self, scope: Scope) -> Self:
        lease = await self._acquired(self._patience(None, None), None)
        if lease is None:
            raise self._not_acquired()
        scope.lease = lease
        self.local._keep(lease, strongly=not scope.is_kept)
        return self

    @Exit
    async def __aexit__(scope: Scope, kind: type[BaseException] | None, *_: Any) -> None:
        await scope.lock._leave(scope, kind)
