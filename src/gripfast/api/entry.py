"""How a program begins: `connect()`, or no client at all with `gripfast.lock()`. For tasks: `api/aio/entry.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gripfast.api.client import Client
from gripfast.api.config import configure
from gripfast.api.default import default_client
from gripfast.api.lock import Lock
from gripfast.api.misuse import more_than_a_name

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.lease import Lease
    from gripfast.api.typed import LockKwargs


def connect(target: object = None, **options: Any) -> Client:
    """Return a client for threads. Does no I/O.

    `target` is a URL, or a client object that you already have: a redis.Redis, a SQLAlchemy Engine or a KazooClient. A
    list of Redis targets makes one Redlock. Without a target, Gripfast uses $GRIPFAST_URL, or a file in your home
    directory.

    `observers` is a list of objects that get the events of the locks of this client: see `Observer`.
    """
    return Client(configure(target, options))


def lock(name: str, *more: Never, **settings: Unpack[LockKwargs[Lease]]) -> Lock:
    """A lock of the default client: `with gripfast.lock("nightly"): …`. `gripfast.configure()` says where locks are.

    `settings` are keywords, those of `Client.lock`: ttl, renew, max_hold, reentrant, label, on_lost, group, wait,
    min_hold, lazy_release. `help(gripfast.Client.lock)` says what they mean.
    """
    if more:
        raise more_than_a_name("lock", more)
    return default_client().lock(name, **settings)
