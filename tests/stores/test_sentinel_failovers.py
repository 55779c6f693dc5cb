"""A primary that can't serve any more, in every way there is: its clients ask the Sentinels again, and go on."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.sentinel
from hiredis import ReplyError

import gripfast
from gripfast.machine import boottime
from gripfast.stores.faults import LinkDown
from gripfast.stores.redis import plain
from gripfast.stores.redis.faults import cant_serve
from gripfast.stores.sentinel.dial import Sentinel, Service
from regressions.redis_stage import played
from support.colours import COLOURS, World
from support.redis_server import HOST, RedisServer
from support.sentinel_servers import SERVICE, Watched
from support.waiting import auntil, until

PLACES = "{lock:job}\0gripfast:places"
CHANNELS = ("PUBSUB", "CHANNELS", "gripfast:*")
SERVED = 30.0
"""Seconds within which a lock is granted after a failover, on a busy machine."""


@pytest.fixture(scope="module")
def servers() -> Iterator[Watched]:
    with Watched("--enable-debug-command", "yes") as watched:
        yield watched


@pytest.fixture
def watched(servers: Watched) -> Watched:
    for server in servers.servers:
        if not server.running:  # a test that failed has left it so
            server.restart()
    servers.settle()
    servers.command(servers.primary, "FLUSHALL")
    return servers


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, watched: Watched) -> World:
    return World(watched.url, COLOURS[request.param])


def replicated(watched: Watched) -> None:
    """The replicas have all that the primary has."""
    with watched.client(watched.primary) as client:
        client.set("filler", "")  # WAIT is about what this connection has written
        assert client.wait(len(watched.replicas), 10_000) == len(watched.replicas)


def waiters(watched: Watched, server: RedisServer) -> int:
    return int(watched.command(server, "HLEN", PLACES))


# Every way to fail ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def killed(watched: Watched, primary: RedisServer) -> Iterator[None]:
    primary.kill()
    try:
        watched.until_replaced(primary)
        yield
    finally:  # the tests after this one use it, too
        primary.restart()


@contextlib.contextmanager
def silent(watched: Watched, primary: RedisServer) -> Iterator[None]:
    primary.pause()
    try:
        watched.until_replaced(primary)
        yield
    finally:
        primary.resume()


@contextlib.contextmanager
def demoted(watched: Watched, primary: RedisServer) -> Iterator[None]:
    """Not by the Sentinels, who would end its connections: these stay, and it refuses writes on them."""
    new = watched.fail_over()
    watched.command(primary, "REPLICAOF", HOST, new.port)
    yield


@contextlib.contextmanager
def cut_off(watched: Watched, primary: RedisServer) -> Iterator[None]:
    """It has lost its replicas, and refuses writes."""
    watched.command(primary, "CONFIG", "SET", "min-replicas-to-write", 3)
    try:
        watched.fail_over()
        yield
    finally:
        watched.command(primary, "CONFIG", "SET", "min-replicas-to-write", 0)


@contextlib.contextmanager
def loading(watched: Watched, primary: RedisServer) -> Iterator[None]:
    """It reads its data anew, very slowly."""
    with watched.client(primary) as client:
        client.mset({f"filler:{number}": os.urandom(1100) for number in range(1000)})
        client.config_set("loading-process-events-interval-bytes", 1024)
        client.config_set("key-load-delay", 20_000)
        reload = threading.Thread(target=watched.command, args=(primary, "DEBUG", "RELOAD"))
        reload.start()
        try:
            until(lambda: is_loading(client))
            watched.fail_over()
            assert is_loading(client)
            yield
        finally:
            client.config_set("key-load-delay", 0)
            reload.join()


def is_loading(client: redis.Redis) -> bool:
    try:
        client.get("x")
    except redis.BusyLoadingError:
        return True
    return False


Trouble = Callable[[Watched, RedisServer], contextlib.AbstractContextManager[None]]
TROUBLES: list[Trouble] = [killed, silent, demoted, cut_off, loading]


@pytest.mark.in_turn(5)
@pytest.mark.parametrize("trouble", TROUBLES)
@played
async def test_the_next_request_reaches_the_new_primary(world: World, watched: Watched, trouble: Trouble) -> None:
    """With the same client, whose connections led to the old one; and a lease that the replicas had is still held."""
    actor = world.actor(request_timeout=1.0)
    held = await actor.acquire("mine", ttl=60)
    old = watched.primary
    await asyncio.to_thread(replicated, watched)
    with contextlib.ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, trouble(watched, old))
        lease = await actor.acquire("job", wait=SERVED)
        new = watched.primary
        assert new is not old
        assert watched.command(new, "GET", "lock:job") is not None
        await actor.extend(held)
        assert await actor.inspect("mine") is not None
        await actor.release(held)
        assert watched.command(new, "GET", "lock:mine") is None
        await actor.release(lease)
        await asyncio.to_thread(stack.close)


@pytest.mark.in_turn(5)
@pytest.mark.parametrize("trouble", TROUBLES[2:] + TROUBLES[:2])  # so that others take their turn than above
@played
async def test_waiters_follow_keep_their_order_and_are_notified_there(
    world: World, watched: Watched, trouble: Trouble
) -> None:
    holder, first, second = (world.actor(request_timeout=1.0) for _ in range(3))
    lease = await holder.acquire("job", ttl=60)
    old = watched.primary
    waiting = []
    for count, actor in enumerate((first, second), 1):
        waiting.append(actor.acquire("job", wait=120, ttl=60))
        await auntil(lambda count=count: waiters(watched, old) == count)
    await asyncio.to_thread(replicated, watched)
    with contextlib.ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, trouble(watched, old))
        new = watched.primary
        await auntil(lambda: len(watched.command(new, *CHANNELS)) == 2, within=SERVED)
        assert waiters(watched, new) == 2
        await auntil(lambda: all_listen(watched, new), within=SERVED)
        await holder.release(lease)
        one = await waiting[0]
        assert one.token > lease.token
        assert not waiting[1].done()
        await first.release(one)
        two = await waiting[1]
        assert two.token > one.token
        await second.release(two)
        await asyncio.to_thread(stack.close)


def all_listen(watched: Watched, server: RedisServer) -> bool:
    """Each place in the queue names a channel that somebody there listens to."""
    channels = watched.command(server, *CHANNELS)
    places = watched.command(server, "HVALS", PLACES)
    return all(any(channel in place for channel in channels) for place in places)


@pytest.mark.in_turn(2)
@played
async def test_renewals_follow(world: World, watched: Watched) -> None:
    """A lease is renewed at the new primary, without a request of its holder's."""
    actor = world.actor(request_timeout=1.0)
    lease = await actor.acquire("job", ttl=12)
    old = watched.primary
    await asyncio.to_thread(replicated, watched)
    with contextlib.ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, killed(watched, old))
        new = watched.primary
        left = watched.command(new, "PTTL", "lock:job")
        await auntil(lambda: watched.command(new, "PTTL", "lock:job") > left, within=SERVED)
        assert lease.held
        await asyncio.to_thread(stack.close)


