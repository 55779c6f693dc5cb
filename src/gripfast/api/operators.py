"""What a client offers to operators: who holds what, and how to end it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, overload

from gripfast.api import keeping
from gripfast.api.base import AnyClient, forced, reached, was_forced
from gripfast.api.misuse import exact, unknown_option
from gripfast.core import rules
from gripfast.core.ports import Kind, LockInfo, PermitInfo, Prepared, permits_of
from gripfast.errors import ConfigurationError
from gripfast.runtime.blocking import drive

if TYPE_CHECKING:
    from typing import Unpack

    from gripfast.api.typed import NothingElse


class Operators(AnyClient):
    """For threads; `api/aio/client.py` has the same for tasks."""

    @overload
    def inspect(self, name: str, kind: Literal["lock"] = "lock") -> LockInfo | None: ...

    @overload
    def inspect(self, name: str, kind: Literal["semaphore", "rwlock"]) -> PermitInfo | None: ...

    def inspect(self, name: str, kind: Literal["lock", "semaphore", "rwlock"] = "lock") -> LockInfo | PermitInfo | None:
        """Who holds the lock, or None. With `kind`: who holds permits of the semaphore or read/write lock, or None."""
        if kind != "lock":
            found = reached(drive(permits_of(self._store()).inspect_permits(self._key(name), self._check_kind(kind))))
            return found and self._shown_permits(found)
        info = reached(drive(self._store().inspect(self._key(name))))
        return info and self._shown(info)

    @overload
    def list(self, prefix: str = "", kind: Literal["lock"] = "lock") -> Iterator[LockInfo]: ...

    @overload
    def list(self, prefix: str = "", *, kind: Literal["semaphore", "rwlock"]) -> Iterator[PermitInfo]: ...

    def list(
        self, prefix: str = "", kind: Literal["lock", "semaphore", "rwlock"] = "lock"
    ) -> Iterator[LockInfo] | Iterator[PermitInfo]:
        """Iterate over the held locks, ordered by name; they are read page by page. On Redis and Redlock the order is
        arbitrary, and a lock may occur twice. The list includes names that nobody holds, but that are kept
        (`info.kept`): what was done `once()`, and the rest of a `min_hold`. With `kind`, iterate over the semaphores
        or read/write locks that somebody holds. One call lists one kind."""
        return self._list_locks(prefix) if kind == "lock" else self._list_permits(prefix, self._check_kind(kind))

    def _list_locks(self, prefix: str) -> Iterator[LockInfo]:
        prefix, after = self._config.prefix + rules.checked_prefix(prefix), None
        while True:
            page = reached(drive(self._store().page(prefix, after)))
            yield from map(self._shown, page.infos)
            if (after := page.after) is None:
                return

    def _list_permits(self, prefix: str, kind: Kind) -> Iterator[PermitInfo]:
        prefix, after = self._config.prefix + rules.checked_prefix(prefix), None
        while True:
            page = reached(drive(permits_of(self._store()).page_permits(kind, prefix, after)))
            yield from map(self._shown_permits, page.infos)
            if (after := page.after) is None:
                return

    @exact
    def force_release(
        self,
        name: str,
        reason: str | None = None,
        *,
        kind: Literal["lock", "semaphore", "rwlock"] = "lock",
        owner: str | None = None,
        slot: int | None = None,
        **wrong: Unpack[NothingElse],
    ) -> bool:
        """For operators: release the lock, whoever holds it. True if someone held it. The next holder's token is still
        larger than all earlier ones. It ends a `min_hold`, too. What `once()` has recorded as done stays: see
        `forget()`.

        `reason` says why, in at most 1024 UTF-8 bytes. The old holder's `LeaseLost` shows it, and has it as `note`, if
        the store can pass it on (`capabilities.tells_reason`).

        With `kind`, release the permits of a semaphore or read/write lock: those of the holder with this `owner` id, or
        with this `slot`, or else those of all holders.
        """
        if wrong:
            raise unknown_option(Operators.force_release, wrong)
        key, note = self._key(name), rules.checked_reason(reason)
        if kind != "lock" or owner is not None or slot is not None:
            return was_forced(name, note, reached(drive(self._forced_permits(key, kind, owner, slot, note))))
        was_held = reached(drive(forced(self._store(), key, note)))
        return was_forced(name, note, was_held, not was_held and drive(keeping.done(self, key)) is not None)

    def _prepare(self, max_ttl: float | None, ends_grace: bool = True) -> Prepared:
        """For `gripfast init`."""
        prepare = getattr(self._store(), "prepare", None)
        if prepare is None:
            raise ConfigurationError("this store needs no `gripfast init`: use it as it is")
        largest = None if max_ttl is None else rules.checked_max_ttl(max_ttl)
        done: Prepared = reached(drive(prepare(largest, ends_grace)))
        return done

    def forget(self, name: str) -> bool:
        """Forget what `once()` has recorded as done, so that it can be done again. True if it was recorded."""
        return drive(keeping.forget(self, self._key(name)))
