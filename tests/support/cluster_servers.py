"""A real Redis Cluster for tests: three primaries and three replicas, on loopback, on ports of their own.

`shared_cluster()` is the one that most tests use, each with a prefix of its own. A test that stops, kills or reshards
starts one for itself: `with Cluster() as cluster:`.
"""

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from support.ports import give_back_port, reserved_port
from support.redis_server import HOST, RedisServer, for_all, prepare
from support.waiting import auntil, until

PRIMARIES = 3
SLOTS = 16384
NODE_TIMEOUT_MS = 1500
"""After which a node counts as failed. Not smaller: a busy machine is no fault of the nodes."""


class Cluster:
    """Primaries first, then the replicas, in the same order."""

    def __init__(
        self,
        *arguments: str,
        replicas: int = 1,
        node_timeout_ms: int = NODE_TIMEOUT_MS,
        kind: type[RedisServer] = RedisServer,
        max_ttl: float = 60.0,
        certificate: Path | None = None,
        password: str = "",
    ) -> None:
        """`replicas`: of each primary. `arguments`: of each server. `max_ttl`: of locks, in seconds. `certificate`: all
        speak TLS, with it."""
        self._scheme = f"{kind.scheme}s" if certificate else kind.scheme
        self._certificate, self._password = certificate, password
        self.servers: list[RedisServer] = []
        self._buses: list[int] = []
        self._clients: dict[int, redis.Redis] = {}
        try:
            for _ in range(PRIMARIES * (1 + replicas)):
                server, bus = _node(kind, node_timeout_ms, (*arguments, *self._secured()), certificate)
                self.servers.append(server)
                self._buses.append(bus)
            self._form(replicas)
            # It is new: locks are granted at once.
            prepare(self.url(max_ttl=max_ttl), replicas=replicas, connect_patience=60)
        except BaseException:
            self.close()
            raise

    # Who is who -------------------------------------------------------------------------------------------------------

    def url(self, **options: object) -> str:
        """For `gripfast.connect`: it names two of the nodes."""
        if self._certificate:
            options = {"ssl_ca_certs": self._certificate, **options}
        query = "&".join(f"{name}={value}" for name, value in options.items())
        login = f":{self._password}@" if self._password else ""
        return f"{self._scheme}+cluster://{login}{self.hosts}" + (f"?{query}" if query else "")

    @property
    def hosts(self) -> str:
        """Of two nodes."""
        return ",".join(f"{HOST}:{server.port}" for server in self.servers[:2])

    def client(self, server: RedisServer) -> "redis.Redis":
        """Of one node, kept open."""
        client = self._clients.get(server.port)
        if client is None:
            client = server.client(decode_responses=True, password=self._password or None)
            self._clients[server.port] = client
        return client

    def call(self, server: RedisServer, *words: Any) -> Any:
        return self.client(server).execute_command(*words)

    def id_of(self, server: RedisServer) -> str:
        return str(self.call(server, "CLUSTER", "MYID"))

    def primaries(self) -> list[RedisServer]:
        """Who says so, and runs."""
        running = [server for server in self.servers if server.running]
        return [server for server in running if self.client(server).role()[0] == "master"]

    def owner(self, slot: int) -> RedisServer:
        """By what the first node that runs knows."""
        return next(server for server, slots in self.shares().items() if any(slot in each for each in slots))

    def shares(self) -> dict[RedisServer, list[range]]:
        """The slots of each primary, by the same."""
        one = next(server for server in self.servers if server.running)
        by_port: dict[int, list[range]] = {}
        for first, last, primary, *_ in self.call(one, "CLUSTER", "SLOTS"):
            by_port.setdefault(primary[1], []).append(range(first, last + 1))
        return {server: by_port[server.port] for server in self.servers if server.port in by_port}

    def replica_of(self, primary: RedisServer) -> RedisServer:
        host, port = HOST, primary.port
        for server in self.servers:
            if server.running and server is not primary:
                role = self.client(server).role()
                if role[0] == "slave" and (role[1], int(role[2])) == (host, port):
                    return server
        raise AssertionError(f"no replica follows port {port}")

    # What is done to it -----------------------------------------------------------------------------------------------

    def begin_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """From now on the slot migrates; its keys are still where they were."""
        self.call(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        self.call(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))

    def keys_in(self, slot: int, server: RedisServer, most: int = 10) -> list[bytes]:
        with server.client(password=self._password or None) as client:
            found = client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, most)
        return [key if isinstance(key, bytes) else key.encode() for key in found]

    def move_keys(self, source: RedisServer, target: RedisServer, keys: Sequence[bytes]) -> None:
        login = ("AUTH", self._password) if self._password else ()
        with source.client(password=self._password or None) as client:
            client.execute_command("MIGRATE", HOST, target.port, "", 0, 5000, *login, "KEYS", *keys)

    def end_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """All nodes are told, the new owner first, as redis-cli does."""
        others = [server for server in self.primaries() if server not in (source, target)]
        for server in (target, source, *others):
            self.call(server, "CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))

    def move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """As `redis-cli --cluster reshard` does it: ten keys at a time."""
        self.begin_move(slot, source, target)
        while keys := self.keys_in(slot, source):
            self.move_keys(source, target, keys)
        self.end_move(slot, source, target)

    def fail_over_to(self, replica: RedisServer) -> None:
        """On command, as an operator would; once more if the nodes were too busy to agree in the 5 s that they have."""
        for _ in range(5):
            self.call(replica, "CLUSTER", "FAILOVER")
            with contextlib.suppress(AssertionError):
                until(lambda: self.client(replica).role()[0] == "master", within=6)
                return
        raise AssertionError(f"no failover:\n{replica.log}")

    def forget(self, prefix: str) -> None:
        for server in self.primaries():
            server.forget(prefix)

    def is_healthy(self) -> bool:
        """All nodes that run agree that all slots are served, and that nobody has failed."""
        running = [server for server in self.servers if server.running]
        views = [self._view(server) for server in running]
        return all(view is not None and view == views[0] for view in views)

    def _view(self, server: RedisServer) -> list[Any] | None:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            info = self.call(server, "CLUSTER", "INFO")
            info = info if isinstance(info, str) else " ".join(f"{name}:{value}" for name, value in info.items())
            if "cluster_state:ok" in info and "slots_ok:16384" in info:
                return sorted([*entry[:2], entry[2][1]] for entry in self.call(server, "CLUSTER", "SLOTS"))
        return None

    # ------------------------------------------------------------------------------------------------------------------

    def _secured(self) -> Iterator[str]:
        if self._certificate:
            yield from ("--tls-cluster", "yes", "--tls-replication", "yes")
        if self._password:
            yield from ("--requirepass", self._password, "--masterauth", self._password)

    def _form(self, replicas: int) -> None:
        primaries = self.servers[:PRIMARIES]
        share = -(-SLOTS // PRIMARIES)
        for at, server in enumerate(primaries):
            last = min(SLOTS, (at + 1) * share) - 1
            self.call(server, "CLUSTER", "ADDSLOTSRANGE", at * share, last)
            self.call(server, "CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        for server in self.servers[1:]:
            self.call(server, "CLUSTER", "MEET", HOST, self.servers[0].port, self._buses[0])
        known = len(self.servers)
        until(lambda: all(self._knows(server) == known for server in self.servers), within=30)
        for at, server in enumerate(self.servers[PRIMARIES:]):
            self.call(server, "CLUSTER", "REPLICATE", self.id_of(primaries[at % PRIMARIES]))
        until(self.is_healthy, within=30)
        until(lambda: all(self._follows(server) for server in self.servers[PRIMARIES:]), within=30)

    def _knows(self, server: RedisServer) -> int:
        nodes = self.call(server, "CLUSTER", "NODES")
        return sum(
            "handshake" not in str(node) for node in (nodes.values() if isinstance(nodes, dict) else nodes.splitlines())
        )

    def _follows(self, server: RedisServer) -> bool:
        return self.client(server).role()[3] == "connected"

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        for server in self.servers:
            server.close()
        for bus in self._buses:
            give_back_port(bus)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, for another worker of the run."""
        return {**self.__dict__, "_clients": {}}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


async def time_passes(seconds: float) -> None:
    """What is waited for is the time itself: that leases would be over by now, or waiters have asked again."""
    ends = time.monotonic() + seconds
    await auntil(lambda: time.monotonic() >= ends, within=seconds + 5.0)


def _node(
    kind: type[RedisServer], node_timeout_ms: int, arguments: Sequence[str], certificate: Path | None
) -> tuple[RedisServer, int]:
    """Its bus has a port of its own. That would be 10000 above the other, among those of outgoing connections."""
    bus = reserved_port()
    settings = [
        "--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-config-file", "nodes.conf",
        "--cluster-node-timeout", str(node_timeout_ms), "--cluster-replica-validity-factor", "0",
        "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
    ]  # fmt: skip
    server = kind(*settings, *arguments, tls=certificate or False)
    return server, bus


# One for all --------------------------------------------------------------------------------------------------------


@functools.cache
def shared_cluster() -> Cluster:
    """The one of this test run, started when it is first asked for. Never stop, pause or reshard it."""
    return for_all("cluster", lambda: Cluster(node_timeout_ms=15000, max_ttl=86400))


@contextlib.contextmanager
def lock_space(prefix: str) -> Iterator[str]:
    """The URL of the shared cluster's locks with this prefix, which must be unique; its keys are removed afterwards."""
    cluster = shared_cluster()
    try:
        yield cluster.url(prefix=prefix, max_ttl=86400)  # any ttl that a lock may have
    finally:
        cluster.forget(prefix)
