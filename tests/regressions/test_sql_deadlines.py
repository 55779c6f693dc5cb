"""A request to a SQL server ends when its time is over, whatever the network does before there is a connection."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gripfast import StoreUnavailable
from regressions.redis_stage import played
from regressions.sql_stage import MODES
from support.colours import COLOURS, World
from support.proxy import HOST, Proxy
from support.sql_servers import mariadb_server, postgres_server

TIMEOUT = 0.5
MUCH_LATER = 10.0
"""Seconds: far more than a request may take, far less than what it would take without a limit."""
SCHEMES = ("postgresql", "mysql")


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=COLOURS)
def connect(request: pytest.FixtureRequest, scheme: str) -> Callable[..., World]:
    def connect(host: str, request_timeout: float = TIMEOUT) -> World:
        return World(f"{scheme}://app:app@{host}/shop?request_timeout={request_timeout}", COLOURS[request.param])

    return connect


@played
async def fails_in_time(world: World) -> None:
    alice = world.actor()
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await alice.try_acquire("job")
    assert time.monotonic() - started < MUCH_LATER
    assert not len(alice.client._runtime.env.ledger), "something is left to be cleaned up, though nothing was sent"


def test_a_port_that_refuses_is_an_answer(connect: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    fails_in_time(world=connect(f"127.0.0.1:{port}", request_timeout=6 * MUCH_LATER))


def test_names_that_nobody_looks_up_are_not_waited_for(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()

    def stuck(*_: Any, **__: Any) -> Any:
        is_over.wait(6 * MUCH_LATER)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    try:
        fails_in_time(world=connect("database.internal:1"))
    finally:
        is_over.set()


def test_a_server_that_greets_byte_by_byte_is_not_waited_for(connect: Any) -> None:
    with dripping() as port:
        fails_in_time(world=connect(f"127.0.0.1:{port}"))


@contextlib.contextmanager
def dripping() -> Iterator[int]:
    """A server whose first packet never ends: to both protocols this is the beginning of a long one."""
    is_over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def drip(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.sendall(b"E\0\0")
            while not is_over.wait(TIMEOUT / 5):
                client.sendall(b"\0")

    def take() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=drip, args=(client,), daemon=True).start()

    taking = threading.Thread(target=take, daemon=True)
    taking.start()
    try:
        yield listener.getsockname()[1]
    finally:
        is_over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        taking.join()


# Periodic signals, gevent: in a process of their own ------------------------------------------------------------------

SCRIPT = """
import os, signal, sys, time
{before}
import gripfast
client = gripfast.connect(sys.argv[1], request_timeout=0.5)
with client.lock("warm-up"):
    print("ready", flush=True)
sys.stdin.readline()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, {period}, {period})
started = time.monotonic()
try:
    client.lock("job").try_acquire()
except gripfast.StoreUnavailable:
    print(time.monotonic() - started, flush=True)
os._exit(0)
"""
GEVENT = "import gevent.monkey; gevent.monkey.patch_all()"


@pytest.mark.parametrize(("before", "period"), [("", 0.01), (GEVENT, 60.0)], ids=["signals", "gevent"])
@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_falls_silent_is_noticed_in_time_under(
    scheme: str, mode: str, before: str, period: float
) -> None:
    server = {"postgresql": postgres_server, "mysql": mariadb_server}[scheme]()
    with Proxy((HOST, server.port)) as proxy:
        url = server.lock_space(mode=mode).replace(f":{server.port}/", f":{proxy.port}/")
        line = [sys.executable, "-c", SCRIPT.format(before=before, period=period), url]
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            proxy.black_hole()
            process.stdin.write("\n")
            process.stdin.flush()
            assert float(process.stdout.readline()) < MUCH_LATER
