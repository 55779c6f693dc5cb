"""What both colours of the lock have in common: redis-py's arguments and attributes, and what they mean here."""

from __future__ import annotations

import logging
import math
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

from redis.exceptions import DataError, LockError, LockNotOwnedError

from gripfast import LockInfo
from gripfast.compat.redis.book import Held, Local, ThreadLocal, is_shown_as
from gripfast.compat.redis.clients import Clients, clients_of
from gripfast.compat.redis.faults import InRedisTerms, not_owned
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

    def _not_acquired(self) -> LockError:
        return LockError("Unable to acquire lock within the time specified", lock_name=self.name)

    def _not_locked(self) -> LockError:
        return LockError("Cannot release a lock that's not owned or is already unlocked.", lock_name=self.name)

    def _not_owned(self, verb: str) -> LockNotOwnedError:
        return not_owned(verb, self.name)

    def _in_redis_terms(self, verb: str) -> InRedisTerms:
        return InRedisTerms(verb, self.name)

    def _left_of(self, held: Held, info: LockInfo | None) -> float | None:
        """Seconds that it is still the holder's, by what the server tells; None if it is not."""
        return info.expires_in if info is not None and is_shown_as(held.owner, info.owner) else None

    def _longer(self, left: float | None, additional_time: float) -> float:
        """The new ttl. A key that never expires is nobody's lease to extend."""
        if left is None or left == math.inf:
            raise self._not_owned("extend")
        return left + additional_time

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