@pytest.mark.parametrize("complaint", ["OOM command not allowed", "NOSCRIPT No matching script", "ERR unknown command"])
def test_a_primary_that_has_another_complaint_is_still_the_primary(complaint: str) -> None:
    assert not cant_serve(ReplyError(complaint))


# Levels ---------------------------------------------------------------------------------------------------------------

TTL, GOES_ON = 3.0, 3.0
GRACE = {"max_ttl": f"{TTL:g}", "failover_grace": f"{GOES_ON:g}"}


def failover_in(target: Any, **options: Any) -> Any:
    with gripfast.connect(target, **options) as client:
        return client._config.factory._failover  # type: ignore[attr-defined]


def test_a_grace_is_kept_unless_it_is_turned_off(watched: Watched) -> None:
    theirs = redis.sentinel.Sentinel([(HOST, each.port) for each in watched.sentinels]).master_for(SERVICE)
    for target in (watched.url_with(), theirs):
        failover = failover_in(target)
        assert failover[:3] == (60.0, 15.0, 0)
        assert len(failover.promotable().promotable) == 2
        assert failover_in(target, failover_grace="off") is None
        assert failover_in(target, failover_grace=20.0, max_ttl=5.0, replicas=2)[:3] == (5.0, 20.0, 2)


@pytest.mark.in_turn(2)
@played
async def test_after_a_failover_that_lost_a_lease_nobody_else_gets_it_before_its_end(
    world: World, watched: Watched
) -> None:
    """The holder is killed with its primary; the replicas never had its lease. Others wait until all is over."""
    url = await asyncio.to_thread(lambda: watched.opened(**GRACE))
    holder, rival = (world.actor(target=url, request_timeout=1.0) for _ in range(2))
    await rival.inspect("job")
    old = watched.primary
    with contextlib.ExitStack() as stack:
        stack.enter_context(watched.lagging())
        lease = await holder.acquire("job", ttl=TTL)
        waiting = rival.acquire("job", wait=None, ttl=TTL)
        await asyncio.to_thread(old.kill)
        await asyncio.to_thread(stack.close)
    new = await asyncio.to_thread(watched.until_replaced, old)
    assert watched.command(new, "GET", "lock:job") is None
    promoted = boottime()
    assert (await waiting).held
    assert boottime() - promoted > TTL + GOES_ON - 2.0  # somebody may have asked it before all Sentinels knew of it
    assert not lease.held
    await asyncio.to_thread(old.restart)


