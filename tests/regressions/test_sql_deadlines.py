"""A request to a SQL server ends when its time-out is over, sync and async, whatever network, signals or gevent do."""

import contextlib
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gripfast import StoreUnavailable
from support.both_colours import both_colours, each, outcome, staged
from support.ports import closed_port
from support.proxy import HOST, Proxy
from support.sql_servers import mariadb_server, postgres_server

pytestmark = pytest.mark.in_turn(2)

TIMEOUT = 2.0
AT_MOST = 1.5 * TIMEOUT
"""Measured: 1.00 to 1.06 times the time-out. The rest is for a busy machine."""
LONG = 60.0
CLIENTS = (("lease", "blocking"), ("row", "blocking"), ("lease", "aio"), ("advisory", "aio"))
SERVERS: dict[str, Callable[[], Any]] = {"postgresql": postgres_server, "mysql": mariadb_server}


@pytest.fixture(params=SERVERS)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Before there is a connection ----------------------------------------------------------------------------------------


async def fails_in_time(url: str, request_timeout: float = TIMEOUT) -> None:
    async with both_colours(url, request_timeout=request_timeout) as actors:
        for told in await each(actors, lambda actor: outcome(actor.try_acquire("job"))):
            assert isinstance(told.error, StoreUnavailable)
            assert told.seconds < AT_MOST
        for actor in actors:
            assert not len(actor.client._runtime.env.ledger), "nothing was sent, so nothing is left to be cleaned up"


@staged
async def test_a_port_that_refuses_is_an_answer(scheme: str) -> None:
    await fails_in_time(f"{scheme}://app:app@{HOST}:{closed_port()}/shop", LONG)


@pytest.mark.parametrize("seconds", [LONG, 0.8 * TIMEOUT], ids=["hangs", "is slow"])
def test_the_time_that_a_name_server_takes_counts(scheme: str, seconds: float, monkeypatch: Any) -> None:
    is_over = threading.Event()
    real = socket.getaddrinfo

    def slow(host: object, *args: Any, **others: Any) -> Any:
        if host != "database.internal":
            return real(host, *args, **others)  # type: ignore[arg-type]
        is_over.wait(seconds)
        return real(HOST, *args, **others)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        with socket.create_server((HOST, 0)) as silent:
            staged(fails_in_time)(url=f"{scheme}://app:app@database.internal:{silent.getsockname()[1]}/shop")
    finally:
        is_over.set()


def test_a_server_that_greets_byte_by_byte_is_not_waited_for(scheme: str) -> None:
    server = SERVERS[scheme]()
    with dripping((HOST, server.port), is_slow=lambda: True) as port:
        staged(fails_in_time)(url=at_port(server.lock_space(), server, port))


# On a connection: in processes of their own, because of the signals and of gevent ------------------------------------

SCRIPT = """
import os, sys
kind, colour, url, timeout = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
if kind == "gevent":
    import gevent.monkey
    gevent.monkey.patch_all()
import asyncio, signal, time
import gripfast

def await_the_fault():
    print("ready", flush=True)
    sys.stdin.readline()
    if kind == "signals":
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
    return time.monotonic()

def blocking():
    client = gripfast.connect(url, request_timeout=timeout)
    client.lock("warm-up").acquire().release()
    started = await_the_fault()
    try:
        client.lock("job").try_acquire()
    except gripfast.StoreUnavailable:
        print(time.monotonic() - started, flush=True)

async def aio():
    client = gripfast.connect_async(url, request_timeout=timeout)
    await (await client.lock("warm-up").acquire()).release()
    started = await_the_fault()
    try:
        await client.lock("job").try_acquire()
    except gripfast.StoreUnavailable:
        print(time.monotonic() - started, flush=True)

asyncio.run(aio()) if colour == "aio" else blocking()
os._exit(0)
"""


@pytest.mark.parametrize("kind", ["signals", "gevent"])
def test_a_server_that_falls_silent_is_noticed_in_time_under(scheme: str, kind: str) -> None:
    with Proxy((HOST, SERVERS[scheme]().port)) as proxy:
        assert all(seconds < AT_MOST for seconds in seconds_taken(scheme, kind, proxy.port, proxy.black_hole))


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(scheme: str) -> None:
    is_slow = threading.Event()
    with dripping((HOST, SERVERS[scheme]().port), is_slow.is_set) as port:
        assert all(seconds < AT_MOST for seconds in seconds_taken(scheme, "drips", port, is_slow.set))


def seconds_taken(scheme: str, kind: str, port: int, break_it: Callable[[], None]) -> list[float]:
    """By a request that meets the fault: on a shared connection and in a session, sync and async, all at once."""
    server = SERVERS[scheme]()
    with contextlib.ExitStack() as stack:
        processes = []
        for mode, colour in CLIENTS:
            url = at_port(server.lock_space(mode=mode), server, port)
            line = [sys.executable, "-W", "ignore", "-c", SCRIPT, kind, colour, url, str(TIMEOUT)]
            process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            processes.append(stack.enter_context(process))
        assert [process.stdout.readline() for process in processes] == ["ready\n"] * len(processes)
        break_it()
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        return [float(process.stdout.readline()) for process in processes]


def at_port(url: str, server: Any, port: int) -> str:
    return url.replace(f":{server.port}/", f":{port}/")


@contextlib.contextmanager
def dripping(target: tuple[str, int], is_slow: Callable[[], bool]) -> Iterator[int]:
    """The port of a proxy that passes replies on byte by byte while it is slow."""
    is_over = threading.Event()
    listener = socket.create_server((HOST, 0))

    def drip(data: bytes, client: socket.socket) -> None:
        for place in range(len(data)):
            is_over.wait(TIMEOUT / 10)
            client.sendall(data[place : place + 1])

    def serve(client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(target) as server:
            while not is_over.is_set():
                ready, _, _ = select.select([client, server], [], [], 0.1)
                for side in ready:
                    if not (data := side.recv(65536)):
                        return
                    if side is client:
                        server.sendall(data)
                    elif is_slow():
                        drip(data, client)
                    else:
                        client.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        is_over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
