"""Answers of a Redis server that were misread, lost, or awaited for ever."""

import asyncio
from binascii import crc_hqx
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import hiredis
import pytest
import redis

import gripfast
from gripfast import ClientClosed, ConfigurationError, LeaseLost, LockTimeout, OutcomeUnknown, StoreUnavailable
from gripfast.core.ports import Claim, Hold
from gripfast.stores.redis import keys, protocol, scripts
from regressions.redis_stage import connect_at_once, played
from support.colours import COLOURS, World, renewal_of
from support.lanes import Lanes
from support.proxy import Proxy
from support.redis_server import HOST, RedisServer
from support.waiting import auntil, until

GARBAGE = b"HTTP/1.1 502 Bad Gateway\r\n\r\n"
IMPATIENT = {"request_timeout": 0.3, "connect_patience": 0.3}
HANG = 10.0
"""Seconds after which a call counts as one that never ends."""


@pytest.fixture
def proxy(server: RedisServer, admin: "redis.Redis") -> Iterator[Proxy]:
    with Proxy((HOST, server.port)) as proxy:
        yield proxy


@pytest.fixture
def other(server: RedisServer, admin: "redis.Redis") -> Iterator[gripfast.Client]:
    """Someone else, with nothing between it and the server."""
    with gripfast.connect(server.url) as client:
        yield client


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Any:
    return COLOURS[request.param]


@pytest.fixture
def world(lanes: Lanes, colour: Any) -> World:
    return World(lanes.url(), colour)


@pytest.fixture
def proxied(proxy: Proxy, colour: Any) -> World:
    return World(f"redis://{HOST}:{proxy.port}/0", colour)


# Lost replies ---------------------------------------------------------------------------------------------------------


@played
async def test_a_release_whose_reply_was_lost_is_no_loss(proxied: World, proxy: Proxy, admin: "redis.Redis") -> None:
    alice = proxied.actor()
    await alice.release(await alice.acquire("warm-up"))
    lease = await alice.acquire("job")
    proxy.drop_reply()
    await alice.release(lease)
    assert not proxy.armed()
    assert admin.get("lock:job") is None


@played
async def test_a_force_release_whose_reply_was_lost_is_not_repeated(
    world: World, lanes: Lanes, other: gripfast.Client
) -> None:
    operator = world.actor()
    await operator.force_release("warm-up")
    first = other.lock("job").acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.lock("job").acquire, wait=10)
        until(lambda: other.inspect("job").waiters == 1)
        for lane in lanes.all():
            lane.lose_reply(scripts.FORCE_RELEASE.sha.encode())
        with pytest.raises(OutcomeUnknown):
            await operator.force_release("job")
        second = waiting.result(timeout=5)
    second.extend()  # the server says that it still is
    with pytest.raises(LeaseLost):
        first.release()


@played
async def test_a_client_that_is_closed_while_it_asks_says_so(
    proxied: World, proxy: Proxy, admin: "redis.Redis"
) -> None:
    alice = proxied.actor()
    await alice.release(await alice.acquire("warm-up"))
    proxy.hold("replies")
    asking = alice.acquire("job")
    await auntil(proxy.held)
    so_far = proxy.held()
    closing = asyncio.ensure_future(alice.disconnect(alice.client))
    await auntil(lambda: proxy.held() > so_far)  # that it gives back has been answered, too
    proxy.let_go()
    with pytest.raises(ClientClosed):
        await asking
    await closing
    assert admin.get("lock:job") is None


# Connections that can't be made ---------------------------------------------------------------------------------------


class NoCredentials(redis.CredentialProvider):
    def get_credentials(self) -> tuple[str]:
        raise RuntimeError("the token service is down")


def refuse(*connection: object) -> None:
    raise LookupError("no such tenant")


UNMADE: dict[str, Any] = {
    "a credential provider fails": lambda port: redis.Redis(host=HOST, port=port, credential_provider=NoCredentials()),
    "a function of the caller's fails": lambda port: redis.Redis(host=HOST, port=port, redis_connect_func=refuse),
    "a host that can't be encoded": lambda port: "redis://a..b:1/0",
    "a socket that is not there": lambda port: "unix:///no/such/socket",
    "certificates that are not there": lambda port: f"rediss://{HOST}:{port}/0?ssl_ca_certs=/no/such/file",
}


@pytest.mark.parametrize("way", UNMADE)
@played
async def test_a_connection_that_can_not_be_made_is_an_error(server: RedisServer, colour: Any, way: str) -> None:
    """Whatever comes out of its making, on whatever thread: nobody waits for ever."""
    scene = World(UNMADE[way](server.port), colour)
    try:
        await assert_unavailable(scene)
    finally:
        await scene.close()


@pytest.mark.parametrize("question", [b"CLIENT", b"INFO", b"SUBSCRIBE"])
@played
async def test_a_connection_that_begins_with_garbage_is_an_error(
    world: World, lanes: Lanes, admin: "redis.Redis", question: bytes
) -> None:
    admin.set("lock:job", "someone", px=60_000)
    lanes.greet(lambda lane: lane.babble(GARBAGE, to=question))
    await assert_unavailable(world)