@played
async def test_fewer_acknowledgements_than_replicas_that_may_be_promoted_are_refused(
    world: World, watched: Watched
) -> None:
    url = await asyncio.to_thread(lambda: watched.opened(**GRACE))
    with pytest.raises(gripfast.GripfastError, match="has 2 replicas that may be promoted, and replicas=1"):
        await world.actor(target=f"{url}&replicas=1").acquire("job", ttl=TTL, wait=1)
    assert (await world.actor(target=f"{url}&replicas=2").acquire("job", ttl=TTL, wait=10)).held


# Who is believed ------------------------------------------------------------------------------------------------------


@played
async def test_a_server_that_says_it_is_a_replica_is_not_used(world: World) -> None:
    """The Sentinels have not noticed yet."""
    with Watched(replicas=1, down_after=3600.0, at_leisure=True) as watched:
        primary, replica = watched.servers
        watched.command(primary, "REPLICAOF", HOST, replica.port)
        actor = world.actor(target=watched.url, request_timeout=1.0)
        with pytest.raises(Exception, match=rf"{HOST}:{primary.port} is its primary, and that server says .* replica"):
            await actor.acquire("job", wait=0.5)
        watched.command(primary, "REPLICAOF", "NO", "ONE")
        assert (await actor.acquire("job", wait=10)).held


@played
async def test_a_primary_that_is_down_is_named(world: World) -> None:
    with Watched(replicas=0, down_after=3600.0) as watched:
        actor = world.actor(target=watched.url, request_timeout=1.0)
        watched.primary.kill()
        with pytest.raises(Exception, match=r"its primary, \S+ can't be reached: Connection refused.*CKQUORUM main"):
            await actor.acquire("job", wait=0.5)


def service(watched: Watched, *sentinels: RedisServer) -> Service:
    asked = [
        Sentinel(f"{HOST}:{each.port}", plain.connect, {"host": HOST, "port": each.port})
        for each in sentinels or watched.sentinels
    ]
    return Service("there", SERVICE, asked)


@contextlib.contextmanager
def one_that_says(port: int, epoch: int) -> Iterator[Sentinel]:
    """A Sentinel that names this port of the primary."""
    address = b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(port)), port)
    state = b"*2\r\n$12\r\nconfig-epoch\r\n$%d\r\n%d\r\n" % (len(str(epoch)), epoch)
    with socket.create_server((HOST, 0)) as listening:
        settings = {"host": HOST, "port": listening.getsockname()[1]}
        serving = threading.Thread(target=serve_once, args=(listening, address + state))
        serving.start()
        yield Sentinel(f"{HOST}:{port}", plain.connect, settings)
        serving.join()


def serve_once(listening: socket.socket, answer: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        while data := connection.recv(65536):
            connection.sendall(answer if b"SENTINEL" in data else b"+OK\r\n")


@pytest.mark.parametrize("epochs", [(1, 2), (2, 1), (9, 10)])
def test_of_sentinels_that_disagree_the_one_that_saw_the_last_failover_is_believed(epochs: tuple[int, int]) -> None:
    with one_that_says(1, epochs[0]) as first, one_that_says(2, epochs[1]) as second:
        found = Service("there", SERVICE, [first, second])._primary(5.0)
    assert found == (HOST, 1 + epochs.index(max(epochs)))


def test_replicas_that_may_be_promoted_are_counted_also_those_that_are_down(watched: Watched) -> None:
    listed = service(watched).promotable

    def count() -> int:
        return len(listed().promotable)

    one, other = watched.replicas
    assert listed().promotable == {f"{HOST}:{each.port}".encode() for each in (one, other)}
    one.kill()
    assert count() == 2
    watched.command(other, "CONFIG", "SET", "replica-priority", 0)
    until(lambda: count() == 1, within=SERVED)
    assert len(listed().listed) == 2
    watched.command(other, "CONFIG", "SET", "replica-priority", 100)
    one.restart()
    until(lambda: count() == 2, within=SERVED)


def test_who_counts_in_vain_is_told_why(watched: Watched) -> None:
    sentinels = [Sentinel("nowhere:1", plain.connect, {"host": HOST, "port": watched.primary.port})]
    with pytest.raises(LinkDown, match="nowhere:1 is no Sentinel"):
        Service("there", SERVICE, sentinels).promotable()
    unknown = [Sentinel("here", plain.connect, {"host": HOST, "port": watched.sentinels[0].port})]
    with pytest.raises(LinkDown, match="no service 'mian'"):
        Service("there", "mian", unknown).promotable()


@played
async def test_a_client_goes_on_without_any_sentinel_while_its_primary_serves(world: World) -> None:
    with Watched(replicas=0, down_after=3600.0) as watched:
        actor: Any = world.actor(target=watched.url)
        lease = await actor.acquire("job")
        for sentinel in watched.sentinels:
            sentinel.kill()
        await actor.extend(lease)
        await actor.release(lease)
        assert (await actor.try_acquire("job")).held
