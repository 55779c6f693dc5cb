"""`lazy_release`: a release that does not wait for the store's answer."""

import asyncio
import gc
import logging
from typing import Any

import pytest

from gripfast import ConfigurationError, LeaseLost
from gripfast.testing.colours import World
from gripfast.testing.fixtures import needs, unless
from gripfast.testing.observing import Recorder, broken_stories
from gripfast.testing.waiting import auntil


def ledger_of(actor: Any) -> int:
    """Owner ids that may still have something at the store."""
    return len(actor.client._runtime.env.ledger)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "gripfast.lease" and record.levelno >= logging.WARNING
    ]


@needs("lazy_release")
async def test_a_released_lock_is_free_and_the_lease_is_over_at_once(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", lazy_release=True)
    await alice.release(lease)
    assert not lease.held
    await alice.release(lease)
    next_one = await bob.acquire("job")
    assert next_one.token > lease.token
    with pytest.raises(LeaseLost):
        await alice.does(lease.ensure_held)


@needs("lazy_release")
async def test_the_next_attempt_of_the_same_client_comes_behind_the_release(world: World) -> None:
    alice = world.actor()
    others = world.actors(3, alice.client)
    tokens = []
    for number in range(60):
        lease = await alice.try_acquire("job", lazy_release=True)
        assert lease is not None, number
        tokens.append(lease.token)
        await alice.release(lease)
        other = await others[number % 3].try_acquire("job", lazy_release=bool(number % 2))
        assert other is not None, number
        tokens.append(other.token)
        await others[number % 3].release(other)
        assert await alice.inspect("job") is None
    assert tokens == sorted(set(tokens))


@needs("lazy_release")
async def test_every_waiter_gets_it(world: World) -> None:
    """In the order in which they came, if the store serves them so."""
    alice, *others = world.actors(4)
    served: list[int] = []

    async def wait(number: int) -> None:
        lease = await others[number].acquire("job", lazy_release=True)
        served.append(number)
        await others[number].release(lease)

    lease = await alice.acquire("job", lazy_release=True)
    waiting = []
    for number in range(3):
        waiting.append(asyncio.ensure_future(wait(number)))
        await world.queued("job", number + 1)
    await alice.release(lease)
    await asyncio.gather(*waiting)
    assert served == [0, 1, 2] or not alice.client.capabilities.fair
    assert len(served) == 3


@needs("lazy_release")
async def test_the_answer_is_read_within_a_second_or_so_though_nobody_asks_for_anything(world: World) -> None:
    alice = world.actor()
    await alice.release(await alice.acquire("job", lazy_release=True))
    await auntil(lambda: ledger_of(alice) == 0, within=3)


@needs("lazy_release")
async def test_a_late_not_yours_is_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", lazy_release=True)
    await bob.force_release("job")
    other = await bob.acquire("job")
    caplog.clear()
    await alice.release(lease)
    await auntil(lambda: ledger_of(alice) == 0, within=3)
    told = [text for text in warnings(caplog) if "already lost" in text]
    assert len(told) == 1
    assert "'job'" in told[0]
    assert other.held
    assert (await world.inspect("job")).owner == other.owner


@needs("lazy_release")
async def test_a_lease_that_was_lost_before_is_told_as_always(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=0.2, renew=False, lazy_release=True)
    await auntil(lambda: not lease.held)
    with pytest.raises(LeaseLost):
        await alice.release(lease)


@needs("lazy_release")
async def test_blocks_several_locks_and_decorators(world: World) -> None:
    alice, bob = world.actors(2)

    async def body(lease: Any) -> int:
        return int(lease.token)

    first = await alice.inside("job", body, lazy_release=True)
    second = await alice.inside("job", body, lazy_release=True)
    assert second > first
    several = alice.client.locks("a", "b", lazy_release=True)
    for _ in range(3):
        leases = await alice.acquire(several)
        await alice.release(leases)
    assert len([await bob.acquire(name) for name in ("a", "b", "job")]) == 3
    decorated = alice.client.locked("other", lazy_release=True)(alice.function(lambda: 7))
    assert [await alice.calls(decorated) for _ in range(3)] == [7, 7, 7]


@needs("lazy_release")
async def test_a_closed_client_has_released_everything(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alice, bob = world.actors(2)
    for name in ("a", "b", "c"):
        lease = await alice.acquire(name, lazy_release=True)
        if name == "c":
            await bob.force_release(name)
            caplog.clear()
        await alice.release(lease)
    await world.colour.disconnect(alice.client)
    assert [await bob.inspect(name) for name in ("a", "b", "c")] == [None] * 3
    assert len([text for text in warnings(caplog) if "already lost" in text]) == 1
    assert ledger_of(alice) == 0


@needs("lazy_release")
async def test_a_dropped_client_has_released_everything(world: World) -> None:
    bob = world.actor()
    client = world.colour.connect(world.url)
    alice = world.colour(client)
    await alice.release(await alice.acquire("job", lazy_release=True))
    alice._kept.clear()
    await alice.leaves()
    del alice, client
    gc.collect()
    assert (await bob.acquire("job")).held


@needs("lazy_release")
async def test_observers_are_told_of_one_end_each(world: World) -> None:
    told = Recorder()
    alice = world.actor(observers=[told])
    for _ in range(5):
        await alice.release(await alice.acquire("job", lazy_release=True))
    lease = await alice.acquire("job", lazy_release=True)
    await world.actor().force_release("job")
    await alice.release(lease)
    await auntil(lambda: ledger_of(alice) == 0, within=3)
    await world.colour.disconnect(alice.client)
    assert broken_stories(told.events) == []
    assert [event.kind for event in told.events].count("released") == 6


@needs("lazy_release")
async def test_it_is_reentrant_too(world: World) -> None:
    alice, bob = world.actors(2)
    lock = alice.client.lock("job", reentrant=True, lazy_release=True)
    outer = await alice.acquire(lock)
    inner = await alice.acquire(lock)
    await alice.release(inner)
    assert outer.held
    await alice.release(outer)
    assert (await bob.acquire("job")).held


@needs("lazy_release", "hands_over")
async def test_a_detached_lease_is_not_released_by_it(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", lazy_release=True)
    text = await alice.does(lease.detach)
    await alice.release(lease)
    adopted = await bob.does(lambda: bob.client.adopt(text))
    assert adopted.held


@needs("lazy_release")
async def test_who_waits_for_an_answer_and_who_does_not_take_turns(world: World) -> None:
    """Several actors of one client and of others, lazy or not: one holder at a time."""
    crowd = [*world.actors(3, world.connect()), *world.actors(3)]
    inside = 0

    async def work(actor: Any, number: int) -> None:
        nonlocal inside
        for turn in range(10):
            lease = await actor.acquire("job", lazy_release=bool((number + turn) % 3))
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1
            await actor.release(lease)

    await asyncio.gather(*(work(actor, number) for number, actor in enumerate(crowd)))


@unless("lazy_release")
async def test_a_store_that_always_waits_says_so(world: World) -> None:
    alice = world.actor()
    with pytest.raises(ConfigurationError, match=r"capabilities\.lazy_release"):
        alice.client.lock("job", lazy_release=True)
    assert await alice.try_acquire("job", lazy_release=alice.client.capabilities.lazy_release) is not None


@needs("lazy_release", "keeps")
async def test_it_does_not_go_together_with_a_min_hold(world: World) -> None:
    with pytest.raises(ConfigurationError, match="min_hold"):
        world.connect().lock("job", lazy_release=True, min_hold=5)
