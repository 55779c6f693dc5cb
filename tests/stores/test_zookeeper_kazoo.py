"""On one path, kazoo's own Lock and Gripfast stand in one line, and neither can touch what is the other's."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError
from kazoo.recipe.lock import Lock

import gripfast
from gripfast import LeaseLost, LockTimeout
from gripfast.stores.zookeeper.janitor import IDLE, Janitor
from support.both_colours import staged
from support.colours import COLOURS, World
from support.waiting import auntil, until
from support.zookeeper_servers import new_root, zookeeper_server

SOON = 3.0
"""Seconds: far above what is due, and well below the pace at which a waiter asks by itself."""


class Place:
    """What both sides mean by a lock."""

    def __init__(self, kazoo: KazooClient, colour: str) -> None:
        self.root = new_root()
        self.url = zookeeper_server().url_with(root=self.root)
        self.path = f"{self.root}/job"
        self.kazoo = kazoo
        self.colour = COLOURS[colour]

    def lock(self, identifier: str = "", path: str = "") -> Lock:
        return self.kazoo.Lock(path or self.path, identifier)

    def line(self) -> list[str]:
        """All nodes of the lock, in their order."""
        nodes = self.kazoo.get_children(self.path) if self.kazoo.exists(self.path) else []
        return sorted(nodes, key=lambda node: node[-10:])

    async def stand(self, number: int) -> None:
        """Wait until so many are in line, the holder included."""
        await auntil(lambda: len(self.line()) == number)

    @contextlib.asynccontextmanager
    async def world(self) -> AsyncIterator[World]:
        world = World(self.url, self.colour)
        try:
            yield world
        finally:
            await world.close()


@pytest.fixture(scope="module")
def kazoo() -> Iterator[KazooClient]:
    with zookeeper_server().client() as client:
        yield client


@pytest.fixture(params=COLOURS)
def place(kazoo: KazooClient, request: pytest.FixtureRequest) -> Place:
    return Place(kazoo, request.param)


def waits(lock: Lock) -> "asyncio.Future[bool]":
    """kazoo waits in a thread of its own."""
    return asyncio.get_running_loop().run_in_executor(None, lambda: lock.acquire(timeout=20))


# Excluding ------------------------------------------------------------------------------------------------------------


@staged
async def test_while_kazoo_holds_it_gripfast_does_not_get_it(place: Place) -> None:
    async with place.world() as world:
        alice = world.actor()
        theirs = place.lock()
        assert theirs.acquire()
        before = place.line()
        assert await alice.try_acquire("job") is None
        with pytest.raises(LockTimeout):
            await alice.acquire("job", wait=0.05)
        await auntil(lambda: place.line() == before)
        assert theirs.release()
        assert (await alice.try_acquire("job")).held


@staged
async def test_while_gripfast_holds_it_kazoo_is_refused(place: Place) -> None:
    async with place.world() as world:
        alice = world.actor()
        lease = await alice.acquire("job")
        theirs = place.lock()
        assert not theirs.acquire(blocking=False)
        lease.ensure_held()
        await alice.release(lease)
        assert theirs.acquire(blocking=False)
        theirs.release()


@staged
async def test_readers_and_writers_of_kazoo_are_respected(place: Place) -> None:
    async with place.world() as world:
        alice = world.actor()
        reader, another_reader = (place.kazoo.ReadLock(place.path) for _ in range(2))
        writer = place.kazoo.WriteLock(place.path)
        assert reader.acquire(blocking=False)
        assert another_reader.acquire(blocking=False)
        waiting = alice.acquire("job")
        await place.stand(3)
        assert reader.release()
        assert await world.actor().try_acquire("job") is None
        assert not waiting.done()
        assert another_reader.release()
        lease = await waiting
        assert not reader.acquire(blocking=False)
        assert not writer.acquire(blocking=False)
        await alice.release(lease)
        with writer:
            assert await alice.try_acquire("job") is None


@staged
async def test_names_that_need_encoding_are_on_the_path_the_page_says(place: Place) -> None:
    async with place.world() as world:
        alice = world.actor()
        for name, node in {
            "a/b c": "a%2Fb%20c",
            "naïve": "na%C3%AFve",
            "..": "%2E%2E",
            "v1.2-x_y~z": "v1.2-x_y~z",
        }.items():
            theirs = place.lock(path=f"{place.root}/{node}")
            assert theirs.acquire()
            assert await alice.try_acquire(name) is None
            assert theirs.release()
            lease = await alice.acquire(name)
            assert not theirs.acquire(blocking=False)
            await alice.release(lease)


@staged
async def test_tokens_grow_over_kazoos_turns(place: Place) -> None:
    async with place.world() as world:
        alice = world.actor()
        tokens = []
        for _ in range(3):
            lease = await alice.acquire("job")
            tokens.append(lease.token)
            await alice.release(lease)
            with place.lock():
                tokens.append((await alice.inspect("job")).token)
        assert tokens == sorted(set(tokens))


@staged
async def test_a_holder_whose_node_somebody_deleted_is_told(place: Place) -> None:
    async with place.world() as world:
        alice = world.actor()
        lease = await alice.acquire("job", ttl=1.5)
        place.kazoo.delete(f"{place.path}/{place.line()[0]}")
        theirs = place.lock()
        assert theirs.acquire(blocking=False)
        assert await alice.hears_of_loss(lease)
        with pytest.raises(LeaseLost) as caught:
            lease.ensure_held()
        assert caught.value.reason == "broken"
        assert len(place.line()) == 1
        assert theirs.release()


# Waiting --------------------------------------------------------------------------------------------------------------


@staged
async def test_both_are_served_in_the_order_in_which_they_came(place: Place) -> None:
    async with place.world() as world:
        alice, bob = world.actors(2)
        first, second = place.lock(), place.lock()
        held = await alice.acquire("job")
        turns = []
        for number, ask in enumerate([lambda: waits(first), lambda: bob.acquire("job"), lambda: waits(second)], 2):
            turns.append(ask())
            await place.stand(number)
        await alice.release(held)
        async with asyncio.timeout(SOON):
            assert await turns[0]
            last = alice.acquire("job")
            await place.stand(4)
            assert not turns[1].done()
            first.release()
            lease = await turns[1]
            assert not turns[2].done()
            await bob.release(lease)
            assert await turns[2]
            assert not last.done()
            second.release()
            assert (await last).token > lease.token > held.token


@staged
async def test_who_gave_up_waiting_is_in_nobodys_way(place: Place) -> None:
    async with place.world() as world:
        alice, bob = world.actors(2)
        theirs, behind = place.lock(), place.lock()
        assert theirs.acquire()
        impatient = alice.acquire("job", wait=1.0)  # long enough for all to come
        await place.stand(2)
        waiting = waits(behind)
        await place.stand(3)
        last = bob.acquire("job")
        await place.stand(4)
        with pytest.raises(LockTimeout):
            await impatient
        await place.stand(3)
        assert theirs.release()
        async with asyncio.timeout(SOON):
            assert await waiting
            assert not last.done()
            assert behind.release()
            assert (await last).held


@staged
async def test_a_kazoo_that_gave_up_is_in_nobodys_way(place: Place) -> None:
    async with place.world() as world:
        alice, bob = world.actors(2)
        held = await alice.acquire("job")
        impatient = place.lock()
        told = waits(impatient)
        await place.stand(2)
        last = bob.acquire("job")
        await place.stand(3)
        impatient.cancel()
        with pytest.raises(CancelledError):
            await told
        await place.stand(2)
        assert not last.done()
        await alice.release(held)
        async with asyncio.timeout(SOON):
            assert (await last).held


# Looking --------------------------------------------------------------------------------------------------------------


@staged
async def test_kazoos_contenders_has_gripfasts(place: Place) -> None:
    async with place.world() as world:
        alice, bob = world.actors(2)
        await alice.acquire("job", label="nightly")
        bob.acquire("job", label="next")
        await place.stand(2)
        cards = [json.loads(each) for each in place.lock().contenders()]
        assert [card["label"] for card in cards] == ["nightly", "next"]
        assert all(set(card) == {"host", "pid", "label", "ttl"} for card in cards)


@staged
async def test_inspect_tells_of_kazoos_what_its_node_tells(place: Place) -> None:
    async with place.world() as world:
        alice, bob = world.actors(2)
        theirs, behind = place.lock("worker 7 on rack 3"), place.lock()
        with theirs:
            bob.acquire("job")
            await place.stand(2)
            waiting = waits(behind)
            await place.stand(3)
            info = await alice.inspect("job")
            stat = place.kazoo.exists(f"{place.path}/{theirs.node}")
        assert (info.name, info.owner) == ("job", theirs.prefix.removesuffix("__lock__"))
        assert (info.token, info.waiters) == (stat.czxid, 2)
        assert (info.host, info.label, info.pid) == ("worker 7 on rack 3", None, 0)
        assert info.expires_in == math.inf
        assert abs(info.since.timestamp() - stat.created) < 0.01
        behind.cancel()
        with pytest.raises(CancelledError):
            await waiting


@staged
async def test_the_time_out_names_kazoo(place: Place) -> None:
    async with place.world() as world:
        with place.lock("worker 7"):
            with pytest.raises(LockTimeout, match="worker 7") as caught:
                await world.actor().acquire("job", wait=0.05)
        assert caught.value.holder.host == "worker 7"


@staged
async def test_kazoos_locks_are_listed(place: Place) -> None:
    async with place.world() as world:
        alice = world.actor()
        with place.lock(), place.lock(path=f"{place.root}/other%2Fone"):
            await alice.acquire("third")
            assert sorted(info.name for info in await alice.listing()) == ["job", "other/one", "third"]


@staged
async def test_force_release_frees_kazoos_and_lets_the_next_in(place: Place) -> None:
    async with place.world() as world:
        alice, bob = world.actors(2)
        theirs = place.lock()
        assert theirs.acquire()
        waiting = alice.acquire("job")
        await place.stand(2)
        assert await bob.force_release("job")
        async with asyncio.timeout(SOON):
            lease = await waiting
        theirs.release()  # which finds nothing of its own any more
        await alice.extend(lease)
        lease.ensure_held()


# Cleaning -------------------------------------------------------------------------------------------------------------


def test_the_janitor_leaves_names_that_kazoo_made_alone(kazoo: KazooClient) -> None:
    """kazoo's Lock makes its parent once, and would fail for ever if it were gone."""
    place = Place(kazoo, "blocking")
    theirs = place.lock()
    assert theirs.acquire()
    assert theirs.release()
    janitor = Janitor(kazoo)
    with gripfast.connect(place.url) as client:
        client.lock("job").acquire().release()
    janitor.used.put((place.path, 0.0))
    for moment in (IDLE, 2 * IDLE, 3 * IDLE):
        janitor.tick(moment)
        until(lambda: all(look[-1].is_answered for look in janitor._looks))
    assert theirs.acquire(blocking=False)
    assert theirs.release()