async def assert_unavailable(scene: World) -> None:
    actor = scene.actor(**IMPATIENT)
    async with asyncio.timeout(HANG):
        with pytest.raises(StoreUnavailable):
            await actor.acquire("job", wait=0.3)


class NoReaders(asyncio.SelectorEventLoop):
    """Such as Windows has: it can't watch a socket."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:  # type: ignore[override]
        if not isinstance(fd, int):
            raise NotImplementedError
        return super().add_reader(fd, callback, *args)


def test_an_event_loop_that_can_not_watch_sockets_is_an_error(server: RedisServer) -> None:
    async def ask() -> None:
        async with asyncio.timeout(HANG), gripfast.connect_async(server.url) as client:
            with pytest.raises(ConfigurationError, match="SelectorEventLoop"):
                await client.lock("job").try_acquire()

    with asyncio.Runner(loop_factory=NoReaders) as runner:
        runner.run(ask())


@pytest.mark.parametrize(
    "target",
    [
        "redis://localhost/0?ssl_ca_certs=/some/file",
        "unix:///some/socket?socket_keepalive=1",
        "unix:///some/socket?port=6379",
        "redis://localhost/0?path=/some/socket",
        "redis://localhost/0?socket_timeout=soon",
        "redis://localhost/0?no_such_option=1",
    ],
)
def test_an_option_of_another_kind_of_connection_is_refused_at_once(colour: Any, target: str) -> None:
    with pytest.raises(ConfigurationError):
        colour.connect(target)


# Connections that fall silent -----------------------------------------------------------------------------------------


def test_one_silent_connection_is_enough_to_drop_all_idle_ones(lanes: Lanes) -> None:
    """Somebody on the way has forgotten them: otherwise each would be found silent in its turn."""
    with ThreadPoolExecutor(8) as pool, gripfast.connect(lanes.url(), request_timeout=1.0) as client:
        lease = client.lock("job").acquire()
        connect_at_once(client, lanes, pool, 7)
        for lane in lanes.all():
            lane.silence()
        with pytest.raises(OutcomeUnknown):
            lease.extend()
        lease.extend()


@played
async def test_garbage_on_one_connection_is_no_reply(world: World, lanes: Lanes) -> None:
    alice = world.actor()
    await alice.release(await alice.acquire("warm-up"))
    for lane in lanes.all():
        lane.babble(GARBAGE)
    lease = await alice.try_acquire("job")  # asked once more, on another connection
    await alice.release(lease)


@played
async def test_garbage_on_every_connection_is_an_error(world: World, lanes: Lanes) -> None:
    alice = world.actor(**IMPATIENT)
    await alice.release(await alice.acquire("warm-up"))
    lanes.greet(lambda lane: lane.babble(GARBAGE))
    for lane in lanes.all():
        lane.babble(GARBAGE)
    for call in (alice.try_acquire("job"), alice.inspect("job"), alice.listing(), alice.force_release("job")):
        with pytest.raises(StoreUnavailable):
            await call


@played
async def test_a_lease_is_lost_as_soon_as_the_server_says_so_even_if_it_does_not_say_why(
    world: World, lanes: Lanes, other: gripfast.Client
) -> None:
    alice = world.actor(request_timeout=0.3)
    lease = await alice.acquire("job")
    other.force_release("job")
    lanes.greet(lambda lane: lane.hold_from(scripts.WHY.sha.encode()))
    for lane in lanes.all():
        lane.hold_from(scripts.WHY.sha.encode())
    with pytest.raises(LeaseLost) as loss:
        await alice.extend(lease)
    assert loss.value.reason == "expired"
    assert any(lane.held for lane in lanes.all())


@played
async def test_many_lost_leases_do_not_delay_the_renewal_of_the_others(
    proxied: World, proxy: Proxy, admin: "redis.Redis"
) -> None:
    alice = proxied.actor()
    leases = [await alice.acquire(f"job {number}", ttl=1.5) for number in range(150)]
    kept, gone = leases[:10], leases[10:]
    proxy.delay(requests=0.02, replies=0.02)  # one question for each would take four times as long as a lease
    admin.delete(*[f"lock:{lease.name}" for lease in gone])
    await auntil(lambda: not any(lease.held for lease in gone))
    assert all(lease.held for lease in kept)
    await auntil(renewal_of(kept[0]))


# What others put there, and what a user may not do --------------------------------------------------------------------


@played
async def test_an_empty_value_is_a_holder_too(world: World, admin: "redis.Redis") -> None:
    admin.set("lock:job", "", px=60_000)
    alice = world.actor()
    assert await alice.try_acquire("job") is None
    info = await alice.inspect("job")
    assert (info.owner, info.label, info.since) == ("", None, None)
    assert [each.name for each in await alice.listing()] == ["job"]
    with pytest.raises(LockTimeout):
        await alice.acquire("job", wait=0.05)


NONSENSE = {
    "no JSON": b"1 garbage\nsomeone",
    "other types": b'1 {"host": 1, "pid": "x", "label": 5}\nsomeone',
    "no time": b'9999999999999999999999 {"host": "", "pid": 1, "label": null}\nsomeone',
    "no number": b'x {"host": "", "pid": 1, "label": null}\nsomeone',
    "nothing": b"",
    "no text": b"\xff\xfe\nsomeone",
}


@pytest.mark.parametrize("fence", NONSENSE.values(), ids=NONSENSE)
@played
async def test_nonsense_in_a_side_key_makes_its_holder_unknown_and_nothing_else(
    world: World, admin: "redis.Redis", fence: bytes
) -> None:
    alice = world.actor()
    admin.set("lock:job", "someone", px=60_000)
    admin.set(keys.side_key(b"lock:job", b"token"), fence)
    info = await alice.inspect("job")
    assert (info.owner, info.token, info.label, info.host, info.since) == ("someone", 0, None, "", None)
    assert await alice.try_acquire("job") is None
    assert [each.owner for each in await alice.listing()] == ["someone"]
    with pytest.raises(LockTimeout, match="held by software other than Gripfast"):
        await alice.acquire("job", wait=0.05)
    admin.delete("lock:job")
    lease = await alice.acquire("job")
    assert 0 < lease.token < 2**53
    assert (await alice.inspect("job")).token == lease.token
    admin.set(keys.side_key(b"lock:job", b"token"), fence.replace(b"someone", cast(bytes, admin.get("lock:job"))))
    await alice.extend(lease)
    await alice.release(lease)


NO_PUSHES = {
    "no PUBLISH": ["&*", "+@all", "-publish"],
    "no channels": ["resetchannels", "&other", "+@all"],
    "no NUMSUB": ["&*", "+@all", "-pubsub"],
}


@pytest.mark.parametrize("rights", NO_PUSHES)
@played
async def test_a_user_who_may_not_push_is_told_and_leaves_no_holder_whom_nobody_told(
    lanes: Lanes, admin: "redis.Redis", colour: Any, rights: str, caplog: pytest.LogCaptureFixture
) -> None:
    alice = (scene := user(lanes, admin, colour, NO_PUSHES[rights])).actor()
    listener = admin.pubsub()
    listener.subscribe("gripfast:somebody")
    assert listener.get_message(timeout=10)
    try:
        lease = await alice.acquire("job")
        stand_in_line(admin, "job")
        await alice.release(lease)
        assert "docs/redis.md" in caplog.text
        with pytest.raises(StoreUnavailable, match=r"docs/redis\.md"):
            await alice.try_acquire("job")
        assert admin.get("lock:job") is None
        assert listener.get_message(timeout=0) is None
    finally:
        admin.delete(keys.side_key(b"lock:job", b"line"))
        await scene.close()
        listener.close()


@played
async def test_a_user_who_may_not_subscribe_is_told_at_once(lanes: Lanes, admin: "redis.Redis", colour: Any) -> None:
    admin.set("lock:job", "someone", px=60_000)
    alice = (scene := user(lanes, admin, colour, NO_PUSHES["no channels"])).actor()
    try:
        async with asyncio.timeout(HANG):
            with pytest.raises(StoreUnavailable, match=r"docs/redis\.md"):
                await alice.acquire("job", wait=60)
        assert admin.zcard(keys.side_key(b"lock:job", b"line")) == 0
    finally:
        await scene.close()


def user(lanes: Lanes, admin: "redis.Redis", colour: Any, rights: list[str]) -> World:
    admin.execute_command("ACL", "SETUSER", "alice", "reset", "on", ">secret", "~*", *rights)
    return World(lanes.url(username="alice", password="secret"), colour)


def stand_in_line(admin: "redis.Redis", name: str) -> None:
    """Somebody waits for this lock, in this very moment."""
    claim = Claim(name, "somebody", 30.0, None, None)
    key = f"lock:{name}"
    packed = protocol.claim(key, claim, protocol.card(None, "elsewhere", 1), b"gripfast:somebody")
    reader = hiredis.Reader()
    reader.feed(scripts.CLAIM.in_full(packed))
    admin.execute_command(*reader.gets())
    assert admin.zcard(keys.side_key(key.encode(), b"line")) == 1


def test_names_with_odd_braces_are_as_cheap_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol.renew("lock:a}b", Hold("a}b", "owner", 30.0))  # a table is made, once
    hashed = []

    def hash_and_count(data: bytes, value: int) -> int:
        hashed.append(data)
        return crc_hqx(data, value)

    monkeypatch.setattr(keys, "crc_hqx", hash_and_count)
    for number in range(100):
        protocol.renew(f"lock:a}}{number}", Hold(f"a}}{number}", "owner", 30.0))
    assert 100 <= len(hashed) <= 400
