"""Every claim has one end, and every lease that was granted: what observers count never drifts."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gripfast
from gripfast.machine import boottime
from gripfast.runtime import observers
from gripfast.testing.observing import Recorder, broken_stories
from regressions.redis_stage import played
from support.colours import COLOURS, World
from support.redis_server import RedisServer
from support.waiting import auntil, until


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, server: RedisServer) -> World:
    return World(server.url_with(request_timeout=1), COLOURS[request.param])


@played
async def test_a_claim_that_can_not_reach_its_store_is_told_with_the_error(
    world: World, seen: Recorder, server: RedisServer
) -> None:
    alice = world.actor(observers=[seen])
    server.stop()
    with pytest.raises(gripfast.StoreUnavailable) as caught:
        await alice.try_acquire("job")
    await auntil(lambda: seen.kinds("job") == ["claimed", "unreachable"])
    told = seen.of("job", "unreachable")[0]
    assert (told.request, str(told.error), told.store) == ("claim", str(caught.value), alice.client.where)


@played
async def test_renewals_that_can_not_reach_the_store_are_told_before_the_loss(
    world: World, seen: Recorder, server: RedisServer
) -> None:
    alice = world.actor(observers=[seen])
    lease = await alice.acquire("job", ttl=4)
    server.pause()
    await auntil(lambda: seen.of("job", "lost"), within=20)
    server.resume()
    assert not lease.held
    await world.colour.disconnect(alice.client)
    assert {event.request for event in seen.of("job", "unreachable")} == {"renew"}
    assert seen.of("job", "lost")[0].reason == "expired"
    assert broken_stories(seen.events) == []


@played
async def test_a_release_that_can_not_reach_the_store_is_told_and_the_lease_ends(
    world: World, seen: Recorder, server: RedisServer
) -> None:
    alice = world.actor(observers=[seen])
    lease = await alice.acquire("job")
    server.pause()
    await alice.release(lease)
    server.resume()
    await auntil(lambda: seen.kinds("job") == ["claimed", "granted", "unreachable", "released"])
    assert seen.of("job", "unreachable")[0].request == "release"


def test_an_expired_lease_that_a_release_finds_first_is_told_as_lost_once(
    seen: Recorder, observed: gripfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime: Any = observed._start()
    tell: Callable[[], float] = runtime._losses.tell
    over = threading.Event()
    monkeypatch.setattr(runtime._losses, "tell", lambda: tell() if over.is_set() else boottime() + 0.01)
    lease = observed.lock("job", ttl=0.03, renew=False).acquire()
    until(lambda: not lease.held)
    with pytest.raises(gripfast.LeaseLost):
        lease.release()
    over.set()
    until(lambda: seen.kinds("job") == ["claimed", "granted", "lost"])
    observed.close()
    assert broken_stories(seen.events) == []


@pytest.fixture
def all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is when a client is closed."""
    monkeypatch.setattr(observers, "LAST_WORDS", 20.0)


NAMES = ("one", "two", "three")
CROWD = 6
SEEDS = range(3)
TOLD = {"claimed", "granted", "refused", "released", "lost"}

Chance = random.Random


def settings(chance: Chance) -> dict[str, Any]:
    """Of one lock: most are renewed, some end by themselves while they are held."""
    kinds: list[dict[str, Any]] = [{}, {}, {"ttl": 0.02, "renew": False}, {"max_hold": 0.01}, {"reentrant": True}]
    return {"name": chance.choice(NAMES), **chance.choice(kinds)}


def one_step(client: gripfast.Client, chance: Chance) -> None:
    lock = client.lock(**settings(chance))
    step = chance.choice(["with", "with", "acquire", "try", "drop", "raise", "lose", "break"])
    if step == "with":
        with lock:
            until(lambda: chance.random() < 0.5)
    elif step == "acquire":
        lock.acquire(wait=chance.choice([0.0, 0.003, 0.05])).release()
    elif step == "try":
        if (lease := lock.try_acquire()) is not None:
            lease.release()
    elif step == "drop":
        lock.acquire(wait=0.01)
    elif step == "raise":
        with lock.acquire(wait=0.05):
            raise ZeroDivisionError
    elif step == "lose":
        lease = lock.acquire(wait=0.05)
        lease.lost.wait(0.03)
        lease.release()
    else:
        client.force_release(chance.choice(NAMES))


