"""One Gripfast client per connection pool, shared by all locks on it.

It is made from the pool's settings and does not know the pool, which would otherwise never go. With the pool goes this
book's entry, and with the last lock or lease the client, which then closes itself.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from gripfast.api.aio.client import AsyncClient
from gripfast.api.client import Client
from gripfast.api.config import configure
from gripfast.api.loops import ClientPerLoop
from gripfast.interrupts.guard import Guard


class Clients(NamedTuple):
    blocking: Client
    per_loop: ClientPerLoop


def clients_of(redis: Any) -> Clients:
    """Those of the pool of a redis-py client, of either colour. No I/O."""
    pool = getattr(redis, "connection_pool", redis)
    found = _clients.get(pool)
    return found if found is not None else _making.run(_find_or_make, pool, redis)


def _find_or_make(pool: Any, redis: Any) -> Clients:
    found = _clients.get(pool)
    if found is None:
        config = configure(redis, {"prefix": "", **_request_timeout(pool)})
        found = _clients[pool] = Clients(Client(config), ClientPerLoop(lambda: AsyncClient(config)))
    return found


def _request_timeout(pool: Any) -> dict[str, float]:
    """Whoever set a time-out for the server's answers wants to hear of its silence by then."""
    timeout = getattr(pool, "connection_kwargs", {}).get("socket_timeout")
    return {"request_timeout": timeout} if timeout else {}


_clients: weakref.WeakKeyDictionary[Any, Clients] = weakref.WeakKeyDictionary()
_making = Guard()
