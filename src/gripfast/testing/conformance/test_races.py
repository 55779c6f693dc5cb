"""What happens at the same moment, and what is done from odd places: nothing is left behind, nobody is let in."""

import asyncio
import gc
import random
import threading
from typing import Any

import pytest

import gripfast
from gripfast import LeaseLost, LockTimeout
from gripfast.testing.colours import World
from gripfast.testing.fixtures import needs, unless
from gripfast.testing.waiting import auntil

SHORT: dict[str, Any] = {"ttl": 0.06, "renew": False}


async def hurry(actor: Any, dice: random.Random, rounds: int) -> int:
    """Try again and again with too little patience; return how often the lock was got."""
    got = 0
    for _ in range(rounds):
        try:
            await actor.release(await actor.acquire("job", wait=dice.uniform(0, 0.004)))
            got += 1
        except LockTimeout:
            pass
    return got


async def test_patience_that_ends_as_the_lock_is_handed_over_loses_nothing(world: World) -> None:
    dice = random.Random(7)
    got = await asyncio.gather(*(hurry(actor, dice, 15) for actor in world.actors(5)))
    assert sum(got) > 0
    await world.free("job")
    assert await world.actor().try_acquire("job") is not None


async def test_cancels_that_meet_the_hand_over_lose_nothing(tasks: World) -> None:
    client, dice = tasks.connect(), random.Random(7)

    async def take() -> None:
        async with client.lock("job", ttl=30):
            await asyncio.sleep(0)

    for _ in range(30):
        taking = [asyncio.create_task(take()) for _ in range(4)]
        for task in dice.sample(taking, 3):
            for _ in range(dice.randrange(12)):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait(taking)
    await tasks.free("job", within=2)
    assert await tasks.actor().try_acquire("job") is not None


async def test_two_releases_at_once_are_one(world: World) -> None:
    alice = world.actor()
    bob = world.actor(alice.client)
    for _ in range(10):
        lease = await alice.acquire("job")
        await asyncio.gather(alice.release(lease), bob.release(lease))
        assert not lease.held
        assert not lease.lost.is_set()


async def test_a_release_during_a_renewal_stays_a_release(world: World) -> None:
    alice = world.actor()
    bob = world.actor(alice.client)
    for _ in range(10):
        lease = await alice.acquire("job")
        extending = bob.extend(lease, 30)
        await alice.release(lease)
        await asyncio.wait([extending])
        assert await world.inspect("job") is None
        assert extending.exception() is None or not lease.lost.is_set()


async def test_a_new_thread_or_task_does_not_inherit_a_gone_ones_re_entry(world: World) -> None:
    client = world.connect()
    lock = client.lock("job", reentrant=True)
    lease = await world.actor(client).acquire(lock)
    for _ in range(20):  # threads and tasks that take the place, and often the number, of one that ended
        passer_by = world.actor(client)
        assert await passer_by.try_acquire(lock) is None
        await passer_by.leaves()
        gc.collect(0)
    assert lease.held


def test_a_thread_with_the_number_of_a_gone_one_does_not_re_enter(url: str) -> None:
    with gripfast.connect(url) as client:
        lock = client.lock("job", reentrant=True)
        kept: list[Any] = []
        for _ in range(10):
            thread = threading.Thread(target=lambda: kept.append(lock.try_acquire()))
            thread.start()
            thread.join()
        assert [lease is not None for lease in kept] == [True] + [False] * 9


async def test_a_callback_may_close_its_client(world: World) -> None:
    alice = world.actor()
    closed: list[bool] = []

    def close(lease: Any, reason: str) -> None:
        alice.client.close()
        closed.append(True)

    async def close_awaiting(lease: Any, reason: str) -> None:
        await alice.client.aclose()
        closed.append(True)

    await alice.acquire("job", on_lost={"blocking": close, "asyncio": close_awaiting}[alice.colour], **SHORT)
    await auntil(lambda: closed)


async def test_a_callback_may_take_the_lock_again(world: World) -> None:
    alice = world.actor()
    again: list[Any] = []

    def retake(lease: Any, reason: str) -> None:
        again.append(alice.client.lock("job").acquire(wait=5))

    async def retake_awaiting(lease: Any, reason: str) -> None:
        again.append(await alice.client.lock("job").acquire(wait=5))

    lost = await alice.acquire("job", on_lost={"blocking": retake, "asyncio": retake_awaiting}[alice.colour], **SHORT)
    await auntil(lambda: again)
    assert again[0].token > lost.token


async def test_a_callback_may_release_the_lost_lease(world: World) -> None:
    alice = world.actor()
    raised: list[Any] = []

    def release(lease: Any, reason: str) -> None:
        with pytest.raises(LeaseLost) as caught:
            lease.release()
        raised.append(caught.value.reason)

    async def release_awaiting(lease: Any, reason: str) -> None:
        with pytest.raises(LeaseLost) as caught:
            await lease.release()
        raised.append(caught.value.reason)

    await alice.acquire("job", on_lost={"blocking": release, "asyncio": release_awaiting}[alice.colour], **SHORT)
    await auntil(lambda: raised)
    assert raised == ["expired"]


async def test_a_patience_of_centuries_is_taken(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", ttl=86_400)
    waiting = bob.acquire("job", wait=1e12)
    await world.queued("job", 1)
    await alice.release(lease)
    assert (await waiting).held


async def test_a_loss_may_be_waited_for_for_centuries(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", **SHORT)
    assert await alice.hears_of_loss(lease, 1e12) is True


async def test_several_may_wait_for_one_loss(world: World) -> None:
    alice, bob, carol = world.actors(3, client=world.connect())
    lease = await alice.acquire("job", **SHORT)
    assert await asyncio.gather(*(actor.hears_of_loss(lease) for actor in (alice, bob, carol))) == [True] * 3


@needs("lists")
@unless("session")  # where each lease has a connection of its own, nobody has so many
async def test_a_listing_may_be_left_early(world: World) -> None:
    alice = world.actor()
    for n in range(150):
        await alice.acquire(f"job {n}")

    def first() -> Any:
        return next(iter(alice.client.list()))

    async def first_awaiting() -> Any:
        return await anext(aiter(alice.client.list()))

    info = await alice.does({"blocking": first, "asyncio": first_awaiting}[alice.colour])
    assert info.name.startswith("job")
    assert (await alice.acquire("another")).held


@needs("lists")
@unless("session")  # where each lease has a connection of its own, nobody has so many
async def test_a_listing_goes_on_while_locks_come_and_go(world: World) -> None:
    alice, bob = world.actors(2)
    for n in range(150):
        await alice.acquire(f"stays {n}")
    listing = bob.listing()
    for n in range(20):
        await alice.release(await alice.acquire(f"goes {n}"))
    names = [info.name for info in await listing]
    assert len(names) == len(set(names))
    assert {name for name in names if name.startswith("stays")} == {f"stays {n}" for n in range(150)}
