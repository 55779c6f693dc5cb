"""A request ends at its deadline, whatever happens: signals, gevent, a server that drips, a name that nobody resolves.

How soon is measured elsewhere; here a call that would hang for ever, or for as long as the fault lasts, is found out.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import gripfast
from gripfast.bounded import LATE_MOST, Calls
from gripfast.errors import StoreUnavailable
from regressions.deadline_servers import HOST, dripping
from support.both_colours import both_colours, each, outcome, staged
from support.lanes import Lanes
from support.ports import closed_port
from support.redis_server import RedisServer, shared_server
from support.waiting import auntil, until

TIMEOUT = 0.3
SOON = 4.0
"""Seconds: far more than any deadline here, far less than for ever, on a busy machine, too."""

Target = str | list[str]


def target_of(ports: Sequence[int]) -> Target:
    """Several are Redlock."""
    urls = [f"redis://{HOST}:{port}" for port in ports]
    return urls if len(urls) > 1 else urls[0]


def refusing(servers: int) -> Target:
    return target_of([closed_port() for _ in range(servers)])


KINDS = pytest.mark.parametrize("servers", [1, 3], ids=["redis", "redlock"])


async def assert_ends(target: Target, seconds: float = SOON) -> None:
    async with both_colours(target, request_timeout=TIMEOUT, connect_patience=TIMEOUT) as actors:
        for told in await each(actors, lambda actor: outcome(actor.try_acquire("job"))):
            assert isinstance(told.error, StoreUnavailable)
            assert told.seconds < seconds


# Periodic signals, gevent: in a process of their own -----------------------------------------------------------------

SCRIPT = """
import os, signal, sys, time
{before}
import gripfast
kind, ports, server = sys.argv[1], sys.argv[2].split(","), [int(pid) for pid in sys.argv[3].split(",")]
nodes = [f"redis://127.0.0.1:{{port}}" for port in ports]
client = gripfast.connect(nodes if kind == "redlock" else nodes[0], request_timeout=0.5)
client.lock("warm-up").acquire().release()
for pid in server:
    os.kill(pid, signal.SIGSTOP)
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


def seconds_of(script: str, servers: list[RedisServer]) -> float:
    """How long the call took in which the servers were stopped."""
    kind = "redlock" if len(servers) > 1 else "redis"
    ports, pids = (",".join(map(str, values)) for values in zip(*[(s.port, s.pid) for s in servers], strict=True))
    try:
        ran = subprocess.run(
            [sys.executable, "-c", script, kind, ports, pids], capture_output=True, text=True, timeout=20, check=True
        )
    finally:
        for server in servers:
            os.kill(server.pid, signal.SIGCONT)
    return float(ran.stdout)


@KINDS
@pytest.mark.parametrize(
    ("before", "period"), [("", 0.002), ("", 0.1), (GEVENT, 60.0)], ids=["500 Hz", "10 Hz", "gevent"]
)
def test_a_server_that_stops_is_noticed_in_time_under(before: str, period: float, servers: int) -> None:
    if before:
        pytest.importorskip("gevent")
    with contextlib.ExitStack() as stack:
        real = [stack.enter_context(RedisServer()) for _ in range(servers)]
        assert seconds_of(SCRIPT.format(before=before, period=period), real) < SOON


# A server that drips -------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("greets", [True, False], ids=["replies", "greetings"])
def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_a_call(servers: int, greets: bool) -> None:
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(dripping(greets)) for _ in range(servers)]
        asyncio.run(assert_ends(target_of(ports)))


# Names ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hanging_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names asked for; nobody answers before the end of the test."""
    over, asked, real = threading.Event(), [], socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **others: Any) -> Any:
        if not str(host).endswith(".internal"):
            return real(host, *args, **others)
        asked.append(str(host))
        over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield asked
    over.set()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "gripfast-dial"])


NAMES: dict[str, Target] = {
    "redis": "redis://cache.internal",
    "redlock": [f"redis://{name}.internal" for name in "abc"],
}


@pytest.mark.parametrize("target", NAMES.values(), ids=NAMES)
def test_a_name_that_nobody_resolves_does_not_hold_a_call(target: Target, hanging_names: list[str]) -> None:
    asyncio.run(assert_ends(target))
    assert hanging_names


