"""The fencing token grows with every grant of a name, however the last one ended, and nothing else moves it."""

import time

import pytest

from gripfast.testing.colours import World, renewal_of
from gripfast.testing.fixtures import unless
from gripfast.testing.waiting import auntil


async def test_the_token_grows_over_a_release(world: World) -> None:
    alice, bob = world.actors(2)
    first = await alice.acquire("job")
    await alice.release(first)
    assert (await bob.acquire("job")).token > first.token


async def test_the_token_grows_over_an_expiry(world: World) -> None:
    alice, bob = world.actors(2)
    first = await alice.acquire("job", ttl=0.05, renew=False)
    assert (await bob.acquire("job")).token > first.token


async def test_the_token_grows_over_a_forced_release(world: World) -> None:
    alice, bob = world.actors(2)
    first = await alice.acquire("job")
    await bob.force_release("job")
    assert (await bob.acquire("job")).token > first.token


async def test_tokens_of_many_grants_in_a_row_are_strictly_growing(world: World) -> None:
    alice, bob = world.actors(2)
    tokens = []
    for actor in [alice, bob, bob] * 10:
        lease = await actor.acquire("job")
        tokens.append(lease.token)
        await actor.release(lease)
    assert tokens == sorted(set(tokens))


async def test_renewal_keeps_the_token(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=1)
    token = lease.token
    await auntil(renewal_of(lease))
    assert lease.token == token == (await world.inspect("job")).token


async def test_extending_keeps_the_token(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    token = lease.token
    await alice.extend(lease, 60)
    assert lease.token == token == (await world.inspect("job")).token


async def test_re_entry_keeps_the_token(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job", reentrant=True)
    assert (await alice.acquire(lock)).token == (await alice.acquire(lock)).token


async def test_a_token_is_an_int_that_a_double_can_hold(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    assert type(lease.token) is int
    assert 0 < lease.token < 2**53


async def test_a_token_is_near_the_wall_clock_or_a_number_that_the_engine_never_forgets(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    assert alice.client.capabilities.durable_fence or lease.token / 1e6 == pytest.approx(time.time(), abs=60)


async def test_the_onlooker_sees_the_holders_token_and_owner(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    info = await world.inspect("job")
    assert (info.token, info.owner) == (lease.token, lease.owner)


async def test_every_attempt_has_an_owner_id_of_its_own(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job")
    owners = set()
    for _ in range(20):
        lease = await alice.acquire(lock)
        owners.add(lease.owner)
        await alice.release(lease)
    assert len(owners) == 20


async def test_an_owner_id_has_at_least_128_bits(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    assert isinstance(lease.owner, str)
    assert len(lease.owner) >= 22  # 128 bits in the densest printable alphabet in use, base 64
    if set(lease.owner.lower()) <= set("0123456789abcdef-"):
        assert len(lease.owner.replace("-", "")) >= 32
