"""Over a unix socket the end of a connection is told when something is sent, not when something is read."""

import asyncio
from collections.abc import Iterator

import pytest

import gripfast
from chaos.cutting import TTL, Blocking
from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.history import Event
from gripfast_lab.verify.notes import Notes
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
    history: list[Event] = []
    client = Blocking(server.url, Notes("thread", history.append), IN_TIME)
    lease = client.acquire("job", IN_TIME)
    kill_connections(server)
    client.extend(lease)
    kill_connections(server)
    client.release(lease)
    kill_connections(server)
    client.release(client.acquire("job", IN_TIME))
    client.close()
    assert violations(history) == []


def test_a_task_goes_on_although_its_connection_was_killed(server: RedisServer) -> None:
    """The loop does not run meanwhile, so that the next request is the first to find out."""
    history: list[Event] = []
    notes = Notes("task", history.append)

    async def live(client: gripfast.AsyncClient) -> None:
        notes.asked("job", IN_TIME, IN_TIME, ttl=TTL, renews=True)
        lease = await client.lock("job", ttl=TTL).acquire(wait=IN_TIME)
        notes.answered("job", lease)
        kill_connections(server)
        await lease.extend()
        assert notes.held(lease)
        kill_connections(server)
        notes.note("releasing", "job")
        await lease.release()
        notes.note("released", "job")

    async def go_on() -> None:
        async with gripfast.connect_async(server.url) as client:
            await live(client)
            kill_connections(server)
            await live(client)

    asyncio.run(go_on())
    assert violations(history) == []
