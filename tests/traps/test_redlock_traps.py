"""What went wrong in other libraries that lock on several Redis nodes, each on five real servers, in both colours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gripfast import LeaseLost, LockTimeout, StoreUnavailable
from support.colours import COLOURS, World, renewal_of
from support.redlock_nodes import NODES
from support.waiting import auntil
from traps.redlock_cluster import Cluster, wait_out

pytestmark = pytest.mark.in_turn(2)

NODE_TIMEOUT = 0.3
"""Of the tests that stop nodes: much for a busy machine, little for a test."""
PATIENCE = 1.0
"""For nodes that can't be asked."""
IN_TIME = 3.0
"""Seconds that no call of so little patience may take, on a busy machine."""
DAY = 86_400


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


async def warm(*actors: Any) -> None:
    """Connected to every node, on a cluster that is not new any more."""
    for actor in actors:
        await actor.release(await actor.acquire("warm-up"))


async def renewed(lease: Any) -> None:
    await auntil(renewal_of(lease))
    assert lease.held


# One node down, and quorum reached ----------------------------------------------------------------------------------


@pytest.mark.parametrize("down", [[0], [1, 4]], ids=str)
async def test_a_majority_is_enough_though_nodes_are_down(world: World, cluster: Cluster, down: list[int]) -> None:
    """One node down and quorum reached: it raised, and left the majority locked."""
    alice, bob = world.actors(2)
    await warm(alice)
    cluster.kill(*down)
    lease = await bob.acquire("job")
    assert lease.held
    assert await alice.try_acquire("job") is None
    await bob.release(lease)
    await cluster.nothing_locked()


async def test_a_node_that_goes_down_while_the_lock_is_held_does_no_harm(world: World, cluster: Cluster) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", ttl=1.5)
    cluster.kill(2)
    await renewed(lease)
    await alice.release(lease)
    await bob.release(await bob.acquire("job"))
    await cluster.nothing_locked()


async def test_an_attempt_without_a_majority_leaves_nothing_locked(world: World, cluster: Cluster) -> None:
    alice = world.actor()
    await warm(alice)
    cluster.kill(0, 1, 2)
    with pytest.raises(StoreUnavailable):
        await alice.acquire("job", wait=0.5, ttl=20)
    await cluster.nothing_locked()


async def test_an_attempt_that_was_outvoted_leaves_nothing_locked(world: World, cluster: Cluster) -> None:
    alice = world.actor()
    await warm(alice)
    for node in range(3):
        cluster.put(node, "somebody else", seconds=20)
    with pytest.raises(LockTimeout):
        await alice.acquire("job", wait=0.3, ttl=20)
    await auntil(lambda: cluster.values() == ["somebody else"] * 3 + [None] * 2)


async def test_a_lock_that_is_free_again_at_three_nodes_is_granted(world: World, cluster: Cluster) -> None:
    """Two nodes have what a dead client left there."""
    alice = world.actor()
    cluster.put(0, "somebody else", seconds=20)
    cluster.put(1, "somebody else", seconds=20)
    lease = await alice.try_acquire("job")
    assert lease is not None
    await alice.release(lease)
    assert cluster.values() == ["somebody else"] * 2 + [None] * 3, "and what others have there is not touched"


# Slow nodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [[4], [0, 2]], ids=str)
async def test_a_slow_node_does_not_stall_anyone(world: World, cluster: Cluster, slow: list[int]) -> None:
    """Nodes were asked one after another, and one that did not answer stalled everyone."""
    alice = world.actor(request_timeout=2)
    await warm(alice)
    cluster.pause(*slow)
    start = time.monotonic()
    for _ in range(10):
        await alice.release(await alice.acquire("job", wait=5))
    assert time.monotonic() - start < 2, "not even one time-out was waited for"
    cluster.resume()
    await cluster.nothing_locked()


# Early answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [0.0, 2 * NODE_TIMEOUT], ids=["at once", "after the time-out"])
async def test_a_claim_in_flight_does_not_land_after_the_release(
    world: World, cluster: Cluster, patience: float
) -> None:
    """The call returned with a majority; a late claim arrived at a node behind the release, and stayed there."""
    with cluster.proxies(2) as proxies:
        alice = world.actor(world.connect(cluster.url(proxies, request_timeout=NODE_TIMEOUT)))
        await warm(alice)
        for proxy in proxies:
            proxy.hold("requests")
        lease = await alice.acquire("job", ttl=30)
        await wait_out(patience)
        await alice.release(lease)
        for proxy in proxies:
            proxy.let_go()
        await auntil(lambda: cluster.has_heard_of_it(0) and cluster.has_heard_of_it(1))
        await cluster.nothing_locked()
        await world.colour.disconnect(alice.client)


async def test_what_a_stopped_node_does_when_it_goes_on_leaves_nothing_locked(world: World, cluster: Cluster) -> None:
    alice = world.actor()
    await warm(alice)
    cluster.pause(1, 3)
    for _ in range(3):
        await alice.release(await alice.acquire("job", ttl=30))
        await wait_out(NODE_TIMEOUT)
    cluster.resume()
    await auntil(lambda: cluster.has_heard_of_it(1) and cluster.has_heard_of_it(3))
    await cluster.nothing_locked()


