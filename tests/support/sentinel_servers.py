"""A primary, its replicas, and the Sentinels that watch them, all real and on loopback.

`shared_watched()` is the one that most tests use, each with a prefix of its own. A test that breaks something starts
one for itself: `with Watched() as watched:`.

Servers and Sentinels keep their configuration in files, as they do in production: a server that is restarted is what
the Sentinels made it last.
"""

import contextlib
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gripfast.core import rules
from support.certificates import certificate
from support.proxy import Proxy
from support.redis_server import HOST, RedisServer, for_all, prepare
from support.waiting import until

SERVICE = "main"
SENTINELS = 3
QUICK = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
FAILED_OVER = 30.0
"""Seconds within which the Sentinels have promoted a replica, on a busy machine."""


class Server(RedisServer):
    """With a file that keeps whose replica it is."""

    def _command_line(self) -> list[str]:
        path = self.folder / "server.conf"
        path.touch()
        return [str(path), *super()._command_line()]


class Sentinel(RedisServer):
    ready = "+monitor"

    def __init__(self, configuration: str, **kind: Any) -> None:
        self._configuration = configuration
        super().__init__(**kind)

    def _command_line(self) -> list[str]:
        path = self.folder / "sentinel.conf"
        if not path.exists():
            path.write_text(self._configuration, encoding="utf-8")
        line = super()._command_line()
        for option in ("--save", "--appendonly"):
            del line[(at := line.index(option)) : at + 2]
        return [str(path), *line, "--sentinel"]


