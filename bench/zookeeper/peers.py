"""kazoo's own lock, as its documentation shows it. It has no deadline and no token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.locks import Lock, Make, gripfast_locks
from bench.zookeeper.limit import kazoo_client

NEEDS = ("kazoo",)


@contextmanager
def kazoo_locks(url: str) -> Iterator[Callable[[str], Lock]]:
    with kazoo_client(url) as client:
        yield lambda name: client.Lock(f"/kazoo/{name}")


GRIPFAST = Make("gripfast", gripfast_locks, NEEDS)
KAZOO = Make("kazoo Lock", kazoo_locks, NEEDS)
