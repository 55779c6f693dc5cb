"""What both colours of the lock have in common: redis-py's arguments and attributes, and what they mean here.

Requests are coroutines, as the recipes of `core` are: those of a blocking lock never suspend.
"""

from __future__ import annotations

import logging
import math
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, cast

from redis.exceptions import DataError, LockError, LockNotOwnedError

from gripfast import LockInfo
from gripfast.compat.redis.book import Borrowed, Held, Local, ThreadLocal, is_shown_as
from gripfast.compat.redis.clients import Clients, clients_of
from gripfast.compat.redis.faults import InRedisTerms, not_owned
from gripfast.compat.redis.tokens import Renaming
from gripfast.errors import LockTimeout
from gripfast.interrupts.scope import Scope

_log = logging.getLogger("gripfast.compat.redis")

TTL = 30.0
"""Of a lock without a timeout, which is renewed."""

L = TypeVar("L")


class Terms(NamedTuple):
    """What the lock asks of Gripfast, by its attributes as they are now: like redis-py's, they may be changed."""

    given: Any
    timeout: float | None
    name: str
    ttl: float
    renew: bool


class Shape(Generic[L]):
    _lease_type: ClassVar[type]
    _is_async: ClassVar[bool]

    @staticmethod
    def _who() -> object:
        """Who is calling: a thread, or a task."""
        raise NotImplementedError

    def __init__(
        self,
        redis: Any,
        name: Any,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        """As in redis-py, without I/O; `sleep` is not used. A name or timeout that can't be is a DataError here."""
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local = (ThreadLocal if self.thread_local else Local)(self._who)
        self._latest_terms: Terms | None = None
        if any(kind.__module__.startswith("redis.asyncio") for kind in type(redis).__mro__) is not self._is_async:
            raise DataError("Lock needs a redis.Redis, AsyncLock a redis.asyncio.Redis: use the other class or client")
        if any(kind.__name__ == "RedisCluster" for kind in type(redis).__mro__):
            raise DataError(f"a {type(redis).__name__} has no such lock: use gripfast.connect(client).lock(name)")
        with self._in_redis_terms("make"):
            self._clients: Clients = clients_of(redis)
            terms = self._terms()
            self._clients.blocking.lock(terms.name, terms.ttl)

    @property
    def lease(self) -> L | None:
        """Gripfast's lease, if the caller has one: `remaining()`, `lost`, `ensure_held()` and the rest."""
        held = self.local._held()
        return cast(L, held) if isinstance(held, self._lease_type) else None

    @property
    def fencing_token(self) -> int:
        """Larger than the tokens of all earlier holders, so the database you write to can reject a late writer."""
        lease: Any = self.lease
        if lease is None:
            raise LockError("Cannot read the fencing token of an unlocked lock: acquire it first", lock_name=self.name)
        token: int = lease.token
        return token

    def _terms(self) -> Terms:
        terms = self._latest_terms
        if terms is None or terms.given is not self.name or terms.timeout != self.timeout:
            terms = self._latest_terms = self._new_terms()
        return terms

    def _new_terms(self) -> Terms:
        key = self._encoded(self.name)
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise DataError(f"the name of a lock must be UTF-8: {key!r}") from None
        return Terms(self.name, self.timeout, name, self.timeout or TTL, not self.timeout)

    def _encoded(self, value: Any) -> bytes:
        """As the redis-py client of this lock would send it; its errors for what it would not."""
        encoded: bytes = bytes(self.redis.get_encoder().encode(value))
        return encoded

    def _token(self, token: Any) -> bytes | None:
        return None if token is None else self._encoded(token)

    def _patience(self, blocking: bool | None, blocking_timeout: float | None) -> float | None:
        """Seconds to wait; None for ever."""
        if blocking is None:
            blocking = self.blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        if not blocking:
            return 0.0
        return None if blocking_timeout is None else max(0.0, blocking_timeout)

    def _due(self, verb: str) -> Held:
        """What is to be extended or reacquired."""
        held = self.local._held()
        if held is None:
            raise LockError(f"Cannot {verb} an unlocked lock", lock_name=self.name)
        if not self.timeout:
            raise LockError(f"Cannot {verb} a lock with no timeout", lock_name=self.name)
        return held

    def _not_owned(self, verb: str) -> LockNotOwnedError:
        return not_owned(verb, self.name)

    def _in_redis_terms(self, verb: str) -> InRedisTerms:
        return InRedisTerms(verb, self.name)

    # -- requests ------------------------------------------------------------------------------------------------

    @property
    def _client(self) -> Any:
        raise NotImplementedError

    async def _got(self, result: Any) -> Any:
        return await result if self._is_async else result

    async def _eval(self, *command: Any) -> Any:
        return await self._got(self.redis.eval(*command))

    async def _acquired(self, patience: float | None, token: bytes | None) -> Any:
        """The lease; None if someone else holds the lock for longer than that."""
        terms = self._terms()
        with self._in_redis_terms("acquire"):
            lock = self._client.lock(terms.name, terms.ttl, renew=terms.renew and token is None)
            try:
                lease = await self._got(lock.acquire(patience))
            except LockTimeout:
                return None
            if token is not None:
                await self._rename(lease, token, terms.renew)
            return lease

    async def _rename(self, lease: Any, token: bytes, renew: bool) -> None:
        renaming = Renaming(lease, token)
        try:
            if not await self._eval(*renaming.command()):
                raise self._not_owned("acquire")
            renaming.done(renew)
            lease.ensure_held()
            if renew:
                await self._got(lease.extend())
        except BaseException:
            renaming.failed()
            raise

    async def _release(self, held: Held | None) -> None:
        if held is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.", lock_name=self.name)
        if isinstance(held, Borrowed):
            await self._release_by_token(held)
            return
        with self._in_redis_terms("release"):
            await self._let_go(held)
        if held.lost.is_set():  # inherited by a fork: it is the parent's
            raise self._not_owned("release")

    async def _let_go(self, lease: Any) -> None:
        lease.release()

    async def _release_by_token(self, held: Borrowed) -> None:
        try:
            with self._in_redis_terms("release"):
                reason = await self._client._free(self._terms().name, held.owner)
        except BaseException:
            self.local._keep(held)  # for another try
            raise
        if reason is not None:
            raise self._not_owned("release")

    async def _inspected(self) -> LockInfo | None:
        with self._in_redis_terms("inspect"):
            info: LockInfo | None = await self._got(self._client.inspect(self._terms().name))
            return info

    async def _left(self, held: Held) -> float | None:
        """Seconds that it is still the holder's, by what the server tells; None if it is not."""
        info = await self._inspected()
        return info.expires_in if info is not None and is_shown_as(held.owner, info.owner) else None

    async def _is_owned(self) -> bool:
        held = self.local._held()
        return held is not None and await self._left(held) is not None and (isinstance(held, Borrowed) or held.held)

    async def _extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """A key that never expires is nobody's lease to extend."""
        held = self._due("extend")
        left = 0.0 if replace_ttl else await self._left(held)
        if left is None or left == math.inf:
            raise self._not_owned("extend")
        return await self._renew("extend", held, left + additional_time)

    async def _reacquire(self) -> Literal[True]:
        held = self._due("reacquire")
        return await self._renew("reacquire", held, cast(float, self.timeout))

    async def _renew(self, verb: str, held: Held, ttl: float) -> Literal[True]:
        with self._in_redis_terms(verb):
            if not isinstance(held, Borrowed):
                await self._got(held.extend(ttl))
            elif await self._client._renew(self._terms().name, held.owner, ttl) is not None:
                raise self._not_owned(verb)
        return True

    # -- blocks --------------------------------------------------------------------------------------------------

    async def _enter(self, scope: Scope) -> Self:
        lease = await self._acquired(self._patience(None, None), None)
        if lease is None:
            raise LockError("Unable to acquire lock within the time specified", lock_name=self.name)
        scope.lease = lease
        if scope.is_kept:
            lease._enter_block()
        self.local._keep(lease, strongly=not scope.is_kept)
        return self

    async def _leave(self, scope: Scope, kind: type[BaseException] | None) -> None:
        try:
            await self._release(self._take_what_was_entered(scope))
        except LockError as error:
            self._not_given_back(kind is not None, error)

    def _take_what_was_entered(self, scope: Scope) -> Held | None:
        """What the block was entered with, or what was acquired in its place since."""
        lease = scope.take()
        return lease if lease is not None and self.local._take_this(lease) else self.local._take()

    def _not_given_back(self, is_failing: bool, error: LockError) -> None:
        """At the end of a block, which may be failing by itself: that is what must come out then."""
        if self.raise_on_release_error and not is_failing:
            raise error
        _log.warning(
            "lock %r was released or lost before the end of its block: others may have held it meanwhile", self.name
        )

    def __repr__(self) -> str:
        return f"<gripfast.compat.redis.{type(self).__name__} {self.name!r} on {self._clients.blocking.where}>"
