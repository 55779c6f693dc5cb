"""Locks in sessions of an SQL server: two who use one connection, and lines in which nobody got on."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from gripfast import ClientClosed, LockTimeout, StoreUnavailable
from gripfast.stores.sql.session import Session
from regressions.redis_stage import played
from regressions.sql_stage import ENGINES, SESSION_MODES, lanes_to, url_through
from support.colours import COLOURS, World
from support.lanes import Lanes
from support.sql_servers import MariaServer, mariadb_server, postgres_server
from support.waiting import auntil

pytestmark = pytest.mark.in_turn(2)

CROWD = 12


@pytest.fixture(scope="module", params=ENGINES)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ENGINES[request.param]() as server:
        yield server


@pytest.fixture
def lanes(server: Any) -> Iterator[Lanes]:
    with lanes_to(server) as lanes:
        yield lanes


@pytest.fixture(params=SESSION_MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, server: Any, mode: str) -> World:
    return World(server.lock_space(mode=mode), COLOURS[request.param])


# The watchdog and its caller ------------------------------------------------------------------------------------------


@played
async def test_a_release_that_meets_a_renewal_is_no_loss(world: World, lanes: Lanes, server: Any, mode: str) -> None:
    """Both used the connection at the same time, and each read the other's answer."""
    alice = world.actor(world.connect(url_through(lanes, server, mode=mode)))
    lease = await alice.acquire("job", ttl=1.5)
    lanes.hold()
    await auntil(lambda: any(lane.held for lane in lanes.all()))  # the renewal is on its way
    releasing = alice.release(lease)
    await auntil(lambda: not lease.held)
    lanes.let_go()
    await releasing
    assert (await alice.acquire("job", wait=10)).held


@played
async def test_a_release_behind_an_unanswered_renewal_is_done_in_the_background(
    world: World, lanes: Lanes, server: Any, mode: str
) -> None:
    alice = world.actor(world.connect(url_through(lanes, server, mode=mode, request_timeout=1)))
    lease = await alice.acquire("job", ttl=1.5)
    lanes.hold()
    await auntil(lambda: any(lane.held for lane in lanes.all()))
    await alice.release(lease)
    lanes.let_go()
    assert (await alice.acquire("job", wait=5)).held


@played
async def test_two_who_clean_up_for_one_waiter_do_not_fail(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that closes a client, and the waiter itself: whoever came second raised KeyError."""
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    waiting = bob.acquire("job", wait=5)
    await world.queued("job", 1)
    store = bob.client._runtime.env.store
    (owner,) = store.sessions
    leave_queue = Session.leave_queue

    async def leave_beside_another(session: Session) -> bool:
        has_left = await leave_queue(session)
        store._lose(owner)
        return has_left

    monkeypatch.setattr(Session, "leave_queue", leave_beside_another)
    await world.colour.disconnect(bob.client)
    with pytest.raises(ClientClosed):
        await waiting
    await alice.release(lease)
    assert [record.getMessage() for record in caplog.records if "unexpected" in record.getMessage()] == []


# Lines ----------------------------------------------------------------------------------------------------------------


@played
async def test_a_crowd_in_one_client_gets_the_lock_one_after_the_other(world: World) -> None:
    """The engine gave it to one who stood behind another in the client's own line, and never looked."""
    alice = world.actor()
    client = world.connect()
    crowd = world.actors(CROWD, client)
    lease = await alice.acquire("job")

    async def take_and_release(actor: Any) -> None:
        await actor.release(await actor.acquire("job", wait=20))

    waiting = [asyncio.create_task(take_and_release(actor)) for actor in crowd]
    await world.queued("job", CROWD)
    await alice.release(lease)
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)


@played
async def test_a_new_name_can_be_locked_where_the_server_logs_statements() -> None:
    """The place of a missing row stayed locked, and the row could not be made there."""
    with MariaServer("log-bin=log", "binlog-format=STATEMENT", "server-id=1") as server:
        worlds = [World(server.lock_space(mode="row"), colour) for colour in COLOURS.values()]
        for world in worlds:
            assert await world.actor().acquire("new", wait=3)
            await world.close()


# Limits ---------------------------------------------------------------------------------------------------------------


@played
async def test_max_connections_holds_for_those_who_come_together(world: World) -> None:
    client = world.connect(world.url_with("max_connections=2&request_timeout=1.5"))
    actors = world.actors(8, client)
    answers = await asyncio.gather(
        *(actor.try_acquire(f"job {number}") for number, actor in enumerate(actors)), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, StoreUnavailable)]
    assert len(refused) == len(actors) - 2, answers


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("mode", SESSION_MODES)
@pytest.mark.parametrize("engine", ENGINES)
def test_who_waits_in_vain_keeps_its_connection(engine: str, mode: str, colour: str) -> None:
    """Its session was ended, and the server wrote that to its log, each time."""
    server = {"postgres": postgres_server, "mysql": mariadb_server}[engine]()
    with server.fresh_database(mode=mode) as url:
        database = url.partition("?")[0].rpartition("/")[2]
        wait_in_vain(world=World(url, COLOURS[colour]), sessions=lambda: server.sessions(database))


@played
async def wait_in_vain(world: World, sessions: Any) -> None:
    alice, bob = world.actors(2)
    lease = await alice.acquire("job")
    with pytest.raises(LockTimeout):
        await bob.acquire("job", wait=0.05)
    before = {each.id for each in sessions()}
    for _ in range(3):
        with pytest.raises(LockTimeout):
            await bob.acquire("job", wait=0.05)
    assert {each.id for each in sessions()} == before
    waiting = bob.acquire("job")
    await world.queued("job", 1)
    await alice.release(lease)
    await bob.release(await waiting)
    await alice.release(await alice.try_acquire("job"))
