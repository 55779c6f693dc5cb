"""From a dialect and options to stores, sync and async; no I/O."""

from __future__ import annotations

from typing import Any

from gripfast.core.ports import Store
from gripfast.errors import ConfigurationError
from gripfast.stores import AioStores, StoreFactory
from gripfast.stores.sql import sessions, store
from gripfast.stores.sql.aio import AioLink
from gripfast.stores.sql.blocking import BlockingLink
from gripfast.stores.sql.ports import Dialect

SESSIONS_MOST = 100
"""Connections of a client whose locks live in sessions, unless it says otherwise."""


class SqlFactory(StoreFactory):
    def __init__(self, dialect: Dialect, options: dict[str, Any]) -> None:
        """Takes the options it knows out of `options`."""
        self.where = dialect.where
        self.dialect = dialect
        self.mode = dialect.mode = options.pop("mode", "lease")
        self.most = _checked_most(options.pop("max_connections", SESSIONS_MOST))
        leases = store.capabilities(dialect.pushes)
        self.capabilities = leases if self.mode == "lease" else sessions.capabilities(dialect, self.mode)

    def blocking(self, request_timeout: float) -> Store:
        link = BlockingLink(self.dialect, request_timeout, self.most)
        if self.mode == "lease":
            return store.LeaseStore(link)
        return sessions.SessionStore(link, self.mode)

    def aio(self, request_timeout: float) -> AioStores:
        link = AioLink(self.dialect, request_timeout, self.most)
        twin = BlockingLink(self.dialect, request_timeout, self.most, link.queues, link.claims, link.end)
        if self.mode == "lease":
            return AioStores(store.LeaseStore(link), store.LeaseStore(twin))
        main = sessions.SessionStore(link, self.mode)
        return AioStores(main, sessions.SessionStore(twin, self.mode, main.sessions))


def _checked_most(most: object) -> int:
    try:
        count = int(most)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        count = 0
    if count < 1:
        raise ConfigurationError(f"max_connections must be a number of at least 1, not {most!r}")
    return int(count)