def steps_until_closed(client: gripfast.Client, chance: Chance) -> None:
    while True:
        with contextlib.suppress(gripfast.LockTimeout, gripfast.LeaseLost, ZeroDivisionError):
            try:
                one_step(client, chance)
            except gripfast.ClientClosed:
                return


@pytest.mark.usefixtures("all_is_told")
@pytest.mark.filterwarnings("ignore:lease on .* was dropped:ResourceWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_crowd_of_threads_every_claim_has_one_end(seed: int, seen: Recorder) -> None:
    client = gripfast.connect("memory://", observers=[seen])
    chances = [Chance(f"{seed} {number}") for number in range(CROWD)]
    crowd = [threading.Thread(target=steps_until_closed, args=(client, chance), daemon=True) for chance in chances]
    for thread in crowd:
        thread.start()
    until(lambda: len(seen.events) > 1500, within=60.0)
    client.close()  # in the middle of everything
    assert broken_stories(seen.events) == []
    for thread in crowd:
        thread.join(20.0)
    assert not any(thread.is_alive() for thread in crowd)
    assert broken_stories(seen.events) == []
    assert {event.kind for event in seen.events} >= TOLD
    assert {event.reason for event in seen.events} >= {"taken", "dropped", "max_hold"}


async def one_async_step(client: gripfast.AsyncClient, chance: Chance) -> None:
    lock = client.lock(**settings(chance))
    step = chance.choice(["with", "with", "acquire", "try", "drop", "raise", "lose", "break"])
    if step == "with":
        async with lock:
            await auntil(lambda: chance.random() < 0.5)
    elif step == "acquire":
        await (await lock.acquire(wait=chance.choice([0.0, 0.003, 0.05]))).release()
    elif step == "try":
        if (lease := await lock.try_acquire()) is not None:
            await lease.release()
    elif step == "drop":
        await lock.acquire(wait=0.01)
    elif step == "raise":
        async with lock.acquire(wait=0.05):
            raise ZeroDivisionError
    elif step == "lose":
        lease = await lock.acquire(wait=0.05)
        await lease.lost.wait(0.03)
        await lease.release()
    else:
        await client.force_release(chance.choice(NAMES))


async def async_steps(client: gripfast.AsyncClient, chance: Chance) -> None:
    """Until it is cancelled, or the client is closed."""
    while True:
        with contextlib.suppress(gripfast.LockTimeout, gripfast.LeaseLost, ZeroDivisionError):
            try:
                await one_async_step(client, chance)
            except gripfast.ClientClosed:
                return


@pytest.mark.usefixtures("all_is_told")
@pytest.mark.filterwarnings("ignore:lease on .* was dropped:ResourceWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_crowd_of_tasks_every_claim_has_one_end_wherever_they_are_cancelled(seed: int, seen: Recorder) -> None:
    async def main() -> None:
        client = gripfast.connect_async("memory://", observers=[seen])
        chance = Chance(seed)
        crowd = [asyncio.create_task(async_steps(client, Chance(f"{seed} {number}"))) for number in range(CROWD)]

        def cancel_one() -> bool:
            victim = chance.randrange(CROWD)
            crowd[victim].cancel()
            crowd.append(crowd[victim])
            crowd[victim] = asyncio.create_task(async_steps(client, Chance(f"{seed} {len(crowd)}")))
            return len(seen.events) > 1500

        await auntil(cancel_one, within=60.0)
        await client.aclose()  # in the middle of everything
        assert broken_stories(seen.events) == []
        await asyncio.wait(crowd, timeout=20.0)

    asyncio.run(main())
    assert broken_stories(seen.events) == []
    assert {event.kind for event in seen.events} >= TOLD
    assert {event.reason for event in seen.events} >= {"taken", "dropped", "cancelled"}
