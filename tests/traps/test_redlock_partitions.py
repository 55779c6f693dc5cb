"""Without a majority nobody gets in, nobody hears that the lock is taken, and all are told what is wrong where."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gripfast import LockTimeout, StoreUnavailable
from support.colours import COLOURS, World
from support.redlock_nodes import NODES
from support.waiting import auntil
from traps.redlock_cluster import Cluster

pytestmark = pytest.mark.in_turn(2)

NODE_TIMEOUT = 0.3
PATIENCE = 0.6
"""For nodes that can't be asked."""
SLACK = 2.0
"""Seconds that a busy machine may add."""

Break = Callable[[Cluster], None]
BREAKS: dict[str, Break] = {
    "three are down": lambda cluster: cluster.kill(0, 2, 4),
    "three are stopped": lambda cluster: cluster.pause(0, 2, 4),
    "two are down and one is stopped": lambda cluster: (cluster.kill(0, 2), cluster.pause(4))[0],
    "all are down": lambda cluster: cluster.kill(*range(NODES)),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(servers: Cluster) -> Iterator[Cluster]:
    servers.heal()
    yield servers
    servers.resume()


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, cluster: Cluster) -> World:
    return World(cluster.url(request_timeout=NODE_TIMEOUT, connect_patience=PATIENCE), COLOURS[request.param])


def where(cluster: Cluster, node: int) -> str:
    return f"redis://127.0.0.1:{cluster.nodes[node].port}/0"


async def is_told(cluster: Cluster, waiting: Any, patience: float) -> StoreUnavailable:
    """In time, with each node by its name."""
    start = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        await waiting
    assert time.monotonic() - start < patience + 2 * NODE_TIMEOUT + SLACK
    assert set(caught.value.nodes) == {where(cluster, node) for node in range(NODES)}
    return caught.value


@pytest.mark.parametrize("trouble", BREAKS)
async def test_who_can_not_reach_a_majority_is_told_so(world: World, cluster: Cluster, trouble: str) -> None:
    """It waited for ever."""
    alice = world.actor()
    await alice.release(await alice.acquire("warm-up"))
    BREAKS[trouble](cluster)
    await is_told(cluster, alice.try_acquire("job"), NODE_TIMEOUT)
    await is_told(cluster, alice.acquire("job", wait=0.5), 0.5)
    await is_told(cluster, alice.acquire("job", wait=None), PATIENCE)
    await is_told(cluster, alice.inspect("job"), NODE_TIMEOUT)
    await is_told(cluster, alice.listing(), NODES * NODE_TIMEOUT)


@pytest.mark.parametrize("trouble", ["three are down", "three are stopped"])
async def test_a_lock_that_two_nodes_say_is_taken_is_one_that_could_not_be_asked_for(
    world: World, cluster: Cluster, trouble: str
) -> None:
    """It was reported as taken."""
    alice, bob = world.actors(2)
    await alice.release(await alice.acquire("warm-up"))
    await bob.acquire("job", ttl=30, renew=False)
    BREAKS[trouble](cluster)
    await is_told(cluster, alice.try_acquire("job"), NODE_TIMEOUT)
    await is_told(cluster, alice.acquire("job", wait=0.5), 0.5)
    await is_told(cluster, alice.acquire("job", wait=None), PATIENCE)


async def test_a_body_is_not_entered_without_a_majority(world: World, cluster: Cluster) -> None:
    """A failed acquire was logged, and the job ran anyway."""
    alice = world.actor()
    entered: list[Any] = []

    async def body(lease: Any) -> None:
        entered.append(lease)

    cluster.kill(0, 1, 2)
    with pytest.raises(StoreUnavailable):
        await alice.inside("job", body)
    assert entered == []


async def test_taken_and_down_and_slow_are_told_apart(world: World, cluster: Cluster) -> None:
    """A quorum error hid whether nodes were taken, down or too slow."""
    alice, bob = world.actors(2)
    await alice.release(await alice.acquire("warm-up"))
    await bob.acquire("job", ttl=30, renew=False)
    cluster.kill(0, 1)
    assert await alice.try_acquire("job") is None, "a majority says that it is taken"
    with pytest.raises(LockTimeout) as timeout:
        await alice.acquire("job", wait=0.3)
    assert timeout.value.holder is not None
    cluster.pause(2)
    told = await is_told(cluster, alice.try_acquire("job"), NODE_TIMEOUT)
    down, slow, taken = (told.nodes[where(cluster, node)] for node in (0, 2, 4))
    assert "refused" in down.lower() or "could not connect" in down.lower() or "can't be reached" in down.lower(), down
    assert f"{NODE_TIMEOUT:g} s" in slow, slow
    assert down != slow
    assert "answered" in taken
    assert "3 are needed" in str(told)


async def test_who_waits_for_a_majority_gets_the_lock_as_soon_as_there_is_one(world: World, cluster: Cluster) -> None:
    alice = world.actor(connect_patience=30)
    await alice.release(await alice.acquire("warm-up"))
    cluster.pause(0, 1, 2)
    waiting = alice.acquire("job", wait=None)
    with pytest.raises(AssertionError):
        await auntil(waiting.done, within=2 * NODE_TIMEOUT)
    cluster.resume()
    await auntil(waiting.done, within=SLACK + 1)
    await alice.release(await waiting)
    await cluster.nothing_locked()


async def test_a_holder_without_a_majority_loses_the_lock_at_its_deadline(world: World, cluster: Cluster) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=1.0)
    start = time.monotonic()
    cluster.kill(0, 1, 2)
    assert await alice.hears_of_loss(lease)
    assert time.monotonic() - start < 1.0 + SLACK
    assert not lease.held
