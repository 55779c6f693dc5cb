"""On one key, Gripfast and every other library exclude each other, and none can touch what is the other's."""

import pytest
from redis import Redis

from gripfast import LeaseLost, LockTimeout
from interop.foreign import Foreign
from support.colours import World, renewal_of
from support.waiting import auntil

TTL = 30.0


async def test_while_they_hold_it_gripfast_does_not_get_it(
    foreign: Foreign, world: World, key: str, onlooker: Redis
) -> None:
    alice = world.actor()
    held = foreign.acquire(key, TTL)
    value = onlooker.get(key)
    assert await alice.try_acquire("job") is None
    with pytest.raises(LockTimeout):
        await alice.acquire("job", wait=0.05)
    assert onlooker.get(key) == value
    assert foreign.release(held)
    assert (await alice.try_acquire("job")).held


async def test_asking_does_not_change_how_long_they_hold_it(
    foreign: Foreign, world: World, key: str, onlooker: Redis
) -> None:
    foreign.acquire(key, TTL)
    expires_at = onlooker.pexpiretime(key)
    alice = world.actor()
    assert await alice.try_acquire("job", ttl=600) is None
    with pytest.raises(LockTimeout):
        await alice.acquire("job", wait=0.05, ttl=600)
    assert onlooker.pexpiretime(key) == expires_at


async def test_while_gripfast_holds_it_they_are_refused(foreign: Foreign, world: World, key: str) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    assert foreign.acquire(key, TTL) is None
    assert lease.held
    await alice.release(lease)
    assert foreign.acquire(key, TTL) is not None


async def test_a_lease_that_is_renewed_keeps_everyone_out(everyone: list[Foreign], world: World, key: str) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=1)
    renewed = renewal_of(lease)

    def is_renewed_and_refuses_them() -> bool:
        assert [each.name for each in everyone if each.acquire(key, TTL)] == []
        return renewed()

    for _ in range(4):
        await auntil(is_renewed_and_refuses_them)
    lease.ensure_held()


async def test_they_get_it_when_a_lease_expires(foreign: Foreign, world: World, key: str) -> None:
    alice = world.actor()
    await alice.acquire("job", ttl=0.1, renew=False)
    held = await auntil(lambda: foreign.acquire(key, TTL))
    assert await alice.try_acquire("job") is None
    assert foreign.release(held)


async def test_they_can_neither_extend_nor_release_what_is_gripfasts(
    foreign: Foreign, world: World, key: str, onlooker: Redis
) -> None:
    """They believe to hold it, since an operator deleted their key behind their back."""
    alice = world.actor()
    for touch in (foreign.release, lambda held: foreign.extend(held, 600)):
        held = foreign.acquire(key, TTL)
        onlooker.delete(key)
        lease = await alice.acquire("job", ttl=TTL)
        assert not touch(held)
        assert onlooker.get(key) == lease.owner
        assert onlooker.pttl(key) <= TTL * 1000
        await alice.release(lease)


async def test_gripfast_does_not_release_what_is_theirs(
    foreign: Foreign, world: World, key: str, onlooker: Redis
) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=TTL, renew=False)
    onlooker.delete(key)
    held = foreign.acquire(key, TTL)
    value = onlooker.get(key)
    with pytest.raises(LeaseLost):
        await alice.release(lease)
    assert onlooker.get(key) == value
    assert foreign.release(held)


async def test_gripfast_does_not_extend_what_is_theirs(
    foreign: Foreign, world: World, key: str, onlooker: Redis
) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=TTL, renew=False)
    onlooker.delete(key)
    held = foreign.acquire(key, TTL)
    before = onlooker.get(key), onlooker.pexpiretime(key)
    with pytest.raises(LeaseLost) as caught:
        await alice.extend(lease, 600)
    assert caught.value.reason == "taken"
    assert (onlooker.get(key), onlooker.pexpiretime(key)) == before
    assert foreign.release(held)


async def test_a_holder_whose_key_they_took_is_told(foreign: Foreign, world: World, key: str, onlooker: Redis) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=1.5)
    onlooker.delete(key)
    held = foreign.acquire(key, TTL)
    assert await alice.hears_of_loss(lease)
    with pytest.raises(LeaseLost) as caught:
        lease.ensure_held()
    assert caught.value.reason == "taken"
    assert foreign.release(held)


async def test_tokens_grow_over_their_turns(foreign: Foreign, world: World, key: str) -> None:
    alice = world.actor()
    tokens = []
    for _ in range(3):
        lease = await alice.acquire("job")
        tokens.append(lease.token)
        await alice.release(lease)
        assert foreign.release(foreign.acquire(key, TTL))
    assert tokens == sorted(set(tokens))
