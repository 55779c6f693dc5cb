"""A row that somebody has locked, an operator who looks and goes to lunch, costs its own lease and no other."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from regressions.redis_stage import played
from regressions.sql_stage import ENGINES
from support.colours import COLOURS, World, renewal_of
from support.sql_servers import mariadb_server, postgres_server
from support.waiting import auntil

pytestmark = pytest.mark.in_turn(2)

TTL = 1.5
COUNT = 50
CROWD = 4
SERVERS = {"postgres": postgres_server, "mysql": mariadb_server}
PAUSES = {"postgresql": "SELECT pg_sleep(0.02)", "mysql": "SELECT SLEEP(0.02)"}


@pytest.fixture(params=ENGINES)
def server(request: pytest.FixtureRequest) -> Any:
    return SERVERS[request.param]()


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, server: Any) -> World:
    return World(server.lock_space(request_timeout=0.5), COLOURS[request.param])


def finding(world: World, name: str) -> str:
    prefix = world.url.partition("prefix=")[2].partition("&")[0]
    return f"SELECT * FROM gripfast_lock WHERE name = '{prefix}{name}' FOR UPDATE"


@contextmanager
def locked(server: Any, world: World, name: str) -> Iterator[None]:
    """By a session of somebody else's, for as long as it likes."""
    connection = server._connect("gripfast")
    try:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        cursor.execute(finding(world, name))
        assert len(cursor.fetchall()) == 1
        yield
    finally:
        connection.close()


@contextmanager
def handed_around(server: Any, world: World, name: str) -> Iterator[None]:
    """Several sessions lock its row in turn, each for a moment: there is none in which nobody has it."""
    is_over = threading.Event()

    def lock_often() -> None:
        connection = server._connect("gripfast")
        cursor = connection.cursor()
        while not is_over.is_set():
            for words in ("BEGIN", finding(world, name), PAUSES[server.scheme], "COMMIT"):
                cursor.execute(words)
        connection.close()

    with ThreadPoolExecutor(CROWD) as threads:
        ends = [threads.submit(lock_often) for _ in range(CROWD)]
        try:
            yield
        finally:
            is_over.set()
    for end in ends:
        end.result()


@played
async def test_beside_a_locked_row_all_other_leases_are_renewed(world: World, server: Any) -> None:
    alice = world.actor()
    leases = [await alice.acquire(f"many-{number}", ttl=TTL) for number in range(COUNT)]
    with locked(server, world, "many-25"):
        await auntil(lambda: not leases[25].held)
        others = [lease for lease in leases if lease is not leases[25]]
        assert all(lease.held for lease in others)
    for lease in others:
        await alice.release(lease)


@played
async def test_a_lease_whose_row_was_locked_for_a_moment_is_renewed_afterwards(world: World, server: Any) -> None:
    alice = world.actor()
    lease = await alice.acquire("momentary", ttl=2 * TTL)
    with locked(server, world, "momentary"):
        await auntil(lambda: lease.remaining() < TTL)
    await auntil(lambda: lease.remaining() > 1.5 * TTL)
    assert lease.held
    await alice.release(lease)


@played
async def test_a_locked_row_keeps_no_other_dropped_lease_from_its_release(world: World, server: Any) -> None:
    alice, bob = world.actors(2)
    for name in ("first", "stuck", "last"):
        await alice.acquire(name, ttl=60)
    with locked(server, world, "stuck"):
        alice._kept.clear()  # dropped: the watchdog releases them
        for name in ("first", "last"):
            await bob.release(await bob.acquire(name))
        assert await bob.inspect("stuck") is not None
    await bob.release(await bob.acquire("stuck"))


@played
async def test_a_lease_is_kept_though_its_row_is_never_unlocked(world: World, server: Any) -> None:
    """Renewals passed over a row that was locked, so those who asked for the same name again and again took it away."""
    alice = world.actor()
    lease = await alice.acquire("busy", ttl=TTL)
    with handed_around(server, world, "busy"):
        for _ in range(4):
            await auntil(renewal_of(lease))
    await alice.release(lease)


@played
async def test_a_dropped_lease_is_released_though_its_row_is_never_unlocked(world: World, server: Any) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("dropped", ttl=600)
    with handed_around(server, world, "dropped"):
        alice._kept.clear()
        await bob.release(await bob.acquire("dropped"))


@played
async def test_who_asks_again_for_a_name_that_is_held_locks_nothing(world: World, server: Any) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("asked for", ttl=60)
    assert await bob.try_acquire("asked for") is None
    with locked(server, world, "asked for"):
        assert await bob.try_acquire("asked for") is None
    await alice.release(lease)
    again = await bob.try_acquire("asked for")
    assert again is not None
    await bob.release(again)