class Watched:
    """`down_after`: seconds of silence after which a Sentinel takes a server for down. `at_leisure`: the Sentinels look
    at servers and at each other as seldom as they usually do: an old primary may go on for 11 s. `arguments` are those
    of the servers, `password` is theirs, too; `tls` is for all."""

    def __init__(
        self,
        *arguments: str,
        replicas: int = 2,
        down_after: float = 1.0,
        at_leisure: bool = False,
        tls: bool = False,
        password: str = "",
        sentinel_password: str = "",
        kind: type[RedisServer] = RedisServer,
    ) -> None:
        self.password, self.sentinel_password = password, sentinel_password
        self.scheme = kind.scheme
        self.sentinels: list[Any] = []
        self._stack = contextlib.ExitStack()
        try:
            self.certificate = self._certificate() if tls else None
            servers = (*QUICK, *arguments, *self._login(), *self._tls())
            server_kind = type(f"Watched{kind.__name__}", (Server, kind), {})
            sentinel_kind = type(f"Watching{kind.__name__}", (Sentinel, kind), {})
            self.servers = [self._start(server_kind, *servers) for _ in range(1 + replicas)]
            self._replicate()
            self.sentinels = self._start_sentinels(sentinel_kind, down_after)
            if not at_leisure:
                self._look_every(info_ms=200, publish_ms=400)
            self.settle()
        except BaseException:
            self.close()
            raise

    # What is there ----------------------------------------------------------------------------------------------------

    def url_with(self, **options: object) -> str:
        """For `gripfast.connect`."""
        if self.certificate:
            options = {"ssl_ca_certs": self.certificate, **options}
        if self.sentinel_password:
            options = {"sentinel_password": self.sentinel_password, **options}
        login = f":{self.password}@" if self.password else ""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        scheme = f"{self.scheme}s" if self.certificate else self.scheme
        return f"{scheme}+sentinel://{login}{hosts}/{SERVICE}" + (f"?{query}" if query else "")

    @property
    def url(self) -> str:
        """Without a level: after a failover, locks are granted at once."""
        return self.url_with(failover_grace="off")

    def opened(self, **options: object) -> str:
        """The URL with these options. All is prepared, as by `gripfast init`: no grace is left."""
        url = self.url_with(**options)
        prepare(url, replicas=len(self.replicas))
        return url

    @property
    def primary(self) -> RedisServer:
        """As a majority of the Sentinels has it."""
        ports = [self._primary_port(sentinel) for sentinel in self.sentinels if sentinel.running]
        port = max(set(ports), key=ports.count)
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self) -> list[RedisServer]:
        primary = self.primary
        return [server for server in self.servers if server is not primary]

    def client(self, server: RedisServer) -> redis.Redis:
        """Of a server or Sentinel."""
        password = self.sentinel_password if server in self.sentinels else self.password
        tls: dict[str, Any] = {"ssl": True, "ssl_ca_certs": str(self.certificate)} if self.certificate else {}
        return redis.Redis(
            HOST, server.port, password=password or None, socket_timeout=10, retry=Retry(NoBackoff(), 0), **tls
        )

    def command(self, server: RedisServer, *words: Any) -> Any:
        with self.client(server) as client:
            return client.execute_command(*words)

    def forget(self, prefix: str) -> None:
        self.primary.forget(prefix)

    # What is done to it -----------------------------------------------------------------------------------------------

    def fail_over(self) -> RedisServer:
        """On command; the new primary, which all Sentinels know when this returns. The old one is still there, and
        does not know it yet."""
        old = self.primary
        until(lambda: self.is_accepted(), within=FAILED_OVER)
        return self.until_replaced(old)

    def until_replaced(self, old: RedisServer) -> RedisServer:
        """Until all Sentinels know another primary."""
        until(lambda: all(self._primary_port(each) != old.port for each in self._awake()), within=FAILED_OVER)
        return self.primary

    @contextlib.contextmanager
    def lagging(self) -> Iterator[Proxy]:
        """The replicas follow the primary through a proxy that holds all that it sends them: they get nothing of what
        is written from now on. At the end it is lost. Sentinels set that right only after some seconds."""
        primary = self.primary
        with Proxy((HOST, primary.port)) as proxy:
            replicas = self.replicas
            for server in replicas:
                self.command(server, "REPLICAOF", proxy.host, proxy.port)
            until(lambda: all(self._is_in_place(server, proxy.port) for server in replicas), within=FAILED_OVER)
            proxy.hold("replies")
            yield proxy

    def rest(self) -> None:
        """From now on the Sentinels look as seldom as they usually do; often, they keep a core busy by a thirtieth."""
        self._look_every(info_ms=10_000, publish_ms=2_000)

    def settle(self) -> None:
        """Until all servers run, replicas follow the primary, and all Sentinels agree on all of them."""
        until(self._is_settled, within=2 * FAILED_OVER)

    def close(self) -> None:
        self._stack.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy, for another worker of the run: it can't end anything."""
        return {**self.__dict__, "_stack": contextlib.ExitStack()}

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------------------

    def _start(self, kind: Any, *arguments: Any, **more: Any) -> Any:
        return self._stack.enter_context(kind(*arguments, tls=self.certificate or False, **more))

    def _certificate(self) -> Path:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sentinel-"))
        return certificate(Path(folder))

    def _login(self) -> tuple[str, ...]:
        return ("--requirepass", self.password, "--masterauth", self.password) if self.password else ()

    def _tls(self) -> tuple[str, ...]:
        return ("--tls-replication", "yes") if self.certificate else ()

    def _replicate(self) -> None:
        primary, *others = self.servers
        for server in others:
            self.command(server, "REPLICAOF", HOST, primary.port)

    def _start_sentinels(self, kind: Any, down_after: float) -> list[Any]:
        primary = self.servers[0]
        lines = [
            f"sentinel monitor {SERVICE} {HOST} {primary.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {down_after * 1000:.0f}",
            f"sentinel failover-timeout {SERVICE} 3000",
            *(f"sentinel known-replica {SERVICE} {HOST} {server.port}" for server in self.servers[1:]),
        ]
        if self.password:
            lines.append(f"sentinel auth-pass {SERVICE} {self.password}")
        if self.sentinel_password:
            lines += [f"requirepass {self.sentinel_password}", f"sentinel sentinel-pass {self.sentinel_password}"]
        if self.certificate:
            lines.append("tls-replication yes")
        configuration = "\n".join([*lines, ""])
        return [self._start(kind, configuration) for _ in range(SENTINELS)]

    def _look_every(self, *, info_ms: int, publish_ms: int) -> None:
        """Four periods after they have noticed it, Sentinels set right what a server does."""
        for sentinel in self.sentinels:
            self.command(sentinel, "SENTINEL", "DEBUG", "info-period", info_ms, "publish-period", publish_ms)

    def _awake(self) -> list[Any]:
        return [sentinel for sentinel in self.sentinels if sentinel.running]

    def _primary_port(self, sentinel: RedisServer) -> int:
        return int(self.command(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])

    def is_accepted(self) -> bool:
        """It is refused while the last one is not over, and where no replica is good enough yet."""
        try:
            self.command(self.sentinels[0], "SENTINEL", "FAILOVER", SERVICE)
        except redis.ResponseError:
            return False
        return True

    def _is_settled(self) -> bool:
        ports = {self._primary_port(sentinel) for sentinel in self._awake()}
        if len(ports) > 1 or not all(server.running for server in self.servers):
            return False
        try:
            return all(self._is_in_place(server, *ports) for server in self.servers) and all(
                self._sees_all(sentinel) for sentinel in self._awake()
            )
        except redis.RedisError:  # it still reads its data
            return False

    def _is_in_place(self, server: RedisServer, primary: int) -> bool:
        role = self.command(server, "ROLE")
        if server.port == primary:
            return role[0] == b"master" and len(role[2]) == len(self.servers) - 1
        return role[0] == b"slave" and role[2] == primary and role[3] == b"connected"

    def _sees_all(self, sentinel: RedisServer) -> bool:
        with self.client(sentinel) as client:
            state, others = client.sentinel_master(SERVICE), client.sentinel_slaves(SERVICE)
        return (
            state["flags"] == "master"
            and state["num-other-sentinels"] == len(self.sentinels) - 1
            and len(others) == len(self.servers) - 1
            and all(each["flags"] == "slave" and each["master-link-status"] == "ok" for each in others)
        )


# One for all --------------------------------------------------------------------------------------------------------


@functools.cache
def shared_watched() -> Watched:
    """Those of this test run, started when first asked for. Never stop, pause or configure one. However busy the
    machine is, the Sentinels do not take a server for down."""
    return for_all("sentinel", _unhurried)


def _unhurried() -> Watched:
    watched = Watched(down_after=3600.0)
    watched.opened(max_ttl=rules.TTL_MAX)
    watched.rest()
    return watched


@contextlib.contextmanager
def lock_space(prefix: str) -> Iterator[str]:
    """The URL of the shared ones' locks with this prefix, which must be unique; its keys are removed afterwards."""
    watched = shared_watched()
    try:
        yield watched.url_with(prefix=prefix, max_ttl=f"{rules.TTL_MAX:.0f}")
    finally:
        watched.servers[0].forget(prefix)  # always the primary
