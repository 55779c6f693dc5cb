"""What every sweep of Gripfast needs: two independent clients on one store, and the question "is all well again?".

The first client is the one whose scenario is broken; the second holds the lock where a scenario needs that, and
afterwards asks for it with a second of patience. Leases live for 30 s here, so only a real clean-up frees them in time.
Every run uses a name of its own: what one run leaks can't be blamed on the next.
"""

import contextlib
import gc
import itertools
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import gripfast
from gripfast.testing.waiters import was_waited_for, watch_for_waiters
from support.cluster_servers import shared_cluster
from support.etcd_servers import etcd_server
from support.redis_server import GraceServer, RedisServer, ReplicatedServer, shared_server
from support.redlock_nodes import NODE_TIMEOUT, redlock_url, shared_nodes
from support.sentinel_servers import shared_watched
from support.sql_servers import mariadb_server, postgres_server
from support.stores import shared_trio
from support.waiting import until
from support.zookeeper_servers import zookeeper_server

TARGET = os.path.dirname(os.path.abspath(gripfast.__file__)) + os.sep
SQL = [f"{engine}-{mode}" for engine in ("postgres", "mysql") for mode in ("lease", "row", "advisory")]
LEVELS = ("redis-grace", "redis-replicas", "sentinel-replicas", "cluster-replicas")
"""Redis with a grace, and with acknowledgements of replicas besides."""
STORES = (
    "memory",
    "sqlite",
    "redis",
    "sentinel",
    "redlock",
    "cluster",
    *LEVELS,
    "zookeeper",
    "etcd",
    "etcd-trio",
    *SQL,
)
REPLICAS = {"sentinel": 2, "cluster": 1}
"""That each primary has."""
PATIENCE = 1.0
"""Seconds after which the lock must be free again."""

_names = itertools.count(1)


def url_of(store: str, folder: Path) -> str:
    unique = uuid.uuid4().hex
    if store.startswith(("sentinel-", "cluster-")):
        engine, _ = store.split("-")
        return f"{url_of(engine, folder)}&replicas={REPLICAS[engine]}"
    if store in SQL:
        engine, mode = store.split("-")
        return {"postgres": postgres_server, "mysql": mariadb_server}[engine]().lock_space(mode=mode)
    urls = {
        "memory": lambda: f"memory://sweep-{unique}",
        "sqlite": lambda: f"sqlite:///{folder / 'sweep.db'}",
        "redis": lambda: _redis(unique, RedisServer),
        "redis-grace": lambda: _redis(unique, GraceServer),
        "redis-replicas": lambda: _redis(unique, ReplicatedServer),
        "sentinel": lambda: shared_watched().url_with(prefix=f"sweep-{unique}:", max_ttl="1d"),
        "redlock": lambda: redlock_url(shared_nodes(), prefix=f"sweep-{unique}:", request_timeout=NODE_TIMEOUT),
        "cluster": lambda: shared_cluster().url(prefix=f"{{sweep-{unique}}}:"),  # one slot: its node is connected to
        "zookeeper": lambda: zookeeper_server().lock_space(),
        "etcd": lambda: etcd_server().lock_space(),
        "etcd-trio": lambda: shared_trio().lock_space(),
    }
    return urls[store]()


def _redis(unique: str, kind: type[RedisServer]) -> str:
    server = shared_server(kind)
    return server.url_with(prefix=f"sweep-{unique}:", **server.level)


def ledger_size(client: "gripfast.Client | gripfast.AsyncClient") -> int:
    """Owner ids that the client thinks may still have something at the engine."""
    return len(client._runtime.env.ledger) if client._runtime else 0


def new_name() -> str:
    return f"run-{next(_names)}"


class World:
    """Two clients and the name of the current run."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.first = gripfast.connect(url)
        self.second = gripfast.connect(url)
        self.name = "warm-up"
        self._afterwards: list[Callable[[], object]] = []
        self._threads: set[threading.Thread] = set()
        self.start_all_threads()

    def start_all_threads(self) -> None:
        """Those for waiting, too: any thread that comes up later belongs to a broken run."""
        watch_for_waiters(self.first)
        for one, other in ((self.first, self.second), (self.second, self.first)):
            with one.lock(self.name), contextlib.suppress(gripfast.LockTimeout):
                other.lock(self.name).acquire(wait=0.001)

    def new_run(self) -> "World":
        self.name = new_name()
        self._threads = set(threading.enumerate())
        return self

    def lock(self, **settings: object) -> gripfast.Lock:
        return self.first.lock(self.name, **settings)  # type: ignore[arg-type]

    def afterwards(self, step: Callable[[], object]) -> None:
        """Do this when the broken part is over, before asking whether all is well."""
        self._afterwards.append(step)

    def taken(self) -> None:
        """The second client has the lock until the broken part is over."""
        self.afterwards(self.second.lock(self.name).acquire(wait=PATIENCE).release)

    def taken_until_awaited(self) -> None:
        """The second client has the lock until someone stands in line for it, or the broken part is over."""
        lease = self.second.lock(self.name).acquire(wait=PATIENCE)
        over = threading.Event()

        def let_go() -> None:
            until(lambda: over.is_set() or self.waiters() > 0, within=10.0)
            lease.release()

        thread = threading.Thread(target=let_go)
        thread.start()
        self.afterwards(over.set)
        self.afterwards(thread.join)

    def waiters(self) -> int:
        if not self.second.capabilities.waiters_seen:
            return int(was_waited_for(self.name))
        info = self.second.inspect(self.name)
        return info.waiters if info else 0

    def problem(self) -> str | None:
        while self._afterwards:
            self._afterwards.pop(0)()
        problem = self.not_free() or self.not_drained() or self.not_ended()
        if problem:
            self.start_afresh()
        return problem

    def start_afresh(self) -> None:
        """What one run broke must not be found again by the next."""
        self.first.close()
        self.first = gripfast.connect(self.url)
        self.start_all_threads()
        gc.collect()

    def not_free(self) -> str | None:
        try:
            lease = self.second.lock(self.name).acquire(wait=PATIENCE)
        except gripfast.LockTimeout as error:
            self.second.force_release(self.name)
            return f"not free within {PATIENCE:g} s: {error}"
        lease.release()
        try:  # a claim that was already under way on another thread may still land; it is given back at once
            until(lambda: self.second.inspect(self.name) is None, within=PATIENCE)
        except AssertionError:
            return f"someone still has it: {self.second.inspect(self.name)}"
        return None

    def not_drained(self) -> str | None:
        try:
            until(lambda: ledger_size(self.first) == 0, within=PATIENCE)
        except AssertionError:
            return f"the ledger still has {ledger_size(self.first)} entries"
        return None

    def not_ended(self) -> str | None:
        def left() -> set[threading.Thread]:
            return set(threading.enumerate()) - self._threads

        try:
            until(lambda: not left(), within=PATIENCE)
        except AssertionError:
            return f"threads left behind: {sorted(thread.name for thread in left())}"
        return None

    def close(self) -> None:
        self.first.close()
        self.second.close()
