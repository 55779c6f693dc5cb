"""One holder at a time, whoever asks and however."""

import time
from typing import Any

import pytest

from gripfast import LockTimeout
from gripfast.testing.colours import World


async def test_a_free_lock_is_granted(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    assert lease.held
    assert lease.name == "job"


async def test_a_held_lock_is_not_granted_to_another_client(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    assert await bob.try_acquire("job") is None


async def test_a_released_lock_is_granted_again(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.release(await alice.acquire("job"))
    assert (await bob.try_acquire("job")).held


async def test_locks_of_different_names_do_not_exclude_each_other(world: World) -> None:
    alice, bob = world.actors(2)
    assert (await alice.try_acquire("job")).held
    assert (await bob.try_acquire("other job")).held


async def test_two_lock_objects_of_one_name_are_one_lock(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire(alice.client.lock("job"))
    assert await alice.try_acquire(alice.client.lock("job")) is None
    await alice.release(lease)
    assert await alice.try_acquire(alice.client.lock("job")) is not None


async def test_a_lock_that_is_not_reentrant_times_out_against_its_own_holder(world: World) -> None:
    alice = world.actor()
    lock = alice.lock("job")
    lease = await alice.acquire(lock)
    with pytest.raises(LockTimeout):
        await alice.acquire(lock, wait=0)
    assert lease.held


async def test_wait_none_waits_until_the_lock_is_free(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    waiting = bob.acquire("job", wait=None)
    await world.queued("job", 1)
    await alice.release(lease)
    assert (await waiting).held


async def test_wait_zero_takes_a_free_lock(world: World) -> None:
    alice = world.actor()
    assert (await alice.acquire("job", wait=0)).held


async def test_wait_zero_gives_up_on_a_held_lock_at_once(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    before = time.monotonic()
    with pytest.raises(LockTimeout):
        await bob.acquire("job", wait=0)
    assert time.monotonic() - before < 0.5


async def test_a_timeout_tells_who_holds_the_lock(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", label="nightly import")
    with pytest.raises(TimeoutError) as caught:
        await bob.acquire("job", wait=0.05)
    error = caught.value
    assert isinstance(error, LockTimeout)
    assert error.name == "job"
    assert error.holder is not None
    assert (error.holder.owner, error.holder.token) == (lease.owner, lease.token)
    assert error.waited == pytest.approx(0.05, abs=0.5)


async def test_the_message_of_a_timeout_names_host_pid_label_and_seconds(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job", label="nightly import")
    with pytest.raises(LockTimeout) as caught:
        await bob.acquire("job", wait=0.05)
    holder, message = caught.value.holder, str(caught.value)
    assert holder is not None
    for word in ("job", holder.host, str(holder.pid), "nightly import"):
        assert word in message
    assert any(character.isdigit() for character in message.replace(str(holder.pid), "").replace(holder.host, ""))


async def test_the_with_statement_holds_the_lock_while_its_body_runs(world: World) -> None:
    alice, bob = world.actors(2)

    async def body(lease: Any) -> Any:
        assert lease.held
        assert await bob.try_acquire("job") is None
        return lease

    lease = await alice.inside("job", body)
    assert not lease.held
    assert await bob.try_acquire("job") is not None


async def test_an_acquired_lease_is_a_context_manager_too(world: World) -> None:
    alice, bob = world.actors(2)

    async def body(lease: Any) -> None:
        assert lease.held
        assert await bob.try_acquire("job") is None

    await alice.inside_acquired("job", body)
    assert await bob.try_acquire("job") is not None


async def test_a_lease_got_earlier_can_still_be_entered(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")

    async def body(entered: Any) -> None:
        assert entered is lease
        assert lease.held

    await alice.enters(lambda: lease, body)
    await world.free("job")


async def test_an_error_in_the_body_comes_out_and_frees_the_lock(world: World) -> None:
    alice = world.actor()

    async def body(lease: Any) -> None:
        raise KeyError("the body's own")

    with pytest.raises(KeyError, match="the body's own"):
        await alice.inside("job", body)
    assert await world.inspect("job") is None


async def test_the_body_is_not_entered_when_the_lock_was_not_got(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    entered = []

    async def body(lease: Any) -> None:
        entered.append(lease)

    with pytest.raises(LockTimeout):
        await bob.inside_acquired("job", body, wait=0.05)
    assert entered == []


async def test_release_is_idempotent(world: World) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    await alice.release(lease)
    await alice.release(lease)
    assert not lease.held
    assert lease.remaining() == 0.0


async def test_releasing_inside_the_with_statement_is_allowed(world: World) -> None:
    alice = world.actor()
    helper = world.actor(alice.client)
    await alice.inside("job", helper.release)
    assert await world.inspect("job") is None


async def test_a_second_release_does_not_free_the_next_holders_lock(world: World) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    await alice.release(lease)
    of_bob = await bob.acquire("job")
    await alice.release(lease)
    assert (await world.inspect("job")).owner == of_bob.owner


async def test_a_lease_can_be_released_by_another_thread_or_task(world: World) -> None:
    alice = world.actor()
    bob = world.actor(alice.client)
    lease = await alice.acquire("job")
    await bob.release(lease)
    assert not lease.held
    assert await world.inspect("job") is None


async def test_actors_that_share_a_lock_object_have_leases_of_their_own(world: World) -> None:
    alice = world.actor()
    bob = world.actor(alice.client)
    shared = alice.lock("job")
    of_alice = await alice.acquire(shared)
    waiting = bob.acquire(shared)
    await world.queued("job", 1)
    await alice.release(of_alice)
    of_bob = await waiting
    await alice.release(of_alice)
    assert of_bob.held
    assert of_bob.owner != of_alice.owner
    assert (await world.inspect("job")).owner == of_bob.owner


async def test_a_shared_lock_object_used_by_with_releases_the_leavers_lease(world: World) -> None:
    actors = world.actors(4, client=world.connect())
    shared = actors[0].lock("job")
    inside: list[Any] = []

    async def body(lease: Any) -> None:
        inside.append(lease)
        assert [one.held for one in inside] == [False] * (len(inside) - 1) + [True]

    for entering in [actor.inside(shared, body) for actor in actors * 5]:
        await entering
    assert len({lease.owner for lease in inside}) == 20


async def test_an_unprotected_counter_under_the_lock_loses_no_increment(world: World) -> None:
    counter = {"value": 0}

    async def increment(lease: Any) -> None:
        seen = counter["value"]
        await world.inspect("job")  # long enough for anyone to get in between, were it possible
        counter["value"] = seen + 1

    for entering in [actor.inside("job", increment) for actor in world.actors(4) * 5]:
        await entering
    assert counter["value"] == 20
