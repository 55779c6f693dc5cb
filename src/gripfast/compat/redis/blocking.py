"""The lock for threads, in the shape of redis.lock.Lock."""

from __future__ import annotations

from typing import Any, Literal, Self

from gripfast.api.client import Client
from gripfast.api.lease import Lease
from gripfast.compat.redis.book import this_thread
from gripfast.compat.redis.shape import Shape
from gripfast.interrupts.scope import Exit, Scope, scope_of_this_entry

drive = Client._drive


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
        lease = drive(self._acquired(self._patience(blocking, blocking_timeout), self._token(token)))
        if lease is None:
            return False
        holdings, hold = self.local._room_for(lease)
        holdings[hold] = None  # last, and no call: see `holdings`
        return True

    def release(self) -> None:
        """Release the lock. Raises LockError if nothing is held, and LockNotOwnedError if the lock was lost."""
        drive(self._release(self.local._take()))

    def locked(self) -> bool:
        """Whether anyone holds the lock."""
        return drive(self._inspected()) is not None

    def owned(self) -> bool:
        """Whether the caller holds the lock, according to the server and to the clock of this process."""
        return drive(self._is_owned())

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add `additional_time` seconds to the lease; with `replace_ttl`, let it last that long from now."""
        return drive(self._extend(additional_time, replace_ttl))

    def reacquire(self) -> Literal[True]:
        """Reset the lease to a full `timeout`, counted from now."""
        return drive(self._reacquire())

    @property
    def _client(self) -> Client:
        return self._clients.blocking

    def __enter__(self) -> Self:
        return drive(self._enter(scope_of_this_entry(self)))

    @Exit
    def __exit__(scope: Scope, kind: type[BaseException] | None, *_: Any) -> None:
        drive(scope.lock._leave(scope, kind))
