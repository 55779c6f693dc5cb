"""A real redis-server for tests: on loopback, on a port of its own, with its data in a temporary folder.

`shared_server()` is the one that most tests use, each with a prefix of its own. A test that stops, kills or configures
its server starts one for itself: `with RedisServer("--maxmemory", "10mb") as server:`.

No server outlives the process that started it, however that ends: a watcher waits for the end of a pipe. One that all
workers of a run share (`for_all()`) does not outlive the last of them.
"""

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from unittest import mock

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import gripfast
from gripfast.stores.redis import grace
from support.certificates import LOOPBACK, certificate
from support.local import needs
from support.ports import give_back_port, reserved_port
from support.run_wide import made_once
from support.waiting import until

T = TypeVar("T")
HOST = "127.0.0.1"
ATTEMPTS = 50
READY = "ready to accept connections"
WATCH = 'read -r _; kill -9 "$1"; rm -rf "$2"'
FORGET = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('UNLINK', key) end return 0"


QUICK_SYNC = ("--repl-diskless-sync-delay", "0")
_of_the_run: ContextVar[Path | None] = ContextVar("of_the_run", default=None)
"""The folder in which servers are being started for all workers of the run: its watcher is theirs."""


class RedisServer:
    """One redis-server that answers from the moment this is made. `arguments` are its own: `--appendonly yes`.

    Without them it writes nothing to disk, so that a restarted one is empty.
    """

    program = "redis-server"
    scheme = "redis"
    ready = READY
    """What its log says as soon as it serves, in small letters."""

    level: Mapping[str, object] = {}
    """The options that its locks are used with."""

    def __init__(
        self,
        *arguments: str,
        unix: bool = False,
        tls: bool | Path = False,
        certified_for: str = LOOPBACK,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`tls`: the certificate, if there is one already; `certified_for`: the names in it. `environment`: what stands
        there beside the usual."""
        needs("redis-server")
        self.folder = Path(tempfile.mkdtemp(prefix="redis-", dir=_of_the_run.get()))
        self.port = 0
        self.pid = 0
        self._arguments = arguments
        self._environment = {**os.environ, **(environment or {})}
        self._socket = self.folder / "socket" if unix else None
        self._certificate = certificate(self.folder, certified_for) if tls is True else tls or None
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._is_joined = False
        try:
            self._start_somewhere()
        except BaseException:
            self.close()
            raise

    # Who it is --------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """For `gripfast.connect` and `redis.from_url` alike."""
        return self.url_with()

    def url_with(self, **options: object) -> str:
        """The URL with these options in its query."""
        base = f"{HOST}:{self.port}/0"
        if self._socket:
            base = str(self._socket)
            options = {"db": 0, **options}
        if self._certificate:
            options = {"ssl_ca_certs": self._certificate, **options}
        query = "&".join(f"{name}={value}" for name, value in options.items())
        scheme = "unix" if self._socket else f"{self.scheme}s" if self._certificate else self.scheme
        return f"{scheme}://{base}" + (f"?{query}" if query else "")

    def client(self, **options: Any) -> "redis.Redis":
        """A redis-py client of it that never retries; close it, or use it in a `with`."""
        options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": 10, **options}
        if self._certificate:
            options = {"ssl_check_hostname": False, **options}
        return redis.Redis.from_url(self.url.replace(self.scheme, "redis", 1), **options)

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def running(self) -> bool:
        if self._process is None:
            return self._is_joined and Path(f"/proc/{self.pid}").exists()
        return self._process.poll() is None

    # What is done to it -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """SIGTERM, as an operator would; gone on return."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL; gone on return."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP, and stopped on return: connections stay open, nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Killed if it runs, then started at the same address; empty unless its arguments keep the data."""
        self.kill()
        assert self._start(), f"{self.program} did not start again on port {self.port}:\n{self.log}"

    def restart_empty(self) -> None:
        """The same after the loss of its disk, whatever its arguments."""
        self.kill()
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        (self.folder / "dump.rdb").unlink(missing_ok=True)
        self.restart()

    def forget(self, prefix: str) -> None:
        """Remove the keys of locks with this prefix, side keys too: they have the lock's own key somewhere in theirs.

        Not by redis-py, whose every connection costs more than most of the tests that this is done after.
        """
        words = ["EVAL", FORGET, "0", f"*{prefix}*"]
        request = f"*{len(words)}\r\n" + "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
        with socket.create_connection((HOST, self.port), timeout=10) as wire:
            wire.sendall(request.encode())
            answer = wire.recv(1000)
        assert answer.startswith(b":"), answer

    def close(self) -> None:
        """Killed, and its folder removed."""
        self.kill()
        give_back_port(self.port)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "RedisServer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        """A copy, for another worker of the run: it uses the server, and can't end it."""
        known = {"scheme": self.scheme, "level": self.level}
        return _joined, ({**self.__dict__, **known, "_process": None, "_watcher": None, "_is_joined": True},)

    # Starting and ending ----------------------------------------------------------------------------------------------

    def _start_somewhere(self) -> None:
        """Other programs of the machine may have a port: one is tried after the other until the server has it."""
        for _ in range(1 if self._socket else ATTEMPTS):
            give_back_port(self.port)
            self.port = 0 if self._socket else reserved_port()
            if self._start():
                return
            if "Address already in use" not in self.log:
                break
        raise AssertionError(f"{self.program} could not be started:\n{self.log}")

    def _start(self) -> bool:
        """Whether it answers now; False if it ended instead."""
        with open(self.folder / "log", "wb") as log:
            # A session of its own: Ctrl-C in the terminal is for the tests, which then end their servers in order.
            self._process = subprocess.Popen(
                [self.program, *self._command_line()],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid
        if _of_the_run.get() is None:
            self._watcher = subprocess.Popen(
                ["sh", "-c", WATCH, "sh", str(self.pid), str(self.folder)],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        until(lambda: not self.running or self._answers(), within=20)
        if not self.running:
            self.kill()
            return False
        return True

    def _command_line(self) -> list[str]:
        port = str(self.port)
        line = ["--bind", HOST, "--dir", str(self.folder), "--save", "", "--appendonly", "no"]
        if self._socket:
            line += ["--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "600"]
        elif self._certificate:
            key = str(self._certificate.with_suffix(".key"))
            line += ["--port", "0", "--tls-port", port, "--tls-cert-file", str(self._certificate)]
            line += ["--tls-key-file", key, "--tls-ca-cert-file", str(self._certificate), "--tls-auth-clients", "no"]
        else:
            line += ["--port", port]
        return [*line, *self._arguments]

    def _answers(self) -> bool:
        # Its own log first: whoever answers at that port might be someone else's server.
        if self.ready not in self.log.lower():
            return False
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError), self.client() as client:
            with contextlib.suppress(redis.ResponseError, redis.AuthenticationError):
                client.ping()
            return True
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._watcher is not None:
            # First of all: it must never kill a process that happens to get the same id later.
            self._watcher.kill()
            self._watcher.wait()
            assert self._watcher.stdin is not None
            self._watcher.stdin.close()
            self._watcher = None
        if self._process is not None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait()
            self._process = None


class GraceServer(RedisServer):
    """Its locks are used with a grace, for any ttl that a lock may have. It is prepared: no grace is left."""

    level: Mapping[str, object] = {"failover_grace": 1, "max_ttl": 86400}

    def __init__(self) -> None:
        super().__init__(*QUICK_SYNC)
        opened(self, **self.level)


class ReplicatedServer(GraceServer):
    """The same with a replica that acknowledges everything."""

    level: Mapping[str, object] = {**GraceServer.level, "replicas": 1}

    def _start_somewhere(self) -> None:
        super()._start_somewhere()
        self._replica = RedisServer(*QUICK_SYNC, "--replicaof", HOST, str(self.port))
        with self._replica.client() as client:
            until(lambda: client.info("replication").get("master_link_status") == "up", within=30)

    def close(self) -> None:
        if hasattr(self, "_replica"):
            self._replica.close()
        super().close()


# One for all --------------------------------------------------------------------------------------------------------

_shared: dict[type[RedisServer], RedisServer] = {}
_starting = threading.Lock()


def shared_server(kind: type[RedisServer] = RedisServer) -> RedisServer:
    """The server of this test process, started when it is first asked for. Never stop, pause or configure it. Tests may
    look at its connections and at all of its keys. One that is used with a level is that of all workers of the run."""
    with _starting:
        if kind not in _shared or not _shared[kind].running:
            if kind.level:
                _shared[kind] = for_all(kind.__name__, kind)
            else:
                _shared[kind] = kind()
                atexit.register(_close_in, os.getpid(), _shared[kind])
        return _shared[kind]


def for_all(name: str, start: Callable[[], T]) -> T:
    """What the first worker of the run that asks has started: servers that all of them use, and none of them ends."""

    def start_in(folder: Path) -> T:
        token = _of_the_run.set(folder)
        try:
            return start()
        finally:
            _of_the_run.reset(token)

    return made_once(name, start_in)


def _joined(state: dict[str, Any]) -> RedisServer:
    server = RedisServer.__new__(RedisServer)
    server.__dict__.update(state)
    return server


def _close_in(process: int, server: RedisServer) -> None:
    """At exit of that process; a forked child has the same exit handlers, but not the server."""
    if os.getpid() == process:
        server.close()


@contextlib.contextmanager
def lock_space(prefix: str, kind: type[RedisServer] = RedisServer) -> Iterator[str]:
    """The URL of the shared server's locks with this prefix, which must be unique; its keys are removed afterwards."""
    server = shared_server(kind)
    try:
        yield server.url_with(prefix=prefix, **server.level)
    finally:
        server.forget(prefix)


def opened(server: RedisServer, **options: object) -> str:
    """Its URL with these options. It is prepared, as by `gripfast init`: no grace is left."""
    url = server.url_with(**options)
    with server.client() as client:
        prepare(url, replicas=client.info("replication")["connected_slaves"])
    return url


def prepare(url: str, *, replicas: int, **options: Any) -> None:
    """As `gripfast init` does it, which gives a second to however many replicas there are. Here their number is known:
    it returns as soon as so many of each primary's have what it wrote."""
    with mock.patch.object(grace, "REPLICAS_MOST", replicas), gripfast.connect(url, **options) as client:
        client._prepare(None)
