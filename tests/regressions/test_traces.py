"""The trace of a holder reaches those who wait for it, on every store, and comes back as it was given."""

from __future__ import annotations

from gripfast.testing.observing import Recorder
from regressions.redis_stage import played
from support.colours import World
from support.waiting import auntil

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Tells(Recorder):
    def traceparent(self) -> str | None:
        return TRACE


@played
async def test_the_trace_of_the_holder_is_told_to_who_waits(world: World) -> None:
    seen = Recorder()
    alice, bob = world.actor(observers=[Tells()]), world.actor(observers=[seen])
    lease = await alice.acquire("job", label="alice's")
    info = await world.inspect("job")
    assert (info.label, info.trace) == ("alice's", TRACE)
    waiting = bob.acquire("job")
    await world.queued("job", 1)
    await alice.release(lease)
    await waiting
    assert (await world.inspect("job")).trace is None
    await auntil(lambda: seen.of("job", "granted"))
    (granted,) = seen.of("job", "granted")
    assert (granted.queued, granted.trace) == (True, None)
    assert granted.holder_trace in (TRACE, None)  # some stores can't tell a waiter who the holder is
    if bob.client.capabilities.push and bob.client.capabilities.fair:
        assert granted.holder_trace == TRACE


@played
async def test_what_is_granted_at_once_was_not_queued(world: World) -> None:
    seen = Recorder()
    alice, bob = world.actor(observers=[seen]), world.actor()
    await alice.release(await alice.acquire("job"))
    lease = await bob.acquire("job")
    assert await alice.try_acquire("job") is None
    await bob.release(lease)
    await auntil(lambda: seen.of("job", "refused"))
    assert {event.queued for event in seen.of("job")} == {False}
