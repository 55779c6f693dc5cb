"""Sessions of ZooKeeper that changed under those who relied on them, and nodes that nobody knew of."""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

import gripfast
from gripfast import StoreUnavailable
from gripfast.core import rules
from gripfast.stores.zookeeper import protocol, session, store
from support.both_colours import both_colours, each, staged
from support.proxy import Proxy
from support.server_process import HOST
from support.waiting import auntil, until
from support.zookeeper_servers import ZooKeeperServer, new_root, url_of


class Configured(ZooKeeperServer):
    def restart_with(self, *settings: str) -> None:
        self.stop()
        self._settings = settings
        self.restart()


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    """Which may be paused, stopped and started again."""
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def configured() -> Iterator[Configured]:
    with Configured() as server:
        yield server


@pytest.fixture
def proxy(server: ZooKeeperServer) -> Iterator[Proxy]:
    with Proxy((HOST, server.port)) as proxy:
        yield proxy


@contextlib.contextmanager
def running(address: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=address, timeout=20)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


# Sessions that changed ------------------------------------------------------------------------------------------------


@staged
async def test_a_server_that_gives_sessions_less_time_than_before_ends_what_was_believed(
    configured: Configured,
) -> None:
    """Its leases were still dated by the time-out of old: cut off, their holders believed in them for long after."""
    async with both_colours(configured.lock_space(), ttl=30) as actors:
        leases = await each(actors, lambda actor: actor.acquire(actor.colour))
        await asyncio.to_thread(configured.restart_with, "maxSessionTimeout=2000")
        await auntil(lambda: not any(lease.held for lease in leases), within=10)
        again = await each(actors, lambda actor: actor.acquire(actor.colour))
        assert all(lease.ttl <= session.SHARE * 2.0 for lease in again)


@staged
async def test_a_claim_under_way_when_sessions_get_less_time_leaves_nothing(configured: Configured) -> None:
    """What it had made in the session of old was no longer looked for: the next claim waited behind it."""
    root = new_root()
    with Proxy((HOST, configured.port), patience=5.0) as proxy:
        through = url_of([f"{HOST}:{proxy.port}"], root=root)
        async with both_colours(through, ttl=30) as actors:
            await each(actors, _tried)
            proxy.hold("replies")
            claims = [actor.acquire(actor.colour, wait=30) for actor in actors]
            with configured.client() as observer:
                paths = [f"{root}/{actor.colour}" for actor in actors]
                await auntil(lambda: all(observer.get_children(path) for path in paths))
            await asyncio.to_thread(configured.restart_with, "maxSessionTimeout=2000")
            proxy.cut()
            proxy.let_go()
            assert all(lease.held for lease in await asyncio.wait_for(asyncio.gather(*claims), 25))


async def _tried(actor: Any) -> None:
    """Its session is there, and the node of the lock."""
    await actor.release(await actor.acquire(actor.colour))


# Connections that are dead without a word -----------------------------------------------------------------------------


class TwoWays:
    """To one server. The first is there until it goes silent, and then the second."""

    def __init__(self, first: Proxy, second: Proxy) -> None:
        self._first, self._second = first, second
        self.url = url_of([f"{HOST}:{way.port}" for way in (first, second)], root=new_root())
        second.refuse()

    def change(self) -> None:
        """What was connected stays so."""
        self._first.refuse()
        self._first.black_hole()
        self._second.accept()


@pytest.fixture
def ways(server: ZooKeeperServer) -> Iterator[TwoWays]:
    with Proxy((HOST, server.port)) as first, Proxy((HOST, server.port)) as second:
        yield TwoWays(first, second)


@staged
async def test_a_silent_connection_does_not_cost_the_lease_if_another_server_can_be_reached(ways: TwoWays) -> None:
    """kazoo takes whatever is sent for a ping, answered or not: it stayed where it was until the lease was over."""
    ttl = 3.0
    async with both_colours(ways.url, ttl=ttl) as actors:
        leases = await each(actors, lambda actor: actor.acquire(actor.colour))
        ways.change()
        over = time.monotonic() + 1.1 * ttl
        await auntil(lambda: time.monotonic() > over, within=10)
        assert all(lease.held for lease in leases)


@staged
async def test_a_silent_connection_is_left_by_those_who_claim_too(ways: TwoWays) -> None:
    """Who claimed often had no connection any more, and would have had none for a quarter of an hour."""
    async with both_colours(ways.url, ttl=60, request_timeout=0.5) as actors:
        await each(actors, _tried)
        ways.change()
        leases = await each(actors, lambda actor: actor.acquire(actor.colour, wait=8))
        assert all(lease.held for lease in leases)


# Clients of others ----------------------------------------------------------------------------------------------------


def test_a_client_that_runs_and_is_cut_off_now_is_neither_started_nor_stopped(proxy: Proxy) -> None:
    """It was taken for one that had not been started: its threads were ended, and in the end its session."""
    with running(f"{HOST}:{proxy.port}") as client:
        mine = client.client_id
        proxy.refuse()
        proxy.cut()
        until(lambda: not client.connected)
        returning = threading.Timer(0.5, proxy.accept)
        returning.start()
        with gripfast.connect(client, root=new_root()) as locks, locks.lock("job").acquire(wait=10) as lease:
            assert lease.held
        returning.join()
        assert client.connected
        assert client.client_id == mine


def test_a_client_may_be_connected_to_any_number_of_times(server: ZooKeeperServer) -> None:
    """Each time left another layer around its way to connect, until there were too many for the interpreter."""
    with running(server.address) as client:
        before = client._connection._connect
        for _ in range(20):
            with gripfast.connect(client, root=new_root()) as locks:
                locks.inspect("job")
        assert _depth(client._connection._connect) <= _depth(before) + 1


