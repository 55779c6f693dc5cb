"""How a program begins: `connect()`, or no client at all with `gripfast.lock()`. For tasks: `api/aio/entry.py`."""

from __future__ import annotations

from typing import Any

from gripfast.api.client import Client
from gripfast.api.config import configure
from gripfast.api.lock import Lock
from gripfast.interrupts.guard import Guard


def connect(target: object = None, **options: Any) -> Client:
    """A client for threads. `target` is a URL, or an engine's client that you already have, such as a redis.Redis. A
    list of targets is Redlock on those servers. Without a target it is $GRIPFAST_URL, or else the embedded store.
    Does no I/O."""
    return Client(configure(target, options))


def lock(name: str, **settings: Any) -> Lock:
    """A lock of the default client: `with gripfast.lock("nightly"): …`."""
    return _making.run(_default_client).lock(name, **settings)


_making = Guard()
_default: list[Client] = []


def _default_client() -> Client:
    if not _default:
        _default.append(connect())
    return _default[0]
