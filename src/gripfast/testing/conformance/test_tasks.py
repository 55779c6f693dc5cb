"""What only asyncio code can do: be cancelled, lose a lease in the middle of a body, meet a second event loop."""

import asyncio
import contextvars
import logging
import time
from typing import Any

import pytest

import gripfast
from gripfast import GripfastError, LeaseLost
from gripfast.testing.colours import World
from gripfast.testing.waiting import auntil, until

SHORT: dict[str, Any] = {"ttl": 0.1, "renew": False}


async def for_ever(lease: Any) -> None:
    await asyncio.Event().wait()


async def test_a_cancelled_waiter_leaves_the_queue(tasks: World) -> None:
    alice, bob = tasks.actors(2)
    await alice.acquire("job")
    waiting = bob.acquire("job")
    await tasks.queued("job", 1)
    bob.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await tasks.queued("job", 0)


async def test_the_next_in_line_is_served_when_the_first_is_cancelled(tasks: World) -> None:
    alice, bob, carol = tasks.actors(3)
    lease = await alice.acquire("job")
    bob.acquire("job")
    await tasks.queued("job", 1)
    waiting = carol.acquire("job")
    await tasks.queued("job", 2)
    bob.task.cancel()
    await alice.release(lease)
    assert (await waiting).held


@pytest.mark.parametrize("turns", range(8))
async def test_an_acquire_cancelled_after_a_few_turns_of_the_loop_leaves_nothing(tasks: World, turns: int) -> None:
    client = tasks.connect()

    async def hold() -> None:
        async with client.lock("job", ttl=30):
            await asyncio.Event().wait()

    holding = asyncio.create_task(hold())
    for _ in range(turns):
        await asyncio.sleep(0)
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    await tasks.free("job", within=1)


async def test_a_cancelled_acquire_by_timeout_raises_timeout_and_leaves_nothing(tasks: World) -> None:
    alice, bob = tasks.actors(2)
    await alice.acquire("job")

    async def impatient() -> None:
        async with asyncio.timeout(0.1):
            await bob.client.lock("job").acquire()

    with pytest.raises(TimeoutError):
        await impatient()
    await tasks.queued("job", 0)


async def test_a_cancelled_body_frees_the_lock_and_stays_cancelled(tasks: World) -> None:
    alice = tasks.actor()
    inside = alice.inside("job", for_ever)

    async def is_held() -> bool:
        return await tasks.inspect("job") is not None

    await auntil(is_held)
    alice.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await inside
    await tasks.free("job")


async def test_a_body_is_cancelled_when_its_lease_is_lost(tasks: World) -> None:
    alice = tasks.actor()
    start = time.monotonic()
    with pytest.raises(LeaseLost) as caught:
        await alice.inside("job", for_ever, **SHORT)
    assert caught.value.reason == "expired"
    assert time.monotonic() - start < 2
    assert alice.task.cancelling() == 0
    assert (await alice.acquire("job")).held


async def test_the_body_of_an_acquired_lease_is_cancelled_when_it_is_lost(tasks: World) -> None:
    alice = tasks.actor()
    with pytest.raises(LeaseLost):
        await alice.inside_acquired("job", for_ever, **SHORT)
    assert alice.task.cancelling() == 0


async def test_a_body_is_cancelled_when_the_lease_is_broken(tasks: World) -> None:
    alice, operator = tasks.actors(2)
    # Long enough that the next renewal, which is told of it, has its answer before the deadline on a busy machine.
    is_in = asyncio.Event()

    async def body(lease: Any) -> None:
        is_in.set()
        await for_ever(lease)

    inside = alice.inside("job", body, ttl=1.5)
    await is_in.wait()
    assert await operator.force_release("job")
    with pytest.raises(LeaseLost) as caught:
        await inside
    assert caught.value.reason in (("broken", "session") if alice.client.capabilities.session else ("broken",))


async def test_a_body_is_cancelled_at_max_hold(tasks: World) -> None:
    alice = tasks.actor()
    with pytest.raises(LeaseLost) as caught:
        await alice.inside("job", for_ever, max_hold=0.1)
    assert caught.value.reason == "max_hold"
    await tasks.free("job")


async def test_a_body_that_swallows_the_cancel_still_ends_in_a_loss(tasks: World) -> None:
    alice = tasks.actor()

    async def stubborn(lease: Any) -> None:
        try:
            await for_ever(lease)
        except asyncio.CancelledError:
            pass

    with pytest.raises(LeaseLost):
        await alice.inside("job", stubborn, **SHORT)
    assert alice.task.cancelling() == 0