def _depth(function: Any) -> int:
    """How many functions it is wrapped around, itself included."""
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    inner = [*cells, *getattr(function, "args", ())]  # of a closure, or of a partial
    return 1 + max((_depth(each) for each in inner if callable(each)), default=0)


# Nodes that nobody knew of --------------------------------------------------------------------------------------------


def test_a_loop_that_stops_before_the_answer_does_not_keep_the_lock(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only whoever read the answer told the node's name to those who look after such."""
    monkeypatch.setattr(store, "SLOW_PACE", 1.0)
    url = server.lock_space()
    loop = asyncio.new_event_loop()
    client, claim = loop.run_until_complete(_asked(url, server))
    with gripfast.connect(url) as other, other.lock("job", ttl=5).acquire(wait=10) as lease:
        assert lease.held
    with contextlib.suppress(gripfast.GripfastError):
        loop.run_until_complete(claim)
    loop.run_until_complete(client.aclose())
    loop.close()


async def _asked(url: str, server: ZooKeeperServer) -> "tuple[gripfast.AsyncClient, asyncio.Task[gripfast.AsyncLease]]":
    client = gripfast.connect_async(url)
    await (await client.lock("job", ttl=1).acquire()).release()
    claim = asyncio.ensure_future(client.lock("job", ttl=1).acquire())
    server.pause()
    try:
        for _ in range(20):
            await auntil(lambda: True)
            await asyncio.wait([claim], timeout=0)
    finally:
        server.resume()
    assert not claim.done()
    return client, claim


def test_what_was_given_up_is_deleted_however_long_the_server_was_away(
    server: ZooKeeperServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while it was taken for forgotten by itself; but its session lived on, and kept the node."""
    monkeypatch.setattr(rules, "WAITER_WINDOW", 0.5)
    root, ttl = new_root(), 2.0
    with gripfast.connect(url_of([f"{HOST}:{proxy.port}"], root=root), request_timeout=0.5) as client:
        client.lock("job", ttl=ttl).acquire().release()
        proxy.hold("replies")
        with pytest.raises(StoreUnavailable):
            client.lock("job", ttl=ttl).acquire(wait=0.2)
        server.stop()
        proxy.refuse()
        proxy.cut()
        proxy.let_go()
        forgotten = time.monotonic() + rules.forgotten_at(0.0, ttl) + 1.5
        until(lambda: time.monotonic() > forgotten, within=10)
        server.restart()
        proxy.accept()
        with server.client() as observer:
            assert observer.get_children(f"{root}/job"), "the session was to live on"
            until(lambda: not observer.get_children(f"{root}/job"), within=8)
            assert client.inspect("job") is None


# Numbers that came round ----------------------------------------------------------------------------------------------


def test_a_line_keeps_its_order_when_numbers_come_round() -> None:
    """2,147,483,647 is followed by -2,147,483,648, and negative numbers have nine digits from some point on."""
    line = ["c__lock__-2147483647", "a__lock__2147483647", "b__lock__-2147483648"]
    assert [each.owner for each in protocol.in_order(line)] == ["a", "b", "c"]
    assert [each.owner for each in protocol.in_order(["b__lock__0000000000", "a__lock__-000000001"])] == ["a", "b"]


# Those who wait -------------------------------------------------------------------------------------------------------


class Waiter:
    def deliver(self, granted: None) -> None:
        """Woken."""


def test_waking_all_who_wait_is_not_disturbed_by_those_who_come() -> None:
    """A set that grew while it was gone through: an error on kazoo's thread, and nobody was woken."""
    waking = session.Session("nowhere", KazooClient(), is_ours=True)
    is_over = threading.Event()
    coming = threading.Thread(target=_come, args=(waking, is_over))
    often, usual = 1e-5, sys.getswitchinterval()
    sys.setswitchinterval(often)
    coming.start()
    try:
        for _ in range(3000):
            waking.watches.notify_all()
    finally:
        sys.setswitchinterval(usual)
        is_over.set()
        coming.join()


def _come(waking: session.Session, is_over: threading.Event) -> None:
    kept: list[Waiter] = []
    while not is_over.is_set():
        kept = [*kept[-500:], Waiter()]
        waking.watches.join("/job/1", kept[-1])  # type: ignore[arg-type]


# Closing --------------------------------------------------------------------------------------------------------------


def test_a_client_may_be_closed_while_another_thread_begins_to_use_it(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo, stopped while it is being started, lost its sockets under its thread, or its thread never ended."""
    before = set(threading.enumerate())
    begun, stopped = threading.Event(), list[session.Session]()
    start, stop = KazooClient.start_async, session.Session.stop

    def starts_slowly(client: KazooClient) -> Any:
        begun.set()
        until(lambda: stopped and stopped[0]._is_stopped)
        return start(client)

    def stops(each: session.Session) -> None:
        stopped.append(each)
        stop(each)

    monkeypatch.setattr(KazooClient, "start_async", starts_slowly)
    monkeypatch.setattr(session.Session, "stop", stops)
    client = gripfast.connect(server.lock_space())

    def use() -> None:
        with contextlib.suppress(gripfast.ClientClosed, StoreUnavailable), client.lock("job", wait=5):
            pass

    user = threading.Thread(target=use)
    user.start()
    assert begun.wait(10)
    client.close()
    user.join()
    until(lambda: set(threading.enumerate()) <= before, within=20)