def test_names_that_hang_do_not_fill_the_process_with_threads(hanging_names: list[str]) -> None:
    client = gripfast.connect("redis://cache.internal", request_timeout=0.01)
    for _ in range(5 * LATE_MOST):
        with pytest.raises(StoreUnavailable):
            client.lock("job").try_acquire()
    assert len(hanging_names) == LATE_MOST
    client.close()


def test_what_a_call_brings_after_it_was_given_up_is_discarded() -> None:
    go_on, discarded = threading.Event(), list[str]()
    calls = Calls(discarded.append)
    with pytest.raises(TimeoutError):
        calls.run(lambda: "late" if go_on.wait() else "", 0.01)
    assert len(calls.late) == 1
    go_on.set()
    until(lambda: discarded == ["late"] and not calls.late)
    assert calls.run(lambda: "in time", 5.0) == "in time"


# A port that refuses is an answer ------------------------------------------------------------------------------------


@KINDS
def test_whoever_does_not_wait_is_told_at_once_that_the_port_refuses(servers: int) -> None:
    @staged
    async def run() -> None:
        async with both_colours(refusing(servers), request_timeout=30.0) as actors:
            for actor in actors:
                for call in (actor.try_acquire("job"), actor.inspect("job"), actor.listing(), actor.force_release("x")):
                    told = await outcome(call)
                    assert isinstance(told.error, StoreUnavailable), told
                    assert "refused" in str(told.error)
                assert len(actor.client._runtime.env.ledger) == 0

    run()


@KINDS
def test_whoever_waits_asks_a_port_that_refuses_until_its_patience_is_over(servers: int) -> None:
    @staged
    async def run() -> None:
        async with both_colours(refusing(servers), request_timeout=0.1) as actors:
            for told in await each(actors, lambda actor: outcome(actor.acquire("job", wait=0.6))):
                assert isinstance(told.error, StoreUnavailable)
                assert told.seconds >= 0.5  # less what it has taken before it is looked at

    run()


@KINDS
def test_attempts_that_never_left_this_machine_leave_nothing_behind(servers: int) -> None:
    @staged
    async def run() -> None:
        async with both_colours(refusing(servers), request_timeout=5.0) as (blocking, aio):
            lock, other = blocking.client.lock("job"), aio.client.lock("job")
            for _ in range(50):
                with pytest.raises(StoreUnavailable):
                    lock.try_acquire()
                with pytest.raises(StoreUnavailable):
                    await other.try_acquire()
            for actor in (blocking, aio):
                assert len(actor.client._runtime.env.ledger) == 0
                records = getattr(actor.client._runtime.env.store, "_records", None)
                assert records is None or not records._by_owner

    run()


def test_a_wrong_password_leaves_nothing_behind() -> None:
    with RedisServer("--requirepass", "right") as server:
        client = gripfast.connect(f"redis://:wrong@{HOST}:{server.port}")
        with pytest.raises(StoreUnavailable, match="password"):
            client.lock("job").acquire()
        assert len(client._runtime.env.ledger) == 0
        client.close()


# One dead connection -------------------------------------------------------------------------------------------------


def test_one_connection_that_dies_without_a_word_does_not_cost_the_lease() -> None:
    """The time-out of a request is as long as the ttl, and more."""

    @staged
    async def run() -> None:
        with Lanes(shared_server().port) as lanes:
            async with both_colours(lanes.url(), ttl=2.0, request_timeout=5.0) as actors:
                leases = await each(actors, lambda actor: actor.acquire(f"dead-connection-{actor.colour}"))
                deadlines = [lease._state.deadline for lease in leases]
                for lane in lanes.all():
                    lane.silence()
                await auntil(
                    lambda: all(lease._state.deadline > before for lease, before in zip(leases, deadlines, strict=True))
                )
                assert [lease.held for lease in leases] == [True, True]
                started = time.monotonic()
                await auntil(lambda: time.monotonic() - started > 2.0)
                assert [lease.held for lease in leases] == [True, True]

    run()
