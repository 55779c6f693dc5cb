"""Over the same five nodes, Gripfast's Redlock and npm's exclude each other, in both directions.

The fixtures of this folder mean one server; here they mean five.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import redis

from gripfast import LeaseLost, LockTimeout
from interop.foreign import IN_NODE, Redlock, Redlock5
from interop.node import Node, Refused
from support.colours import COLOURS, World
from support.redlock_nodes import NODES, lock_space, redlock_url, shared_nodes
from support.waiting import auntil, until

TTL = 30.0
SHORT = 0.6
"""A ttl of waiters: they ask every fifth of a second."""
SOON = 2.5
"""Well below the slowest pace of asking, which is 3 s, and far above what is due."""
MAJORITY = NODES // 2 + 1
MINORITY = NODES - MAJORITY

TIMES = 8
PROCESSES = 3
"""Of each side, in the load test."""


def redlock(kind: type[Redlock], node: Node) -> Redlock:
    first, *more = shared_nodes()
    return kind(first, node, *more)


@pytest.fixture(scope="module", params=IN_NODE, ids=lambda library: library.name)
def foreign(request: pytest.FixtureRequest, node: Node) -> Redlock:
    return redlock(request.param, node)


@pytest.fixture
def url(prefix: str) -> Iterator[str]:
    with lock_space(prefix) as url:
        yield url


class Keys:
    """The lock's key on every node, to look at it and to delete it behind everybody's back."""

    def __init__(self, clients: list["redis.Redis"], key: str) -> None:
        self._clients = clients
        self._key = key

    def values(self) -> list[str | None]:
        return [client.get(self._key) for client in self._clients]

    def owners(self) -> list[str]:
        """Of those that Gripfast has: it writes the number of the attempt behind the owner."""
        return [(value or "").rpartition(".")[0] for value in self.values()]

    def everywhere(self) -> str | None:
        """The value, once all nodes have the same; a majority is enough for either side, the other nodes follow."""
        first, *others = self.values()
        return first if all(other == first for other in others) else None

    def nowhere(self) -> bool:
        return self.values() == [None] * len(self._clients)

    def delete(self, count: int) -> None:
        """On the first so many nodes."""
        for client in self._clients[:count]:
            client.delete(self._key)


@pytest.fixture
def keys(url: str, key: str) -> Iterator[Keys]:
    with ExitStack() as stack:
        clients = [stack.enter_context(node.client(decode_responses=True)) for node in shared_nodes()]
        yield Keys(clients, key)


def test_it_takes_all_nodes_and_gives_them_back(foreign: Redlock, key: str, keys: Keys) -> None:
    held = foreign.acquire(key, TTL)
    until(keys.everywhere)
    assert foreign.acquire(key, TTL) is None
    assert foreign.release(held)
    until(keys.nowhere)


async def test_while_they_hold_it_gripfast_does_not_get_it(
    foreign: Redlock, world: World, key: str, keys: Keys
) -> None:
    alice = world.actor()
    held = foreign.acquire(key, TTL)
    value = await auntil(keys.everywhere)
    assert await alice.try_acquire("job") is None
    with pytest.raises(LockTimeout):
        await alice.acquire("job", wait=0.2)
    assert keys.everywhere() == value
    assert foreign.release(held)
    assert (await alice.acquire("job")).held


async def test_a_waiter_has_it_soon_after_they_released(foreign: Redlock, world: World, key: str) -> None:
    held = foreign.acquire(key, TTL)
    alice = world.actor()
    with pytest.raises(LockTimeout):
        await alice.acquire("job", wait=0.05)
    waiting = alice.acquire("job", ttl=SHORT)
    assert foreign.release(held)
    released = time.monotonic()
    assert (await waiting).held
    assert time.monotonic() - released < SOON


async def test_a_waiter_has_it_soon_after_their_keys_expired_and_not_before(
    foreign: Redlock, world: World, key: str
) -> None:
    before = time.monotonic()
    assert foreign.acquire(key, 0.5) is not None
    await world.actor().acquire("job", ttl=TTL)
    assert 0.495 <= time.monotonic() - before < SOON


async def test_while_gripfast_holds_it_they_are_refused(foreign: Redlock, world: World, key: str) -> None:
    alice = world.actor()
    lease = await alice.acquire("job")
    assert foreign.acquire(key, TTL) is None
    assert lease.held
    await alice.release(lease)
    assert foreign.release(await auntil(lambda: foreign.acquire(key, TTL)))


async def test_they_are_refused_with_their_own_error(node: Node, world: World, key: str) -> None:
    """`acquire` above would also call a lock that is lost a refusal: here nothing stands between."""
    lease = await world.actor().acquire("job")
    ports = [each.port for each in shared_nodes()]
    with pytest.raises(Refused):
        node.ask("acquire", library=Redlock5.name, ports=ports, key=key, ms=1000)
    assert lease.held


async def test_they_get_it_when_a_lease_expires(foreign: Redlock, world: World, key: str) -> None:
    alice = world.actor()
    await alice.acquire("job", ttl=0.1, renew=False)
    held = await auntil(lambda: foreign.acquire(key, TTL))
    assert await alice.try_acquire("job") is None
    assert foreign.release(held)


async def test_a_majority_of_theirs_is_enough_to_keep_gripfast_out(
    foreign: Redlock, world: World, key: str, keys: Keys
) -> None:
    held = foreign.acquire(key, TTL)
    value = await auntil(keys.everywhere)
    keys.delete(MINORITY)
    assert await world.actor().try_acquire("job") is None
    # What the attempt took it gave back.
    await auntil(lambda: keys.values() == [None] * MINORITY + [value] * MAJORITY)
    assert foreign.release(held)


async def test_a_minority_of_theirs_is_not(foreign: Redlock, world: World, key: str, keys: Keys) -> None:
    held = foreign.acquire(key, TTL)
    value = await auntil(keys.everywhere)
    keys.delete(MAJORITY)
    lease = await world.actor().acquire("job", ttl=TTL)
    assert keys.values()[MAJORITY:] == [value] * MINORITY
    assert keys.owners()[:MAJORITY] == [lease.owner] * MAJORITY
    assert not foreign.extend(held, TTL)
    assert lease.held


async def test_a_majority_of_gripfasts_is_enough_to_keep_them_out(
    foreign: Redlock, world: World, key: str, keys: Keys
) -> None:
    lease = await world.actor().acquire("job", ttl=TTL)
    await auntil(keys.everywhere)
    keys.delete(MINORITY)
    assert foreign.acquire(key, TTL) is None
    assert keys.owners()[MINORITY:] == [lease.owner] * MAJORITY
    assert lease.held


async def test_gripfast_neither_releases_nor_extends_what_is_theirs(
    foreign: Redlock, world: World, key: str, keys: Keys
) -> None:
    alice = world.actor()
    for touch in (alice.release, alice.extend):
        lease = await alice.acquire("job", ttl=TTL, renew=False)
        await auntil(keys.everywhere)
        keys.delete(NODES)
        held = foreign.acquire(key, TTL)
        value = await auntil(keys.everywhere)
        with pytest.raises(LeaseLost):
            await touch(lease)
        assert keys.everywhere() == value
        assert foreign.release(held)
        await auntil(keys.nowhere)


async def test_tokens_grow_over_their_turns(foreign: Redlock, world: World, key: str) -> None:
    alice = world.actor()
    tokens = []
    for _ in range(3):
        lease = await alice.acquire("job")
        tokens.append(lease.token)
        await alice.release(lease)
        assert foreign.release(await auntil(lambda: foreign.acquire(key, TTL)))
    assert tokens == sorted(set(tokens))


async def test_inspect_tells_of_them_what_the_keys_tell(foreign: Redlock, world: World, key: str, keys: Keys) -> None:
    foreign.acquire(key, TTL)
    value = await auntil(keys.everywhere)
    info = await world.actor().inspect("job")
    assert (info.name, info.owner) == ("job", value)
    assert (info.label, info.host, info.pid, info.since) == (None, "", 0, None)
    assert 0 < info.expires_in <= TTL


async def test_force_release_frees_their_lock(foreign: Redlock, world: World, key: str) -> None:
    alice = world.actor()
    held = foreign.acquire(key, TTL)
    assert await alice.force_release("job")
    lease = await alice.acquire("job", ttl=TTL)
    assert not foreign.release(held)
    assert lease.held


@pytest.mark.parametrize("colour", COLOURS)
async def test_without_a_prefix_they_must_call_it_lock_and_the_name(colour: str, foreign: Redlock, prefix: str) -> None:
    name = prefix.rstrip(":")
    world = World(redlock_url(shared_nodes()), COLOURS[colour])
    alice = world.actor()
    held = foreign.acquire(f"lock:{name}", TTL)
    assert await alice.try_acquire(name) is None
    assert foreign.release(held)
    lease = await alice.acquire(name)
    assert foreign.acquire(f"lock:{name}", TTL) is None
    await alice.release(lease)
    await world.close()


def count_elsewhere(url: str, counter: str) -> None:
    """A process of Gripfast's that waits for its turns."""
    script = Path(__file__).with_name("counting.py")
    arguments = [url, shared_nodes()[0].url, counter, "6", str(TIMES)]
    ended = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=55)
    assert ended.returncode == 0, ended.stderr


def test_no_number_is_lost(url: str, key: str, prefix: str, keys: Keys) -> None:
    """Each adds to a number in steps that lose one if any two are at it together."""
    counter = f"{prefix}counter"
    with ExitStack() as stack:
        nodes = [stack.enter_context(closing(Node())) for _ in range(PROCESSES)]
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=2 * PROCESSES))
        counting = [pool.submit(redlock(Redlock5, node).count, key, 6.0, counter, TIMES) for node in nodes]
        counting += [pool.submit(count_elsewhere, url, counter) for _ in range(PROCESSES)]
        for each in counting:
            each.result()
    with shared_nodes()[0].client(decode_responses=True) as store:
        assert store.get(counter) == str(TIMES * 2 * PROCESSES)
    until(keys.nowhere)
