"""Claims in SQL that are held up in the network, given up for lost, and then arrive after all.

A server's own time-outs do not help: they count from the arrival.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from gripfast import OutcomeUnknown
from regressions.redis_stage import played
from regressions.sql_stage import ENGINES, lanes_to, numbers, owed, url_through
from support.colours import COLOURS, World
from support.lanes import Lanes
from support.waiting import auntil

pytestmark = pytest.mark.in_turn(2)

TIMEOUT = 1.0


@pytest.fixture(scope="module", params=ENGINES)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ENGINES[request.param]() as server:
        yield server


@pytest.fixture
def lanes(server: Any) -> Iterator[Lanes]:
    with lanes_to(server) as lanes:
        yield lanes


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, server: Any, lanes: Lanes) -> World:
    return World(url_through(lanes, server, request_timeout=TIMEOUT), COLOURS[request.param])


async def hold_up(actor: Any, lanes: Lanes, server: Any) -> set[int]:
    """The actor is connected, and what it asks next stays on its way; the sessions that will hear it."""
    await actor.release(await actor.acquire("warm-up"))
    lanes.hold()
    return numbers(server)


async def arrive(late: set[int], lanes: Lanes, server: Any) -> None:
    """What was held up arrives now; their sessions have done it, and ended, when this returns."""
    assert any(lane.held for lane in lanes.all()), "nothing was held up"
    lanes.let_go()
    await auntil(lambda: not late & numbers(server))


def holders(server: Any) -> int:
    return int(server.execute("SELECT count(*) FROM gripfast_lock WHERE owner IS NOT NULL")[0][0])


@played
async def test_a_late_claim_of_a_lease_that_is_over_takes_nothing(world: World, lanes: Lanes, server: Any) -> None:
    alice = world.actor()
    late = await hold_up(alice, lanes, server)
    await alice.release(await alice.acquire("job"))  # granted on another connection
    await arrive(late, lanes, server)
    assert holders(server) == 0


@played
async def test_a_late_claim_of_someone_who_gave_up_takes_nothing(world: World, lanes: Lanes, server: Any) -> None:
    alice = world.actor()
    late = await hold_up(alice, lanes, server)
    with pytest.raises(OutcomeUnknown):
        await alice.try_acquire("job")
    await auntil(lambda: not owed(alice.client))
    await arrive(late, lanes, server)
    assert holders(server) == 0


@played
async def test_a_late_renewal_does_not_bring_a_released_lease_back(world: World, lanes: Lanes, server: Any) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", renew=False)
    late = await hold_up(alice, lanes, server)
    with pytest.raises(OutcomeUnknown):
        await alice.extend(lease)
    await alice.release(lease)
    await arrive(late, lanes, server)
    assert holders(server) == 0


@played
async def test_nothing_is_remembered_of_who_found_the_lock_taken(world: World) -> None:
    alice, bob = world.actors(2)
    await alice.acquire("job")
    for _ in range(3):
        assert await bob.try_acquire("job") is None
    assert not bob.client._runtime.env.store._link.claims
