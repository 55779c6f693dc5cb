"""A row that somebody has locked, an operator who looks and goes to lunch, costs its own lease and no other."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from regressions.redis_stage import played
from regressions.sql_stage import ENGINES
from support.colours import COLOURS, World
from support.sql_servers import mariadb_server, postgres_server
from support.waiting import auntil

TTL = 1.5
COUNT = 50
SERVERS = {"postgres": postgres_server, "mysql": mariadb_server}


@pytest.fixture(params=ENGINES)
def server(request: pytest.FixtureRequest) -> Any:
    return SERVERS[request.param]()


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, server: Any) -> World:
    return World(server.lock_space(request_timeout=0.5), COLOURS[request.param])


@contextmanager
def locked(server: Any, world: World, name: str) -> Iterator[None]:
    """By a session of somebody else's, for as long as it likes."""
    connection = server._connect("gripfast")
    try:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        prefix = world.url.partition("prefix=")[2].partition("&")[0]
        cursor.execute(f"SELECT * FROM gripfast_lock WHERE name = '{prefix}{name}' FOR UPDATE")
        assert len(cursor.fetchall()) == 1
        yield
    finally:
        connection.close()


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
