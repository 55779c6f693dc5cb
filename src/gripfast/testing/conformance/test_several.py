"""Several locks at once: all or none, in one order for everybody, one patience for all."""

import asyncio
from typing import Any

import pytest

from gripfast import ConfigurationError, LeaseLost, LockTimeout
from gripfast.testing.colours import World
from gripfast.testing.waiting import auntil


async def test_all_are_held_and_all_are_released(world: World) -> None:
    alice, bob = world.actors(2)
    leases = await alice.acquire(alice.client.locks("b", "a", "c"))
    assert leases.names == ("a", "b", "c")
    assert leases.held
    assert 0 < leases.remaining() <= 30
    leases.ensure_held()
    assert [await bob.try_acquire(name) for name in "abc"] == [None] * 3
    await alice.release(leases)
    assert not leases.held
    for name in "abc":
        lease = await bob.try_acquire(name)
        assert lease.token > leases.tokens[name]


async def test_a_block_holds_all_of_them(world: World) -> None:
    alice, bob = world.actors(2)

    async def body(leases: Any) -> None:
        assert leases.held
        assert await bob.try_acquire("a") is None
        assert await bob.try_acquire("b") is None

    await alice.inside(alice.client.locks("a", "b"), body)
    await alice.inside_acquired(alice.client.locks("a", "b"), body)
    assert await bob.try_acquire("a")
    assert await bob.try_acquire("b")


async def test_if_one_is_taken_none_is_held(world: World) -> None:
    alice, bob = world.actors(2)
    taken = await bob.acquire("b", label="bob's")
    assert await alice.try_acquire(alice.client.locks("a", "b", "c")) is None
    with pytest.raises(LockTimeout) as busy:
        await alice.acquire(alice.client.locks("a", "b", "c"), wait=0.05)
    assert busy.value.name == "b"
    assert busy.value.waited >= 0.05
    await bob.release(taken)
    assert await bob.try_acquire("a")
    assert await bob.try_acquire("c")


async def test_they_are_waited_for_in_one_order(world: World) -> None:
    """Each has what the other wants first: whoever gets the first gets all."""
    actors = world.actors(4)

    async def work(actor: Any, *names: str) -> None:
        for _ in range(5):
            await actor.release(await actor.acquire(actor.client.locks(*names)))

    orders = (("a", "b", "c"), ("c", "b", "a"), ("b", "c"), ("c", "a"))
    works = [work(actor, *names) for actor, names in zip(actors, orders, strict=True)]
    await asyncio.wait_for(asyncio.gather(*works), 60)


async def test_one_patience_is_for_all(world: World) -> None:
    alice, bob = world.actors(2)
    await bob.acquire("b")
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(LockTimeout):
        await alice.acquire(alice.client.locks("a", "b", wait=0.2), wait=0.1)
    assert 0.1 <= loop.time() - began < 5
    with pytest.raises(LockTimeout):
        await alice.does(lambda: alice.client.locks("a", "b", wait=0.05).acquire())


async def test_when_one_is_lost_all_are(world: World) -> None:
    alice, bob = world.actors(2)
    heard: list[tuple[Any, str]] = []
    locks = alice.client.locks("a", "b", ttl=1, on_lost=lambda leases, reason: heard.append((leases, reason)))
    leases = await alice.acquire(locks)
    await bob.force_release("b")
    assert await alice.hears_of_loss(leases) is True
    assert not leases.held
    with pytest.raises(LeaseLost) as lost:
        leases.ensure_held()
    assert lost.value.name == "b"
    await auntil(lambda: len(heard) == 1)
    assert heard[0][0] is leases
    with pytest.raises(LeaseLost):
        await alice.release(leases)
    assert await bob.try_acquire("a") is not None


async def test_a_block_that_lost_one_says_so_and_releases_the_others(world: World) -> None:
    alice, bob = world.actors(2)

    async def body(leases: Any) -> None:
        await bob.force_release("a")
        await auntil(leases.lost.is_set)

    with pytest.raises(LeaseLost):
        await alice.inside(alice.client.locks("a", "b", ttl=1), body)
    assert await bob.try_acquire("b") is not None


async def test_what_the_body_raises_is_raised(world: World) -> None:
    alice, bob = world.actors(2)

    async def body(leases: Any) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await alice.inside(alice.client.locks("a", "b"), body)
    assert await bob.try_acquire("a")
    assert await bob.try_acquire("b")


async def test_they_are_renewed_and_extended(world: World) -> None:
    alice = world.actor()
    leases = await alice.acquire(alice.client.locks("a", "b", ttl=2))
    before = leases.remaining()
    await auntil(lambda: leases.remaining() < before - 0.1)
    await auntil(lambda: leases.remaining() > before - 0.1)
    await alice.extend(leases, 1)
    assert 0 < leases.remaining() <= 1
    await alice.release(leases)


async def test_max_hold_is_for_all(world: World) -> None:
    alice, bob = world.actors(2)
    leases = await alice.acquire(alice.client.locks("a", "b", max_hold=0.2))
    assert leases.remaining() <= 0.2
    assert await alice.hears_of_loss(leases) is True
    await bob.acquire("a")
    await bob.acquire("b")


async def test_leases_that_nobody_keeps_are_released(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.does(lambda: alice.client.locks("a", "b").acquire(), then=lambda leases: None)
    await bob.acquire("a")
    await bob.acquire("b")


async def test_who_holds_one_of_them_is_refused(world: World) -> None:
    alice, bob = world.actors(2, client=world.connect())
    lease = await alice.acquire("b")
    with pytest.raises(ConfigurationError, match="has acquired 'b' before"):
        await alice.acquire(alice.client.locks("a", "b"))
    assert await bob.try_acquire(bob.client.locks("a", "b")) is None  # another one has to wait
    await alice.release(lease)
    await alice.release(await alice.acquire(alice.client.locks("a", "b")))


async def test_a_name_is_given_once(world: World) -> None:
    alice = world.actor()
    for names in (("a", "a"), ()):
        with pytest.raises(ConfigurationError):
            alice.client.locks(*names)
    with pytest.raises(TypeError, match=r"write locks\(\*names\)"):
        alice.client.locks(["a", "b"])
    with pytest.raises(TypeError, match="'renew': leave it out"):
        alice.client.locks("a", "b", renew=False)