async def test_the_innermost_lost_lease_ends_the_inner_body_only(tasks: World) -> None:
    alice = tasks.actor()
    came_out = []

    async def outer(lease: Any) -> str:
        try:
            async with alice.client.lock("inner", **SHORT):
                await for_ever(lease)
        except LeaseLost as error:
            came_out.append(error.name)
        lease.ensure_held()
        return "the outer body went on"

    assert await alice.inside("outer", outer) == "the outer body went on"
    assert came_out == ["inner"]


async def test_a_cancel_from_outside_wins_over_the_loss(tasks: World) -> None:
    alice = tasks.actor()

    async def lost_and_cancelled(lease: Any) -> None:
        until(lease.lost.is_set)  # the loop stands still: nobody can have cancelled the body for the loss
        alice.task.cancel()
        await for_ever(lease)

    inside = alice.inside("job", lost_and_cancelled, **SHORT)
    with pytest.raises((asyncio.CancelledError, LeaseLost)):
        await inside
    assert alice.task.cancelling() > 0 or alice.task.done()


async def test_a_timeout_around_the_body_is_still_a_timeout(tasks: World) -> None:
    client = tasks.connect()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), client.lock("job"):
            await asyncio.Event().wait()
    await tasks.free("job")


async def test_a_loss_inside_a_timeout_is_a_loss(tasks: World) -> None:
    client = tasks.connect()
    with pytest.raises(LeaseLost):
        async with asyncio.timeout(10), client.lock("job", **SHORT):
            await asyncio.Event().wait()


async def test_a_stalled_loop_does_not_make_a_lease_lie(tasks: World) -> None:
    alice = tasks.actor()
    lease = await alice.acquire("job", **SHORT)
    until(lease.lost.is_set)  # no task can run meanwhile
    assert not lease.held
    assert lease.remaining() == 0.0
    with pytest.raises(LeaseLost):
        lease.ensure_held()


async def test_on_lost_may_be_a_coroutine_function(tasks: World) -> None:
    alice = tasks.actor()
    told: list[tuple[int, str]] = []

    async def on_lost(lease: Any, reason: str) -> None:
        await asyncio.sleep(0)
        told.append((lease.token, reason))

    lease = await alice.acquire("job", on_lost=on_lost, **SHORT)
    await auntil(lambda: told)
    assert told == [(lease.token, "expired")]


async def test_an_error_in_a_coroutine_on_lost_is_logged(tasks: World, caplog: pytest.LogCaptureFixture) -> None:
    alice = tasks.actor()

    async def on_lost(lease: Any, reason: str) -> None:
        raise KeyError("the callback's own")

    with caplog.at_level(logging.WARNING, "gripfast"):
        await alice.acquire("job", on_lost=on_lost, **SHORT)
        await auntil(lambda: "the callback's own" in caplog.text)
    assert (await alice.acquire("job")).held


async def test_a_slow_coroutine_callback_does_not_delay_anothers_notice(tasks: World) -> None:
    alice = tasks.actor()
    finish = asyncio.Event()

    async def slow(lease: Any, reason: str) -> None:
        await finish.wait()

    await alice.acquire("slow", on_lost=slow, **SHORT)
    other = await alice.acquire("other", **SHORT)
    assert await alice.hears_of_loss(other, 5)
    finish.set()


async def test_a_lock_object_shared_by_child_tasks_does_not_mix_them_up(tasks: World) -> None:
    client = tasks.connect()
    shared = client.lock("job", reentrant=True)
    marker: contextvars.ContextVar[str] = contextvars.ContextVar("marker")
    async with shared:
        marker.set("copied into the child")
        child = asyncio.create_task(shared.try_acquire())  # a child task inherits its parent's context, not its lease
        assert await child is None


async def test_a_client_used_in_a_second_event_loop_says_so(tasks: World) -> None:
    client = tasks.connect()
    lease = await client.lock("job").acquire(wait=5)

    def elsewhere() -> None:
        async def use() -> None:
            await client.lock("other job").acquire(wait=0)

        asyncio.run(use())

    with pytest.raises(GripfastError, match="loop"):
        await asyncio.to_thread(elsewhere)
    assert lease.held


def test_a_client_whose_loop_is_gone_says_so(url: str) -> None:
    client = gripfast.connect_async(url)

    async def use() -> None:
        await (await client.lock("job").acquire(wait=5)).release()

    asyncio.run(use())
    with pytest.raises(GripfastError, match="loop"):
        asyncio.run(use())


def test_an_async_client_may_be_made_before_there_is_a_loop(url: str) -> None:
    client = gripfast.connect_async(url)
    lock = client.lock("job")

    async def use() -> int:
        async with client, lock as lease:
            return int(lease.token)

    assert asyncio.run(use()) > 0
