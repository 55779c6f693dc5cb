"""What can be wrong with a Redis server while it runs, and heals: each trouble lasts as long as its `with` block.

The servers in trouble want a password, so that a test can see that it is told to nobody.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import redis

from support.redis_server import HOST, RedisServer
from support.waiting import until

PASSWORD = "pa/ss:w@rd%31"

Break = Callable[[RedisServer], contextlib.AbstractContextManager[None]]


def guarded_server() -> RedisServer:
    """It remembers everything when it is killed and restarted: the system has what it wrote."""
    remembers = ("--appendonly", "yes", "--appendfsync", "no")
    return RedisServer("--requirepass", PASSWORD, "--enable-debug-command", "yes", *remembers)


def url_of(server: RedisServer, user: str = "", database: int = 0) -> str:
    return f"redis://{user}:{quote(PASSWORD, safe='')}@{HOST}:{server.port}/{database}"


def where(port: int, database: int = 0, scheme: str = "redis") -> str:
    """How messages name a server."""
    return f"{scheme}://{HOST}:{port}/{database}"


def command(server: RedisServer, *words: Any) -> Any:
    with server.client(password=PASSWORD) as client:
        return client.execute_command(*words)


def locks_on(server: RedisServer) -> list[str]:
    with server.client(password=PASSWORD, decode_responses=True) as client:
        return list(client.scan_iter(match="lock:*", count=10_000))


def holder_of(server: RedisServer, name: str) -> str | None:
    """The value of the lock's key: an owner id."""
    value = command(server, "GET", f"lock:{name}")
    return None if value is None else value.decode()


# Troubles -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def configured(server: RedisServer, name: str, bad: str, good: str) -> Iterator[None]:
    command(server, "CONFIG", "SET", name, bad)
    try:
        yield
    finally:
        command(server, "CONFIG", "SET", name, good)


def out_of_memory(server: RedisServer) -> contextlib.AbstractContextManager[None]:
    return configured(server, "maxmemory", "1", "0")


def without_replicas(server: RedisServer) -> contextlib.AbstractContextManager[None]:
    return configured(server, "min-replicas-to-write", "1", "0")


@contextlib.contextmanager
def replica(server: RedisServer) -> Iterator[None]:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and never listens: the primary can't be reached
        command(server, "REPLICAOF", "127.0.0.1", nobody.getsockname()[1])
        try:
            yield
        finally:
            command(server, "REPLICAOF", "NO", "ONE")


@contextlib.contextmanager
def lost_replica(server: RedisServer) -> Iterator[None]:
    with configured(server, "replica-serve-stale-data", "no", "yes"), replica(server):
        yield


@contextlib.contextmanager
def unable_to_save(server: RedisServer) -> Iterator[None]:
    """Where its file should be is a folder."""
    (server.folder / "dump.rdb").mkdir()
    with configured(server, "save", "3600 1", ""):
        command(server, "BGSAVE")
        until(lambda: command(server, "INFO", "persistence")["rdb_last_bgsave_status"] == "err")
        yield


@contextlib.contextmanager
def running_a_slow_script(server: RedisServer) -> Iterator[None]:
    command(server, "CONFIG", "SET", "lua-time-limit", "50")

    def run() -> None:
        with contextlib.suppress(redis.ResponseError):  # killed in the end
            command(server, "EVAL", "while true do end", "0")

    with _meanwhile(run), server.client(password=PASSWORD) as client:
        until(lambda: _refused_with("BUSY", client.ping))
        try:
            yield
        finally:
            client.execute_command("SCRIPT", "KILL")


@contextlib.contextmanager
def loading(server: RedisServer) -> Iterator[None]:
    """It reads its data anew, very slowly, and answers in between."""
    with server.client(password=PASSWORD) as client:
        client.mset({f"filler:{number}": os.urandom(1100) for number in range(1000)})
        client.config_set("loading-process-events-interval-bytes", 1024)
        client.config_set("key-load-delay", 10_000)
        with _meanwhile(lambda: command(server, "DEBUG", "RELOAD")):
            until(lambda: _refused_with("LOADING", lambda: client.get("x")))
            try:
                yield
            finally:
                client.config_set("key-load-delay", 0)


@contextlib.contextmanager
def stopped(server: RedisServer) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


@contextlib.contextmanager
def down(server: RedisServer) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.restart()


@contextlib.contextmanager
def _meanwhile(work: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _refused_with(code: str, request: Callable[[], object]) -> bool:
    """redis-py tells some codes by the type of the error."""
    try:
        request()
    except redis.RedisError as error:
        return code in f"{type(error).__name__} {error}".upper()
    return False


DEAF: dict[str, tuple[Break, str]] = {
    "down": (down, r"can't be reached: .*refused; check that the server runs"),
    "stopped": (stopped, r"did not answer within 0.2 s|was not made in time"),
    "loading": (loading, r"still loading its data: .*LOADING"),
    "busy": (running_a_slow_script, r"slow script: .*SCRIPT KILL"),
    "lost replica": (lost_replica, r"use the address of the primary .*MASTERDOWN"),
}
"""Nobody can ask such a server anything."""

NO_WRITES: dict[str, tuple[Break, str]] = {
    "replica": (replica, r"use the address of the primary .*READONLY"),
    "unable to save": (unable_to_save, r"look at its log, and whether the disk is full .*MISCONF"),
    "without replicas": (without_replicas, r"min-replicas-to-write .*NOREPLICAS"),
    "out of memory": (out_of_memory, r"raise the limit .*OOM"),
}
"""Such a server can be asked who holds a lock, but not for one."""
