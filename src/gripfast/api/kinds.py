"""What clients of both colours do for semaphores and read/write locks: settings, and who holds what."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from gripfast.core import rules
from gripfast.core.ports import (
    RW_LIMIT,
    Capabilities,
    Kind,
    PermitInfo,
    PermitStore,
    Share,
    Store,
    Unreachable,
    permits_of,
    to_raise,
)
from gripfast.runtime.blocking import drive

if TYPE_CHECKING:
    from gripfast.api.client import Client
    from gripfast.api.config import Config
    from gripfast.api.settings import LockSettings


class Kinds:
    """A base of clients."""

    if TYPE_CHECKING:
        _config: Config

        @property
        def capabilities(self) -> Capabilities: ...

        @property
        def where(self) -> str: ...

        def _settings(self, name: str, ttl: float | None, **others: Any) -> LockSettings: ...

        def _store(self) -> Store: ...

    def _settings_of_semaphore(self, name: str, limit: int, ttl: float | None, **others: Any) -> LockSettings:
        self._check_kind("semaphore")
        share = Share("semaphore", 1, rules.checked_limit(limit))
        return self._settings(name, ttl, reentrant=False, share=share, **others)

    def _settings_of_rwlock(self, name: str, ttl: float | None, **others: Any) -> tuple[LockSettings, LockSettings]:
        """To read, and to write."""
        self._check_kind("rwlock")
        shares = [Share("rwlock", n, RW_LIMIT) for n in (1, RW_LIMIT)]
        read, write = [self._settings(name, ttl, reentrant=False, share=share, **others) for share in shares]
        return read, write

    def _check_kind(self, kind: Kind) -> None:
        from gripfast.api.permits import check_kind

        check_kind(kind, self.capabilities, self.where)

    def _permits(self, kind: Kind) -> PermitStore:
        self._check_kind(kind)
        return permits_of(self._store())

    def _forced_permits(
        self,
        key: str,
        kind: Literal["lock", "semaphore", "rwlock"],
        owner: str | None,
        slot: int | None,
        note: str | None,
    ) -> Coroutine[Any, Any, bool | Unreachable]:
        from gripfast.api.permits import check_whom

        check_whom(kind, owner, slot)
        assert kind != "lock"
        told = note if self.capabilities.tells_reason else None
        return self._permits(kind).force_release_permits(key, kind, owner, slot, told)

    def _shown_permits(self, info: PermitInfo) -> PermitInfo:
        return replace(info, name=info.name.removeprefix(self._config.prefix))


def list_permits(client: Client, kind: Kind, prefix: str) -> Iterator[PermitInfo]:
    prefix, after = client._config.prefix + rules.checked_prefix(prefix), None
    while True:
        page = drive(client._permits(kind).page_permits(kind, prefix, after))
        if isinstance(page, Unreachable):
            raise to_raise(page.error)
        yield from map(client._shown_permits, page.infos)
        if (after := page.after) is None:
            return
