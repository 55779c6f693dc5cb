"""Other libraries' locks on etcd, each as its documentation shows it, with the lease that Gripfast has.

    etcd3gw   over etcd's JSON gateway. Its `with` does not wait, and enters without the lock if that is taken.
    tooz      over etcd3gw; it waits, and tries again in steps
    aetcd     over grpcio, for asyncio

Each takes a lease of its own for every lock, which it leaves behind, and then writes the key. None renews by itself.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

from bench.etcd.limit import TTL
from bench.etcd.server import address
from bench.locks import Lock, Make, gripfast_locks
from bench.redis import aio
from bench.redis.aio import AsyncMake, LockOf

NEEDS = ("hpack",)


def gateway(url: str) -> Any:
    """A client of etcd3gw's. It knows the path, so it need not ask for that."""
    host, port = address(url)
    return importlib.import_module("etcd3gw").client(host=host, port=port, api_path="/v3/")


@contextmanager
def etcd3gw(url: str) -> Iterator[Callable[[str], Lock]]:
    client = gateway(url)
    yield lambda name: client.lock(f"etcd3gw:{name}", ttl=TTL)
    client.session.close()


@contextmanager
def etcd3gw_of_its_own(url: str) -> Iterator[Callable[[str], AbstractContextManager[object]]]:
    """Each lock has a connection, which a thread needs not share."""
    clients: list[Any] = []

    def lock(name: str) -> AbstractContextManager[object]:
        clients.append(gateway(url))
        return clients[-1].lock(f"etcd3gw:{name}", ttl=TTL)  # type: ignore[no-any-return]

    yield lock
    for client in clients:
        client.session.close()


@contextmanager
def tooz(url: str) -> Iterator[Callable[[str], Lock]]:
    coordination = importlib.import_module("tooz.coordination")
    where = "etcd3+http://{}:{}?api_version=v3&lock_timeout={}".format(*address(url), TTL)
    coordinator = coordination.get_coordinator(where, b"bench")
    coordinator.start()
    try:
        yield lambda name: coordinator.get_lock(f"tooz:{name}".encode())
    finally:
        coordinator.stop()


@asynccontextmanager
async def aetcd(url: str) -> AsyncIterator[LockOf]:
    host, port = address(url)
    async with importlib.import_module("aetcd").Client(host=host, port=port) as client:
        yield lambda name: client.lock(f"aetcd:{name}".encode(), ttl=TTL)


GRIPFAST = Make("gripfast", gripfast_locks, NEEDS)
GRIPFAST_ASYNC = AsyncMake("gripfast", aio.gripfast_locks, NEEDS)
ETCD3GW = Make("etcd3gw Lock", etcd3gw, ("etcd3gw",))
TOOZ = Make("tooz", tooz, ("tooz", "etcd3gw"))
AETCD = AsyncMake("aetcd Lock", aetcd, ("aetcd",))
