"""The server becomes a replica, and its address leads to another: no connection to the old one is used any more."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

import gripfast
from gripfast import LeaseLost, StoreUnavailable
from regressions.redis_stage import played
from regressions.sql_stage import ENGINES, MODES, SESSION_MODES
from support.colours import COLOURS, World
from support.proxy import HOST, Proxy
from support.waiting import auntil

pytestmark = pytest.mark.in_turn(2)


class Pair(NamedTuple):
    old: Any
    new: Any


@pytest.fixture(scope="module", params=ENGINES)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two servers; the old one takes no writes."""
    with ENGINES[request.param]() as old, ENGINES[request.param]() as new:
        with gripfast.connect(old.url) as client, client.lock("first"):
            """There are tables."""
        old.make_read_only()
        yield Pair(old, new)


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Any:
    return COLOURS[request.param]


def through(proxy: Proxy, server: Any, **options: object) -> str:
    return str(server.lock_space(**options)).replace(f":{server.port}/", f":{proxy.port}/")


@pytest.mark.parametrize("mode", MODES)
def test_the_next_request_reaches_the_new_primary(pair: Pair, colour: Any, mode: str) -> None:
    with Proxy((HOST, pair.old.port)) as proxy:
        world = World(through(proxy, pair.old, mode=mode, request_timeout=5), colour)
        find_the_primary(world=world, proxy=proxy, pair=pair)


@played
async def find_the_primary(world: World, proxy: Proxy, pair: Pair) -> None:
    alice = world.actor()
    with pytest.raises(StoreUnavailable, match="writes"):
        await alice.try_acquire("job")
    proxy.lead_to((HOST, pair.new.port))
    await alice.release(await alice.try_acquire("job"))


LIVE = pytest.mark.parametrize("pair", ["mysql"], indirect=True)
"""MariaDB is demoted without a restart, so that its connections stay."""


@LIVE
@pytest.mark.parametrize("mode", MODES)
def test_connections_from_before_the_switch_over_are_left(pair: Pair, colour: Any, mode: str) -> None:
    with promoted(pair.old), Proxy((HOST, pair.old.port)) as proxy:
        world = World(through(proxy, pair.old, mode=mode, request_timeout=5), colour)
        switch_over(world=world, proxy=proxy, pair=pair)


@played
async def switch_over(world: World, proxy: Proxy, pair: Pair) -> None:
    alice = world.actor()
    await alice.release(await alice.acquire("job"))
    pair.old.make_read_only()
    proxy.lead_to((HOST, pair.new.port))
    await alice.release(await alice.try_acquire("job"))


@LIVE
@pytest.mark.parametrize("mode", SESSION_MODES)
def test_what_is_locked_in_a_session_of_a_demoted_primary_is_lost(pair: Pair, colour: Any, mode: str) -> None:
    with promoted(pair.old):
        demote(world=World(pair.old.lock_space(mode=mode), colour), pair=pair)


@played
async def demote(world: World, pair: Pair) -> None:
    alice = world.actor()
    lease = await alice.acquire("job", ttl=2)
    pair.old.make_read_only()
    await auntil(lambda: not lease.held)
    with pytest.raises(LeaseLost, match="session"):
        await alice.release(lease)


@contextmanager
def promoted(server: Any) -> Iterator[None]:
    server.make_writable()
    try:
        yield
    finally:
        server.make_read_only()
