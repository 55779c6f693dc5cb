"""Elections: one leader at a time, who says something; watchers; functions that run while their candidate leads."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

import gripfast
from gripfast import ClientClosed, ConfigurationError, LeaseLost, LockTimeout
from gripfast.testing.colours import AsyncActor, World
from gripfast.testing.waiting import auntil


def lead(actor: Any, election: Any, wait: float | None = 10.0) -> "asyncio.Future[Any]":
    return actor.does(lambda: election.lead(wait=wait), then=actor._keep)  # type: ignore[no-any-return]


def run(actor: Any, election: Any, *steps: Callable[[Any], Any]) -> "asyncio.Future[Any]":
    """Each term takes the next step, which is a plain function."""
    left = list(steps)
    return actor.does(lambda: election.run(actor.function(lambda term: left.pop(0)(term))))  # type: ignore[no-any-return]


def until_lost(world: World, term: Any) -> Any:
    """What a function does that works for as long as it leads, in the way of its colour."""
    if world.colour is not AsyncActor:
        term.lost.wait(20)
        term.ensure_held()
        return None
    return asyncio.get_running_loop().create_future()  # only a cancellation ends it


class Watcher:
    """What a watcher was told, one by one."""

    def __init__(self, world: World, actor: Any, election: Any) -> None:
        self._is_async = world.colour is AsyncActor
        self._actor = actor
        self._leaders = election.watch()

    def next(self) -> "asyncio.Future[Any]":
        """ "over" once there is no more."""
        if self._is_async:
            return self._actor.does(lambda: anext(self._leaders, "over"))  # type: ignore[no-any-return]
        return self._actor.does(lambda: next(self._leaders, "over"))  # type: ignore[no-any-return]


async def test_the_leader_says_something_that_others_read(world: World) -> None:
    alice, bob = world.actors(2)
    election = alice.client.election("beat", "host:8000")
    assert (election.name, election.value, election.ttl) == ("beat", "host:8000", 30.0)
    seen = bob.client.election("beat")
    assert await bob.does(seen.leader) is None
    term = await lead(alice, election)
    leader = await bob.does(seen.leader)
    assert (leader.value, leader.token) == ("host:8000", term.token)
    assert leader.pid > 0
    assert leader.host
    assert leader.since is not None
    assert leader.expires_in > 0
    await alice.release(term)
    assert await bob.does(seen.leader) is None
    silent = await lead(bob, seen)
    assert (await alice.does(election.leader)).value == ""
    assert silent.token > term.token


async def test_there_is_one_leader_at_a_time(world: World) -> None:
    alice, bob = world.actors(2)
    mine, theirs = alice.client.election("beat", "alice"), bob.client.election("beat", "bob")
    term = await lead(alice, mine)
    assert await bob.does(theirs.try_lead) is None
    with pytest.raises(LockTimeout) as busy:
        await lead(bob, theirs, wait=0.05)
    assert busy.value.holder is not None
    assert busy.value.holder.label == "alice"
    waiting = lead(bob, theirs)
    await world.queued("beat", 1)
    await alice.release(term)
    assert (await waiting).token > term.token
    assert await alice.does(mine.try_lead) is None


async def test_a_block_leads_until_its_end(world: World) -> None:
    alice, bob = world.actors(2)
    election = alice.client.election("beat")

    async def body(term: Any) -> None:
        assert term.held
        assert await bob.does(bob.client.election("beat").try_lead) is None

    await alice.enters(election.lead, body)
    assert await bob.does(bob.client.election("beat").try_lead, then=bob._keep)


async def test_an_election_is_the_lock_of_its_name(world: World) -> None:
    alice, bob = world.actors(2)
    term = await lead(alice, alice.client.election("beat", "alice"))
    assert await bob.try_acquire("beat") is None
    assert (await bob.inspect("beat")).label == "alice"
    await alice.release(term)


async def test_run_calls_the_function_while_it_leads_and_returns_what_it_returns(world: World) -> None:
    alice, bob = world.actors(2)
    terms: list[Any] = []

    def work(term: Any) -> str:
        terms.append((term.held, gripfast.current_lease() is term))
        return "done"

    assert await run(alice, alice.client.election("beat"), work) == "done"
    assert terms == [(True, True)]
    assert await bob.try_acquire("beat") is not None


async def test_an_exception_in_the_function_ends_the_term_and_is_raised(world: World) -> None:
    alice, bob = world.actors(2)

    def fail(term: Any) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await run(alice, alice.client.election("beat"), fail)
    assert await bob.try_acquire("beat") is not None


async def test_after_a_lost_term_run_campaigns_again(world: World) -> None:
    alice, bob = world.actors(2)
    election = alice.client.election("beat", "alice", ttl=1)
    tokens: list[int] = []

    def first(term: Any) -> Any:
        tokens.append(term.token)
        return until_lost(world, term)

    running = run_async_or_not(alice, election, first, lambda term: term.token)
    await auntil(lambda: len(tokens) == 1)
    await bob.force_release("beat")
    assert await asyncio.wait_for(running, 20) > tokens[0]


def run_async_or_not(actor: Any, election: Any, *steps: Callable[[Any], Any]) -> "asyncio.Future[Any]":
    """As `run`, for steps that may return something to be awaited."""
    left = list(steps)

    async def of_task(term: Any) -> Any:
        result = left.pop(0)(term)
        return await result if asyncio.isfuture(result) else result

    is_async = isinstance(actor, AsyncActor)
    function = of_task if is_async else lambda term: left.pop(0)(term)
    return actor.does(lambda: election.run(function))  # type: ignore[no-any-return]


async def test_it_does_not_campaign_while_the_function_of_a_lost_term_still_runs(world: World) -> None:
    """The function sees the loss, and takes its time."""
    alice, bob = world.actors(2)
    election = alice.client.election("beat", ttl=1)
    may_end, lost = threading.Event(), threading.Event()

    def slow(term: Any) -> None:
        assert term.lost.wait(20)
        lost.set()
        assert may_end.wait(20)

    async def slow_task(term: Any) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        lost.set()
        await auntil(may_end.is_set, 20)

    first = slow_task if isinstance(alice, AsyncActor) else slow
    functions: list[Any] = [first, alice.function(lambda term: term.token)]
    running = alice.does(lambda: election.run(lambda term: functions.pop(0)(term)))
    await auntil(lambda: len(functions) == 1)
    await bob.force_release("beat")
    await auntil(lost.is_set, 20)
    mine = await bob.acquire("beat")  # nobody else wants it
    await bob.release(mine)
    assert len(functions) == 1
    assert await bob.inspect("beat") is None
    may_end.set()
    assert await asyncio.wait_for(running, 20) > mine.token


async def test_a_function_that_lost_something_else_ends_run(world: World) -> None:
    alice, bob = world.actors(2)

    def fail(term: Any) -> None:
        raise LeaseLost("another", "expired")

    with pytest.raises(LeaseLost, match="another"):
        await run(alice, alice.client.election("beat"), fail)
    assert await bob.try_acquire("beat") is not None


async def test_run_ends_when_the_client_is_closed(world: World) -> None:
    alice, bob = world.actors(2)
    term = await lead(bob, bob.client.election("beat"))
    waiting = run(alice, alice.client.election("beat"), lambda term: None)
    await world.queued("beat", 1)
    await world.colour.disconnect(alice.client)
    with pytest.raises(ClientClosed):
        await asyncio.wait_for(waiting, 10)
    await bob.release(term)


async def test_a_watcher_is_told_of_the_present_leader_at_once_and_then_of_changes(world: World) -> None:
    alice, bob = world.actors(2)
    election = alice.client.election("beat", "one", ttl=1)
    watcher = Watcher(world, bob, bob.client.election("beat", ttl=1))
    assert await asyncio.wait_for(watcher.next(), 5) is None
    later = watcher.next()
    term = await lead(alice, election)
    leader = await asyncio.wait_for(later, 10)
    assert (leader.value, leader.token) == ("one", term.token)
    later = watcher.next()
    await alice.release(term)
    await asyncio.wait_for(later, 10)
    assert later.result() is None
    second = await lead(alice, alice.client.election("beat", "two", ttl=1))
    leader = await asyncio.wait_for(watcher.next(), 10)
    assert (leader.value, leader.token) == ("two", second.token)
    assert second.token > term.token
    joins_late = Watcher(world, alice, alice.client.election("beat"))
    assert (await asyncio.wait_for(joins_late.next(), 5)).value == "two"


async def test_a_watcher_is_not_told_again_of_a_term_that_is_renewed(world: World) -> None:
    alice, bob = world.actors(2)
    term = await lead(alice, alice.client.election("beat", ttl=1))
    watcher = Watcher(world, bob, bob.client.election("beat", ttl=0.3))
    assert (await asyncio.wait_for(watcher.next(), 5)).token == term.token
    later = watcher.next()
    remaining = [term.remaining()]

    def is_renewed() -> bool:
        remaining.append(term.remaining())
        return bool(remaining[-1] > remaining[-2])

    await auntil(is_renewed)
    assert not later.done()
    await alice.release(term)
    assert await asyncio.wait_for(later, 10) is None


async def test_watching_ends_when_the_client_is_closed(world: World) -> None:
    alice = world.actor()
    watcher = Watcher(world, alice, alice.client.election("beat", ttl=600))
    assert await asyncio.wait_for(watcher.next(), 5) is None
    later = watcher.next()
    await alice_is_asleep(alice)
    await world.colour.disconnect(alice.client)
    assert await asyncio.wait_for(later, 2.5) == "over"
    assert await watcher.next() == "over"
    with pytest.raises(ClientClosed):
        alice.client.election("beat").watch()


async def alice_is_asleep(actor: Any) -> None:
    await auntil(lambda: actor.client._runtime is not None and actor.client._runtime.env.sleepers)


async def test_a_decorated_function_runs_while_its_candidate_leads(world: World) -> None:
    alice, bob = world.actors(2)

    def work(shard: int, factor: int = 1) -> int:
        lease = gripfast.current_lease()
        assert (lease.name, lease.held) == ("beat:7", True)
        return shard * factor

    decorated = alice.client.elected("beat:{shard}", "alice")(alice.function(work))
    assert await alice.calls(decorated, 7, factor=2) == 14
    assert await bob.try_acquire("beat:7") is not None


async def test_wrong_settings_are_refused(world: World) -> None:
    client = world.actor().client
    for wrong in ({"value": 8000}, {"value": "x" * 5000}, {"ttl": "30"}, {"group": ""}, {"on_lost": 7}):
        with pytest.raises(ConfigurationError):
            client.election("beat", **wrong)
        with pytest.raises(ConfigurationError):
            client.elected("beat", **wrong)
    with pytest.raises(ConfigurationError):
        client.election("")