async def test_what_a_stopped_node_does_after_the_client_is_closed_leaves_nothing_locked(
    world: World, cluster: Cluster
) -> None:
    alice = world.actor()
    await warm(alice)
    cluster.pause(1)
    await alice.acquire("job", ttl=30)
    await world.colour.disconnect(alice.client)
    cluster.resume()
    await auntil(lambda: cluster.has_heard_of_it(1))
    await cluster.nothing_locked()


# Retries ------------------------------------------------------------------------------------------------------------


async def test_own_left_over_keys_do_not_vote_against_the_retry(world: World, cluster: Cluster) -> None:
    """The first attempt got two nodes, the second met those keys, and so on for a whole ttl."""
    alice = world.actor(connect_patience=20)
    await warm(alice)
    cluster.pause(0, 1, 2)
    waiting = alice.acquire("job", ttl=30, wait=15)
    await wait_out(3 * NODE_TIMEOUT)
    assert not waiting.done()
    cluster.resume()
    await auntil(waiting.done, within=IN_TIME)
    lease = await waiting
    assert cluster.holders() == {lease.owner}
    await alice.release(lease)
    await cluster.nothing_locked()


async def test_a_claim_whose_replies_were_lost_is_repeated_and_granted(world: World, cluster: Cluster) -> None:
    """The retry met its own key, said no, and the key stayed for the whole ttl."""
    with cluster.proxies(3) as proxies:
        alice = world.actor(world.connect(cluster.url(proxies, request_timeout=NODE_TIMEOUT)))
        await warm(alice)
        for proxy in proxies:
            proxy.drop_reply()
        start = time.monotonic()
        lease = await alice.acquire("job", ttl=30)
        assert time.monotonic() - start < IN_TIME
        await alice.release(lease)
        await cluster.nothing_locked()
        await world.colour.disconnect(alice.client)


async def test_a_node_whose_connection_breaks_after_its_vote_is_counted_once(world: World, cluster: Cluster) -> None:
    """Two of five nodes, each asked again on a new connection, were a majority."""
    with cluster.proxies(NODES) as proxies:
        url = cluster.url(proxies, request_timeout=NODE_TIMEOUT, connect_patience=PATIENCE)
        alice = world.actor(world.connect(url))
        await warm(alice)
        assert await alice.inspect("job") is None  # every node has answered everything
        for proxy in proxies[2:]:
            proxy.hold("replies")
        for proxy in proxies[:2]:
            proxy.cut_after(len(b":1\r\n"), "replies")
        with pytest.raises(StoreUnavailable):
            await alice.try_acquire("job")
        for proxy in proxies:
            proxy.let_go()
        await cluster.nothing_locked()
        await world.colour.disconnect(alice.client)


async def test_a_release_whose_replies_were_lost_is_made_good(world: World, cluster: Cluster) -> None:
    """Release forgot its own value before the call: the error left a lock that nobody could release."""
    with cluster.proxies(4) as proxies:
        alice = world.actor(world.connect(cluster.url(proxies, request_timeout=NODE_TIMEOUT)))
        lease = await alice.acquire("job", ttl=30)
        for proxy in proxies:
            proxy.cut()
            proxy.refuse()
        releasing = alice.release(lease)
        await wait_out(2 * NODE_TIMEOUT)
        for proxy in proxies:
            proxy.accept()
        await releasing
        await cluster.nothing_locked(within=5)
        await world.colour.disconnect(alice.client)


async def test_two_who_split_the_votes_do_not_do_so_for_ever(world: World, cluster: Cluster) -> None:
    actors = world.actors(6)
    await warm(*actors)
    won = 0
    for _ in range(5):
        leases = await asyncio.wait_for(asyncio.gather(*[actor.try_acquire("job") for actor in actors]), 10)
        winners = [(actor, lease) for actor, lease in zip(actors, leases, strict=True) if lease is not None]
        assert len(winners) <= 1
        won += len(winners)
        for actor, lease in winners:
            await actor.release(lease)
    assert won >= 4, "of six who try at the same moment, one gets it"
    waiting = [actor.inside_acquired("job", does_its_work) for actor in actors]
    await asyncio.wait_for(asyncio.gather(*waiting), 10)


async def does_its_work(lease: Any) -> None:
    lease.ensure_held()


# Keeping a lease ----------------------------------------------------------------------------------------------------


async def test_quorum_does_not_erode_when_nodes_are_restarted_one_by_one(world: World, cluster: Cluster) -> None:
    """Renewal never took back a node that came back empty: after three restarts nobody had a majority."""
    alice, bob = world.actor(restart_grace=0), world.actor()
    lease = await alice.acquire("job", ttl=3)
    for node in range(NODES):
        cluster.nodes[node].restart()
        await auntil(lambda node=node: cluster.value(node), within=6)
    assert lease.held
    assert cluster.holders() == {lease.owner}
    assert (await bob.inspect("job")).token == lease.token
    await alice.release(lease)
    await cluster.nothing_locked()


