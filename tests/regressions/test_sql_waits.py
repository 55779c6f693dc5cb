"""Those who wait for a lease in SQL, and can not be told of its release."""

from collections.abc import Iterator
from typing import Any

import pytest

from gripfast import GripfastError
from regressions.redis_stage import played
from regressions.sql_stage import owed
from support.colours import COLOURS, World
from support.sql_servers import PostgresServer
from support.waiting import auntil

pytestmark = pytest.mark.in_turn(2)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, server: PostgresServer) -> World:
    return World(server.lock_space(connect_patience=0, request_timeout=1), COLOURS[request.param])


@played
async def test_a_waiter_without_a_connection_to_listen_on_leaves_nothing_behind(
    world: World, server: PostgresServer
) -> None:
    """Its claim had been answered, so it stood in line, and was known by its owner; nobody cleaned up after it."""
    alice, bob = world.actors(2)
    lease = await alice.acquire("job", ttl=60)
    assert await bob.try_acquire("job") is None
    server.execute("ALTER ROLE gripfast CONNECTION LIMIT 1")
    try:
        with pytest.raises(GripfastError):
            await bob.acquire("job", wait=0.2)
    finally:
        server.execute("ALTER ROLE gripfast CONNECTION LIMIT -1")
    await auntil(lambda: not owed(bob.client))
    link: Any = bob.client._runtime.env.store._link
    assert not link.claims
    assert not link.queues
    await alice.release(lease)
