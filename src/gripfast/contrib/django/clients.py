"""`locks["default"]`: one client for each alias of the setting `GRIPFAST`, made when it is first used.

All threads share it, and a forked worker goes on with it, as clients do. It ends with the process.

In tests the setting changes, and so do databases: the test runner puts another name into `DATABASES`, drops that
database in the end, and copies it for parallel workers. A client of the old one must be gone by then, because a
database that has connections can be neither dropped nor copied. So a client is made anew if its address has changed,
and all clients of databases are closed when Django connects without a database, as it does to create, copy or drop one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from django.core.signals import setting_changed
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from gripfast.api.client import Client
from gripfast.contrib.django.conf import DEFAULT, SETTING, Entry, config_of, entries, entry
from gripfast.interrupts.guard import Guard

if TYPE_CHECKING:
    from gripfast.api.aio.lock import AsyncLock


class _Made(NamedTuple):
    address: tuple[object, ...]
    client: Client


class Clients:
    """By alias, as `django.core.cache.caches` has caches."""

    def __init__(self) -> None:
        self._making = Guard()
        self._entries: dict[str, Entry] = {}
        self._made: dict[str, _Made] = {}

    def __getitem__(self, alias: str) -> Client:
        """ImproperlyConfigured if there is no such entry, or it makes no sense. Does no I/O."""
        known = self._entries.get(alias) or self._entries.setdefault(alias, entry(alias))
        address, made = known.address, self._made.get(alias)
        if made is None or made.address != address:
            made = self._making.run(self._make, known, address)
        return made.client

    def __iter__(self) -> Iterator[str]:
        return iter(entries())

    def async_lock(self, alias: str, name: str, **settings: Any) -> AsyncLock:
        """Of the AsyncClient of the running event loop, in the same store."""
        return self[alias]._twin_lock(name, **settings)

    def close_all(self) -> None:
        """They are made anew when they are used again."""
        self._making.run(self._close, list(self._made))

    def close_those_in_databases(self) -> None:
        in_databases = [alias for alias in list(self._made) if self._entries[alias].database]
        if in_databases:
            self._making.run(self._close, in_databases)

    def forget_settings(self) -> None:
        self.close_all()
        self._entries.clear()

    def _make(self, known: Entry, address: tuple[object, ...]) -> _Made:
        made = self._made.get(known.alias)
        if made is None or made.address != address:
            self._close([known.alias])
            made = self._made[known.alias] = _Made(address, Client(config_of(known)))
        return made

    def _close(self, aliases: list[str]) -> None:
        for alias in aliases:
            made = self._made.pop(alias, None)
            if made is not None:
                made.client.close()


locks = Clients()
"""`locks["default"].lock("nightly")`."""


@receiver(setting_changed)
def _settings_changed(*, setting: str, **_: object) -> None:
    if setting in (SETTING, "DATABASES"):
        locks.forget_settings()


@receiver(connection_created)
def _connected(*, connection: Any, **_: object) -> None:
    if connection.alias == NO_DB_ALIAS:
        locks.close_those_in_databases()


__all__ = ["DEFAULT", "Clients", "locks"]
