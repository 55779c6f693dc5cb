"""Interrupts and cancels at every point of releases whose answers nobody waits for, and of whoever reads these.

Afterwards the lock is free, and the ledger has nothing of it. Before that, what is unread is read, so that a run need
not wait for the watchdog to do it.
"""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast.runtime.blocking import drive
from support.sweeping import Action, Moment, Report, Swept, combined, sweep_cancels, sweep_interrupts
from sweeps.test_cancels import AsyncWorld, CancelTrial, Prepared
from sweeps.test_interrupts_asyncio import AsyncioTrial
from sweeps.test_interrupts_blocking import BlockingTrial
from sweeps.worlds import PATIENCE, TARGET, World, url_of

pytestmark = pytest.mark.filterwarnings("ignore")  # a broken run may well drop a lease
STORES = ("redis", "redis-grace", "sentinel", "redlock")
BUDGET = {"redis": 40} | dict.fromkeys(STORES[1:], 14)
LOOP_BUDGET = {"redis": 15} | dict.fromkeys(STORES[1:], 6)


def read_afterwards(world: World) -> None:
    client = world.first
    world.afterwards(lambda: drive(client._store().read_late(PATIENCE)))  # type: ignore[attr-defined]


def release(world: World) -> Action:
    read_afterwards(world)
    return world.lock(lazy_release=True).acquire().release


def with_lock(world: World) -> Action:
    read_afterwards(world)
    lock = world.lock(lazy_release=True)

    def action() -> None:
        with lock as lease:
            lease.ensure_held()

    return action


def with_lock_behind_a_release(world: World) -> Action:
    """Whoever is interrupted has the only connection on which the answer comes, and the lease object lives on."""
    read_afterwards(world)
    lock = world.lock(lazy_release=True)
    lease = lock.acquire()
    lease.release()
    world.afterwards(lambda: lease.held)

    def action() -> None:
        with lock as second:
            assert second.token > lease.token

    return action


def try_acquire_of_another_name_behind_a_release(world: World) -> Action:
    read_afterwards(world)
    lease = world.lock(lazy_release=True).acquire()
    lease.release()
    world.afterwards(lambda: lease.held)
    other = world.first.lock(f"other-{world.name}", lazy_release=True)
    return lambda: other.acquire().release()


def inspect_behind_a_release(world: World) -> Action:
    read_afterwards(world)
    world.lock(lazy_release=True).acquire().release()

    def action() -> None:
        assert world.first.inspect(world.name) is None

    return action


def with_locks(world: World) -> Action:
    read_afterwards(world)
    locks = world.first.locks(f"a-{world.name}", world.name, lazy_release=True)

    def action() -> None:
        with locks as leases:
            leases.ensure_held()

    return action


def first_use_of_a_client(world: World) -> Action:
    """The answer is read when the client is closed."""
    url, name = world.url, world.name

    def action() -> None:
        with gripfast.connect(url) as client, client.lock(name, lazy_release=True) as lease:
            lease.ensure_held()

    return action


def first_use_of_a_client_that_nobody_closes(world: World) -> Action:
    url, name = world.url, world.name

    def action() -> None:
        with gripfast.connect(url).lock(name, lazy_release=True) as lease:
            lease.ensure_held()

    return action


SCENARIOS: tuple[Callable[[World], Action], ...] = (
    release,
    with_lock,
    with_lock_behind_a_release,
    try_acquire_of_another_name_behind_a_release,
    inspect_behind_a_release,
    with_locks,
    first_use_of_a_client,
    first_use_of_a_client_that_nobody_closes,
)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(store: str, tmp_path: Path) -> Iterator[World]:
    with contextlib.closing(World(url_of(store, tmp_path))) as world:
        yield world


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Dropping the exception must be enough."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_an_interrupt_at_any_opcode_comes_out_and_leaves_nothing_held(
    scenario: Callable[[World], Action], store: str, world: World, report: Report
) -> None:
    report(sweep_interrupts(BlockingTrial(world, scenario), TARGET, BUDGET[store]))


# -- tasks ---------------------------------------------------------------------------------------------------------


async def async_release(world: AsyncWorld) -> Prepared:
    lease = await world.lock(lazy_release=True).acquire()
    return lease.release()


async def async_with_lock(world: AsyncWorld) -> Prepared:
    async def swept() -> None:
        async with world.lock(lazy_release=True) as lease:
            lease.ensure_held()
            await asyncio.sleep(0)

    return swept()


async def async_with_lock_behind_a_release(world: AsyncWorld) -> Prepared:
    async def swept() -> None:
        lease = await world.lock(lazy_release=True).acquire()
        await lease.release()
        async with world.lock(lazy_release=True) as second:
            assert second.token > lease.token

    return swept()


async def async_with_locks(world: AsyncWorld) -> Prepared:
    async def swept() -> None:
        async with world.first.locks(f"a-{world.name}", world.name, lazy_release=True) as leases:
            leases.ensure_held()

    return swept()


async def async_first_use_of_a_client(world: AsyncWorld) -> Prepared:
    async def swept() -> None:
        async with gripfast.connect_async(world.url) as client, client.lock(world.name, lazy_release=True):
            await asyncio.sleep(0)

    return swept()


ASYNC: tuple[Callable[[AsyncWorld], Coroutine[Any, Any, Prepared]], ...] = (
    async_release,
    async_with_lock,
    async_with_lock_behind_a_release,
    async_with_locks,
    async_first_use_of_a_client,
)


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("scenario", ASYNC, ids=lambda scenario: scenario.__name__)
def test_a_cancel_at_any_await_comes_out_and_leaves_nothing_held(
    scenario: Callable[[AsyncWorld], Coroutine[Any, Any, Prepared]], store: str, tmp_path: Path, report: Report
) -> None:
    async def main() -> Swept:
        world = AsyncWorld(url_of(store, tmp_path))
        try:
            sweeps = [await sweep_cancels(CancelTrial(world, scenario), moment) for moment in Moment]
        finally:
            await world.aclose()
        return combined(sweeps)

    report(asyncio.run(main()))


async def loop_with_lock(client: gripfast.AsyncClient, name: str) -> None:
    async with client.lock(name, lazy_release=True) as lease:
        lease.ensure_held()


async def loop_with_lock_twice(client: gripfast.AsyncClient, name: str) -> None:
    await loop_with_lock(client, name)
    await loop_with_lock(client, name)


async def loop_with_closed_client(client: gripfast.AsyncClient, name: str) -> None:
    async with client:
        await loop_with_lock(client, name)


@pytest.mark.parametrize(
    "main", [loop_with_lock, loop_with_lock_twice, loop_with_closed_client], ids=lambda main: main.__name__
)
def test_an_interrupt_at_any_opcode_stops_the_loop_and_leaves_nothing_held(
    main: Any, store: str, world: World, report: Report
) -> None:
    report(sweep_interrupts(AsyncioTrial(world, main, "free"), TARGET, LOOP_BUDGET[store]))
