"""Clients: what they can do, and that nothing of them is left when they are closed."""

import asyncio
import dataclasses
import gc
from typing import Any

import pytest

from gripfast import Capabilities, GripfastError
from gripfast.testing.colours import World, open_files, running
from gripfast.testing.waiting import auntil


async def test_capabilities_are_a_frozen_dataclass_of_yes_and_no(world: World) -> None:
    capabilities = world.connect().capabilities
    assert isinstance(capabilities, Capabilities)
    with pytest.raises(dataclasses.FrozenInstanceError):
        capabilities.fair = False  # type: ignore[misc]
    for name in ("fair", "push", "session", "durable_fence", "lists", "waiters_seen"):
        assert type(getattr(capabilities, name)) is bool


async def test_closing_a_client_releases_what_it_holds(world: World) -> None:
    alice = world.actor()
    leases = [await alice.acquire(f"job {n}") for n in range(5)]
    await world.colour.disconnect(alice.client)
    for lease in leases:
        assert await world.inspect(lease.name) is None
        assert not lease.held


async def test_closing_a_client_hands_its_locks_to_the_waiters(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    waiting = bob.acquire("job")
    await world.queued("job", 1)
    await world.colour.disconnect(alice.client)
    assert (await waiting).held


async def test_closing_a_client_does_not_release_what_others_hold(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    await bob.try_acquire("job")
    await world.colour.disconnect(bob.client)
    assert lease.held
    assert (await world.inspect("job")).owner == lease.owner


async def test_a_client_can_be_closed_twice(world: World) -> None:
    alice = world.actor()
    await alice.acquire("job")
    await world.colour.disconnect(alice.client)
    await world.colour.disconnect(alice.client)


async def test_a_client_that_did_nothing_can_be_closed(world: World) -> None:
    await world.colour.disconnect(world.connect())


async def test_a_lease_of_a_closed_client_may_be_released_again(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    await world.colour.disconnect(alice.client)
    await alice.release(lease)
    assert not lease.lost.is_set()


async def test_a_closed_client_grants_nothing(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job")
    await alice.release(await alice.acquire(lock))
    await world.colour.disconnect(alice.client)
    with pytest.raises(GripfastError, match="closed"):
        await alice.acquire(lock, wait=0)


async def test_a_waiter_of_a_closed_client_ends_and_leaves_the_queue(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    waiting = bob.acquire("job", wait=0.5)
    await world.queued("job", 1)
    await world.colour.disconnect(bob.client)
    with pytest.raises(GripfastError):
        await asyncio.wait_for(waiting, 5)
    await world.queued("job", 0)


async def test_a_waiter_of_a_closed_client_is_granted_nothing(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    waiting = bob.acquire("job", wait=5)
    await world.queued("job", 1)
    await world.colour.disconnect(bob.client)
    await alice.release(lease)
    with pytest.raises(GripfastError):
        await asyncio.wait_for(waiting, 5)
    await world.free("job")


async def work_with(client: Any, world: World) -> None:
    """Use everything of a client that starts something: renewal, waiting, expiry, callbacks."""
    alice, bob, onlooker = world.actors(3, client)
    lease = await alice.acquire("job", ttl=1, on_lost=print)
    await alice.try_acquire("short", ttl=0.05, renew=False, on_lost=lambda lease, reason: None)
    waiting = bob.acquire("job")
    await world.queued("job", 1, seen_by=onlooker)
    await alice.release(lease)
    await waiting


async def test_closing_a_client_ends_its_threads_and_tasks(world: World) -> None:
    before = running()
    client = world.connect()
    await work_with(client, world)
    await world.colour.disconnect(client)
    await auntil(lambda: running() <= before)


async def test_closing_a_client_closes_its_files(world: World) -> None:
    await asyncio.to_thread(gc.collect)  # the loop has opened its own files for the sake of threads by now
    before = open_files()
    client = world.connect()
    await work_with(client, world)
    await world.colour.disconnect(client)
    await auntil(lambda: open_files().items() <= before.items())  # some of another test may be closed only now


async def test_one_client_has_few_threads_and_tasks_however_many_leases(world: World) -> None:
    alice = world.actor()
    await alice.acquire("first")
    before = len(running())
    for n in range(20):
        await alice.acquire(f"job {n}")
    await auntil(lambda: len(running()) <= before + 1)  # a thread that has made a connection may not have ended yet


async def test_a_client_that_is_dropped_unclosed_does_not_disturb_the_next(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    world.connect().lock("job")
    gc.collect()
    assert lease.held


async def test_a_client_is_a_context_manager(world: World) -> None:
    client = world.connect()

    def use() -> Any:
        with client as entered:
            assert entered is client
            return client.lock("job").acquire(wait=0)

    async def use_awaiting() -> Any:
        async with client as entered:
            assert entered is client
            return await client.lock("job").acquire(wait=0)

    lease = await world.actor(client).does({"blocking": use, "asyncio": use_awaiting}[world.colour.colour])
    assert not lease.held
    assert await world.inspect("job") is None