async def test_a_restarted_node_is_taken_back_by_a_lease_whose_token_is_old(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that has forgotten everything takes a token of a day ago for stale; one that is held is not.

    It is taken back when it may vote again: until then somebody may count on a vote that it has forgotten.
    """
    jump(monkeypatch, -2 * DAY)
    alice = world.actor(max_ttl=2)
    lease = await alice.acquire("job", ttl=2)
    assert lease.token < (time.time() + 1.5 * DAY) * 1e6, "a day or more behind the nodes"
    cluster.nodes[1].restart()
    await auntil(lambda: cluster.value(1), within=6)
    assert lease.held
    await alice.release(lease)


async def test_a_node_that_somebody_else_has_is_not_taken_back(world: World, cluster: Cluster) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=0.9)
    cluster.put(0, "somebody else", seconds=20)
    cluster.delete(1)
    await auntil(lambda: cluster.value(1))
    await renewed(lease)
    assert cluster.value(0) == "somebody else"


async def test_renewal_does_not_bring_back_what_a_majority_has_lost(world: World, cluster: Cluster) -> None:
    """Renewal that sets if absent brought a lost lock back."""
    alice = world.actor()
    lease = await alice.acquire("job", ttl=1.5)
    cluster.delete(0, 1, 2)
    assert await alice.hears_of_loss(lease)
    await cluster.nothing_locked()
    with pytest.raises(LeaseLost):
        lease.ensure_held()


async def test_forcing_a_lock_is_not_undone_by_its_renewal(world: World, cluster: Cluster) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", ttl=0.9)
    assert await bob.force_release("job")
    assert await alice.hears_of_loss(lease)
    with pytest.raises(LeaseLost) as caught:
        await alice.release(lease)
    assert caught.value.reason == "broken"
    await cluster.nothing_locked()


async def test_renewal_survives_the_loss_of_every_connection(world: World, cluster: Cluster) -> None:
    """One connection error ended the renewal thread, silently."""
    alice = world.actor()
    lease = await alice.acquire("job", ttl=1.5)
    for _ in range(3):
        for node in cluster.nodes:
            with node.client() as client:
                client.client_kill_filter(_type="normal", skipme=True)
        await renewed(lease)
    assert cluster.holders() == {lease.owner}


async def test_renewal_ends_with_the_release(world: World, cluster: Cluster) -> None:
    """Renewal went on after the release: an immortal key."""
    alice = world.actor()
    lease = await alice.acquire("job", ttl=0.8)
    cluster.delete(1)
    await alice.release(lease)
    await wait_out(1)
    assert cluster.values() == [None] * NODES


async def test_validity_is_counted_anew_when_a_lease_is_extended(world: World, cluster: Cluster) -> None:
    """An extended lease counted from the reply, or not at all from when it was asked for."""
    with cluster.proxies(NODES) as proxies:
        alice = world.actor(world.connect(cluster.url(proxies, request_timeout=5)))
        lease = await alice.acquire("job", ttl=5, renew=False)
        for proxy in proxies:
            proxy.delay(replies=0.4)
        await alice.extend(lease, 20)
        assert 15 < lease.remaining() <= 20 * 0.99 - 0.002 - 0.4
        assert lease.remaining() <= cluster.times_left()[2], "a majority of the nodes has it for longer than that"
        await alice.extend(lease, 10)
        assert lease.remaining() <= 10 * 0.99 - 0.002 - 0.4
        await world.colour.disconnect(alice.client)


async def test_an_expired_lock_is_never_returned_as_held(world: World, cluster: Cluster) -> None:
    """The nodes took longer than the ttl to answer, and the lock was returned all the same."""
    with cluster.proxies(3) as proxies:
        alice = world.actor(world.connect(cluster.url(proxies, request_timeout=1)))
        await warm(alice)
        for proxy in proxies:
            proxy.delay(replies=0.6)
        with pytest.raises(StoreUnavailable, match="ttl"):
            await alice.acquire("job", ttl=0.3, wait=0.1)
        for proxy in proxies:
            proxy.delay()
        lease = await alice.acquire("job", ttl=5)
        assert lease.remaining() > 0
        await world.colour.disconnect(alice.client)


# The wall clock -----------------------------------------------------------------------------------------------------


def jump(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """What this process takes for the wall clock moves, once more."""
    now, now_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: now() + seconds)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + round(seconds * 1e9))


async def test_jumps_of_the_wall_clock_change_nothing(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validity was counted by the wall clock."""
    alice, bob = world.actors(2)
    await warm(alice, bob)
    tokens = []
    for seconds in (0, 400 * DAY, -900 * DAY, 3600, -3600, 500 * DAY):
        lease = await alice.acquire("job", ttl=9)
        tokens.append(lease.token)
        before = lease.remaining()
        jump(monkeypatch, seconds)
        assert before - 1 < lease.remaining() <= before
        assert await bob.try_acquire("job") is None
        await alice.release(lease)
        lease = await bob.acquire("job", ttl=9)
        tokens.append(lease.token)
        await bob.release(lease)
    assert tokens == sorted(set(tokens)), "each is larger than the one before"
    assert max(tokens) < 2**53
    await cluster.nothing_locked()
