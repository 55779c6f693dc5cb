"""Over a unix socket the end of a connection is told when something is sent, not when something is read."""

import asyncio
from collections.abc import Iterator

import pytest

import holdfast
from support.redis_server import RedisServer

IN_TIME = 5.0


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(unix=True) as server:
        yield server


def kill_connections(server: RedisServer) -> None:
    with server.client() as client:
        assert client.client_kill_filter(_type="normal", skipme=True) > 0


def test_a_thread_goes_on_although_its_connection_was_killed(server: RedisServer) -> None:
    with holdfast.connect(server.url) as client:
        lease = client.lock("job").acquire(wait=IN_TIME)
        kill_connections(server)
        lease.extend()
        kill_connections(server)
        lease.release()
        kill_connections(server)
        client.lock("job").acquire(wait=IN_TIME).release()


def test_a_task_goes_on_although_its_connection_was_killed(server: RedisServer) -> None:
    """The loop does not run meanwhile, so that the next request is the first to find out."""

    async def go_on() -> None:
        async with holdfast.connect_async(server.url) as client, asyncio.timeout(IN_TIME):
            lease = await client.lock("job").acquire()
            kill_connections(server)
            await lease.extend()
            kill_connections(server)
            await lease.release()
            kill_connections(server)
            await (await client.lock("job").acquire()).release()

    asyncio.run(go_on())
