"""Connections to SQL servers that ended at an awkward moment, or did not end with their client."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import gripfast
from gripfast import ClientClosed
from regressions.redis_stage import played
from regressions.sql_stage import ENGINES, MODES, lanes_to, numbers, url_through
from support.colours import COLOURS, World
from support.lanes import Lanes
from support.sql_servers import mariadb_server, postgres_server
from support.waiting import auntil

pytestmark = pytest.mark.in_turn(2)

TIMEOUT = 4.0
SOON = 2.0
"""Seconds: no request has run into its time-out by then."""


@pytest.fixture(scope="module", params=ENGINES)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ENGINES[request.param]() as server:
        yield server


@pytest.fixture
def lanes(server: Any) -> Iterator[Lanes]:
    with lanes_to(server) as lanes:
        yield lanes


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, server: Any, lanes: Lanes, mode: str) -> World:
    return World(url_through(lanes, server, mode=mode, request_timeout=TIMEOUT), COLOURS[request.param])


@pytest.fixture
def complaints() -> list[dict[str, Any]]:
    return []


def note_complaints(complaints: list[dict[str, Any]]) -> None:
    """Of callbacks of the loop, which nobody awaits."""
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))


def end_all_sessions(server: Any) -> None:
    for session in numbers(server):
        server.kill_session(session)


@played
async def test_a_request_that_the_server_ended_is_asked_again_at_once(
    world: World, lanes: Lanes, server: Any, complaints: list[dict[str, Any]]
) -> None:
    """The loop went on to watch the descriptor of the old connection, whose number the new one had by then."""
    note_complaints(complaints)
    alice = world.actor()
    await alice.release(await alice.acquire("warm-up"))
    lanes.hold()
    asking = alice.acquire("job")
    await auntil(lambda: any(lane.held for lane in lanes.all()))
    end_all_sessions(server)
    async with asyncio.timeout(SOON):
        lease = await asking
        await alice.release(lease)
        await alice.release(await alice.acquire("job"))
    assert not complaints


@played
async def test_idle_connections_that_the_server_ended_are_forgotten(
    world: World, server: Any, complaints: list[dict[str, Any]]
) -> None:
    """Their end was read as an answer to nothing, again and again."""
    note_complaints(complaints)
    alice = world.actor()
    await alice.release(await alice.acquire("job"))
    end_all_sessions(server)
    await auntil(lambda: not numbers(server))
    async with asyncio.timeout(SOON):
        await alice.release(await alice.acquire("job"))
    assert not complaints


@played
async def test_a_connection_that_is_made_while_the_client_is_closed_is_closed_too(
    world: World, lanes: Lanes, server: Any
) -> None:
    client = world.connect()
    alice = world.actor(client)
    lanes.greet(lambda lane: lane.hold())  # it is being made, and takes its time
    asking = alice.acquire("job")
    await auntil(lambda: any(lane.held for lane in lanes.all()))
    await world.colour.disconnect(client)
    lanes.let_go()
    with pytest.raises(ClientClosed):
        await asking
    await auntil(lambda: not numbers(server))


@played
async def test_nothing_is_left_of_those_who_waited_when_their_client_was_closed(world: World, server: Any) -> None:
    holder = world.actor()
    await holder.acquire("job")
    before = numbers(server)
    client = world.connect()
    waiters = world.actors(3, client)
    waiting = [waiter.acquire("job") for waiter in waiters]
    await world.queued("job", 3)
    await world.colour.disconnect(client)
    for each in waiting:
        with pytest.raises(ClientClosed):
            await each
    await auntil(lambda: numbers(server) <= before)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_connection_that_is_dead_without_a_word_does_not_cost_the_lease(engine: str, colour: str) -> None:
    """A firewall has forgotten it; a request on it lasted for its whole time-out, longer than the lease."""
    server = {"postgres": postgres_server, "mysql": mariadb_server}[engine]()
    with lanes_to(server) as lanes:
        outlives(world=World(url_through(lanes, server), COLOURS[colour]), lanes=lanes)


@played
async def outlives(world: World, lanes: Lanes) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=4)
    for lane in lanes.all():
        lane.silence()
    await auntil(lambda: lease.remaining() < 2.5)
    await auntil(lambda: lease.remaining() > 3.0)
    await alice.release(lease)


def test_sixteen_threads_share_four_connections_and_none_starves(server: Any) -> None:
    """The thread that puts a connection back is awake: unless it hands it over, it takes it again, for seconds."""
    entries = [0] * 16
    ends = time.monotonic() + SOON
    with gripfast.connect(f"{server.url}?request_timeout=1") as client:

        def enter_often(number: int) -> None:
            lock = client.lock(f"job-{number}")
            while time.monotonic() < ends:
                with lock.acquire():
                    entries[number] += 1

        with ThreadPoolExecutor(len(entries)) as threads:
            list(threads.map(enter_often, range(len(entries))))
    assert min(entries) * 10 > max(entries)
