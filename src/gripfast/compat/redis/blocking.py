"""The lock for threads, in the shape of redis.lock.Lock."""

from __future__ import annotations

from typing import Any, Literal, Self, cast

from redis.exceptions import LockError

from gripfast.api.client import Client
from gripfast.api.lease import Lease
from gripfast.compat.redis.book import Borrowed, Held, this_thread
from gripfast.compat.redis.shape import Shape
from gripfast.compat.redis.tokens import Renaming
from gripfast.errors import LockTimeout
from gripfast.interrupts.scope import Exit, Scope, scope_of_this_entry


class Lock(Shape[Lease]):
    """Like redis.lock.Lock. Not re-entrant. Threads may share one object."""

    _who = staticmethod(this_thread)
    _lease_type = Lease
    _is_async = False

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Return True as soon as the caller has the lock. If someone else holds it, return False: at once with
        `blocking=False`, otherwise after `blocking_timeout` seconds. If one of these is None, the constructor's value
        counts; if that `blocking_timeout` is None as well, wait for ever.

        `token` becomes the value of the lock's key. Use a new one each time, or none: then Gripfast makes one.
        `sleep` is ignored.
        """
        lease = self._acquired(self._patience(blocking, blocking_timeout), self._token(token))
        if lease is None:
            return False
        holdings, hold = self.local._room_for(lease)
        holdings[hold] = None  # last, and no call: see `holdings`
        return True

    def release(self) -> None:
        """Release the lock. Raises LockError if nothing is held, and LockNotOwnedError if the lock was lost."""
        self._release(self.local._take())

    def locked(self) -> bool:
        """Whether anyone holds the lock."""
        with self._in_redis_terms("inspect"):
            return self._client.inspect(self._terms().name) is not None

    def owned(self) -> bool:
        """Whether the caller holds the lock, according to the server and to the clock of this process."""
        held = self.local._held()
        return held is not None and self._left(held) is not None and (isinstance(held, Borrowed) or held.held)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add `additional_time` seconds to the lease; with `replace_ttl`, let it last that long from now."""
        held = self._due("extend")
        ttl = self._longer(0.0 if replace_ttl else self._left(held), additional_time)
        return self._renew("extend", held, ttl)

    def reacquire(self) -> Literal[True]:
        """Reset the lease to a full `timeout`, counted from now."""
        held = self._due("reacquire")
        return self._renew("reacquire", held, cast(float, self.timeout))

    @property
    def _client(self) -> Client:
        return self._clients.blocking

    def _acquired(self, patience: float | None, token: bytes | None) -> Lease | None:
        terms = self._terms()
        with self._in_redis_terms("acquire"):
            try:
                lease = self._client.lock(terms.name, terms.ttl, terms.renew and token is None).acquire(patience)
            except LockTimeout:
                return None
            if token is not None:
                self._rename(lease, token, terms.renew)
            return lease

    def _rename(self, lease: Lease, token: bytes, renew: bool) -> None:
        renaming = Renaming(lease, token)
        try:
            if not self.redis.eval(*renaming.command()):
                raise self._not_owned("acquire")
            renaming.done(renew)
            lease.ensure_held()
            if renew:
                lease.extend()
        except BaseException:
            renaming.failed()
            raise

    def _release(self, held: Held | None) -> None:
        if held is None:
            raise self._not_locked()
        if isinstance(held, Borrowed):
            return self._release_by_token(held)
        lease = cast(Lease, held)
        with self._in_redis_terms("release"):
            lease.release()
        if lease.lost.is_set():  # inherited by a fork: it is the parent's
            raise self._not_owned("release")
        return None

    def _release_by_token(self, held: Borrowed) -> None:
        try:
            with self._in_redis_terms("release"):
                reason = self._client._free(self._terms().name, held.owner)
        except BaseException:
            self.local._keep(held)  # for another try
            raise
        if reason is not None:
            raise self._not_owned("release")

    def _left(self, held: Held) -> float | None:
        with self._in_redis_terms("inspect"):
            return self._left_of(held, self._client.inspect(self._terms().name))

    def _renew(self, verb: str, held: Held, ttl: float) -> Literal[True]:
        with self._in_redis_terms(verb):
            if not isinstance(held, Borrowed):
                cast(Lease, held).extend(ttl)
            elif self._client._renew(self._terms().name, held.owner, ttl) is not None:
                raise self._not_owned(verb)
        return True

    def _leave(self, scope: Scope, kind: type[BaseException] | None) -> None:
        try:
            self._release(self._take_what_was_entered(scope))
        except LockError as error:
            self._not_given_back(kind is not None, error)

    def __enter__(self) -> Self:
        scope = scope_of_this_entry(self)
        lease = self._acquired(self._patience(None, None), None)
        if lease is None:
            raise self._not_acquired()
        scope.lease = lease
        self.local._keep(lease, strongly=not scope.is_kept)
        return self

    @Exit
    def __exit__(scope: Scope, kind: type[BaseException] | None, *_: Any) -> None:
        scope.lock._leave(scope, kind)
