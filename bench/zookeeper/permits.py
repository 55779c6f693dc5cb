"""Semaphores and read/write locks on ZooKeeper, free ones: kazoo's, and Gripfast's where its store has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench import permits
from bench.locks import Lock, Make
from bench.permits import LIMIT, can
from bench.redis.pair import peer
from bench.scenario import Scenario
from bench.timing import MICROSECONDS
from bench.zookeeper.limit import kazoo_client
from bench.zookeeper.pair import PAIRS
from bench.zookeeper.peers import KAZOO, NEEDS
from bench.zookeeper.server import hasty_server

ANYWHERE = "zookeeper://127.0.0.1"
"""Nobody connects to it: it is only asked what the store can do."""


@contextmanager
def kazoo_semaphores(url: str) -> Iterator[Callable[[str], Lock]]:
    with kazoo_client(url) as client:
        yield lambda name: client.Semaphore(f"/kazoo-semaphore/{name}", max_leases=LIMIT)


@contextmanager
def kazoo_readers(url: str) -> Iterator[Callable[[str], Lock]]:
    with kazoo_client(url) as client:
        yield lambda name: client.ReadLock(f"/kazoo-rw/{name}")


@contextmanager
def kazoo_writers(url: str) -> Iterator[Callable[[str], Lock]]:
    with kazoo_client(url) as client:
        yield lambda name: client.WriteLock(f"/kazoo-rw/{name}")


LOCK = permits.lock(*NEEDS)
KAZOO_SEMAPHORE = Make("kazoo Semaphore", kazoo_semaphores, NEEDS)
KAZOO_READ = Make("kazoo ReadLock", kazoo_readers, NEEDS)
KAZOO_WRITE = Make("kazoo WriteLock", kazoo_writers, NEEDS)


def semaphore_makes(url: str = ANYWHERE) -> tuple[Make, ...]:
    own = (permits.semaphore(*NEEDS),) if can(url, "semaphores") else ()
    return LOCK, *own, KAZOO, KAZOO_SEMAPHORE


def rwlock_makes(url: str = ANYWHERE) -> tuple[Make, ...]:
    own = (permits.read_lock(*NEEDS), permits.write_lock(*NEEDS)) if can(url, "rwlocks") else ()
    return LOCK, *own, KAZOO, KAZOO_READ, KAZOO_WRITE


ZOOKEEPER_SEMAPHORE = Scenario(
    name="zookeeper semaphore pair",
    about=f"one of {LIMIT} permits on ZooKeeper, acquired and released, beside a lock and kazoo's own",
    contestants=tuple(peer(make, PAIRS) for make in semaphore_makes()),
    figure=MICROSECONDS,
    against=LOCK.name,
    server=hasty_server,
)

ZOOKEEPER_RWLOCK = Scenario(
    name="zookeeper read/write pair",
    about="a free read/write lock on ZooKeeper, acquired and released, beside a lock and kazoo's own",
    contestants=tuple(peer(make, PAIRS) for make in rwlock_makes()),
    figure=MICROSECONDS,
    against=LOCK.name,
    server=hasty_server,
)
