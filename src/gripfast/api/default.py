"""The default client: that of `gripfast.lock()` and `gripfast.async_lock()`, with one configuration.

It is made when it is first used. `configure()` puts another one in its place and closes nothing: locks and leases of
the former client keep it alive, so its leases are renewed until they are released. When nobody has any of them, it ends
by itself, as every client does that is dropped.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from gripfast.api import config
from gripfast.api.client import Client
from gripfast.interrupts.guard import Guard

_log = logging.getLogger("gripfast.default")


def configure(target: object = None, **options: Any) -> None:
    """Say where the locks of `gripfast.lock()` and `gripfast.async_lock()` are. Takes what `connect()` takes, and does
    no I/O. Call it when the program starts.

    Without arguments, go back to the default: $GRIPFAST_URL is read again when the next lock is made.

    Locks that were made before, and their leases, stay where they are, and go on working.
    """
    _current[:] = [_Default() if target is None and not options else _Default(target, options)]


class _Default:
    def __init__(self, target: object = None, options: dict[str, Any] | None = None) -> None:
        self._url = _url_of_environment()
        self._ignores_url = [None] if target is None else []
        """Until the change of the variable is told; popped by the one who tells it."""
        self._client = None if options is None else Client(config.configure(target, options))

    def client(self) -> Client:
        client = self._client
        if client is None:
            return _making.run(self._make)
        if self._ignores_url and _url_of_environment() != self._url:
            self._tell(client)
        return client

    def _make(self) -> Client:
        if self._client is None:
            self._url = _url_of_environment()
            self._client = Client(config.configure(None, {}))
        return self._client

    def _tell(self, client: Client) -> None:
        try:
            self._ignores_url.pop()
        except IndexError:
            return
        _log.warning(
            "GRIPFAST_URL has changed, but the default client was made before: its locks are still in %s. "
            "To use the new URL for new locks, call gripfast.configure()",
            client.where,
        )


def _url_of_environment() -> str | None:
    return os.environ.get("GRIPFAST_URL") or None


def default_client() -> Client:
    return _current[0].client()


def client_so_far() -> Client | None:
    """For tests: it is not made for them."""
    return _current[0]._client


_making = Guard()
_current = [_Default()]
"""One, replaced in one step."""
