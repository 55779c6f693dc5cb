"""What operators see of a lock that another library holds, and what they can do about it."""

import math

from redis import Redis

from interop.foreign import Foreign
from support.colours import World

TTL = 30.0


async def test_inspect_tells_what_the_key_tells(foreign: Foreign, world: World, key: str, onlooker: Redis) -> None:
    foreign.acquire(key, TTL)
    info = await world.actor().inspect("job")
    assert (info.name, info.owner) == ("job", onlooker.get(key))
    assert (info.label, info.host, info.pid, info.since, info.waiters) == (None, "", 0, None, 0)
    assert 0 < info.expires_in <= TTL


async def test_inspect_counts_who_waits_for_them(foreign: Foreign, world: World, key: str) -> None:
    held = foreign.acquire(key, TTL)
    waiting = world.actor().acquire("job", ttl=1)
    await world.queued("job", 1)
    assert foreign.release(held)
    await waiting


async def test_what_an_earlier_holder_left_is_not_told_of_them(
    foreign: Foreign, world: World, key: str, onlooker: Redis
) -> None:
    alice = world.actor()
    await alice.release(await alice.acquire("job", label="nightly"))
    foreign.acquire(key, TTL)
    info = await alice.inspect("job")
    assert (info.owner, info.label, info.pid, info.since) == (onlooker.get(key), None, 0, None)


async def test_a_key_without_a_ttl_never_expires(endless: Foreign, world: World, key: str) -> None:
    endless.acquire(key, None)
    assert (await world.actor().inspect("job")).expires_in == math.inf


async def test_they_are_listed(foreign: Foreign, world: World, key: str) -> None:
    foreign.acquire(key, TTL)
    assert [info.name for info in await world.actor().listing()] == ["job"]


async def test_force_release_frees_their_lock(foreign: Foreign, world: World, key: str) -> None:
    alice = world.actor()
    held = foreign.acquire(key, TTL)
    assert await alice.force_release("job")
    lease = await alice.acquire("job", ttl=TTL)
    assert not foreign.release(held)
    assert lease.held
    await alice.extend(lease)


async def test_force_release_of_their_lock_lets_the_first_waiter_in(foreign: Foreign, world: World, key: str) -> None:
    alice, bob = world.actors(2)
    foreign.acquire(key, TTL)
    waiting = alice.acquire("job", ttl=TTL)
    await world.queued("job", 1)
    assert await bob.force_release("job")
    assert (await waiting).held
    assert foreign.acquire(key, TTL) is None
