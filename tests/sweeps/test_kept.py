"""Interrupts and cancels at every point of `min_hold`, `once()`, `detach()` and `adopt()`.

Afterwards nobody holds the lock. It is free, or a marker has it, or, where it was detached, whoever has the text.
"""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import gripfast
from support.sweeping import Action, Moment, Report, Swept, combined, sweep_cancels, sweep_interrupts
from support.waiting import auntil, until
from sweeps.test_cancels import AsyncWorld, CancelTrial, Prepared
from sweeps.test_interrupts_blocking import BlockingTrial
from sweeps.worlds import LEVELS, PATIENCE, TARGET, World, url_of

pytestmark = pytest.mark.filterwarnings("ignore")  # a broken run may well drop a lease
OFTEN = {"memory": 40, "sqlite": 20, "redis": 20}
BUDGET = OFTEN | dict.fromkeys((*LEVELS, "postgres-lease", "mysql-lease", "etcd", "etcd-trio"), 8)
STORES = tuple(BUDGET)
LONG = 600.0


def is_right(info: gripfast.LockInfo | None, former: str) -> bool:
    return info is None or info.kept is not None or info.owner == former


def nobody_holds_it(world: World, former: str = "") -> None:
    """Then free it, whatever has it."""
    name, client = world.name, world.second

    def check() -> None:
        until(lambda: is_right(client.inspect(name), former), within=PATIENCE)
        client.forget(name)
        client.force_release(name)

    world.afterwards(check)


def release_of_a_min_hold(world: World) -> Action:
    nobody_holds_it(world)
    return world.lock(min_hold=LONG).acquire().release


def with_lock_of_a_min_hold(world: World) -> Action:
    nobody_holds_it(world)
    lock = world.lock(min_hold=LONG)

    def action() -> None:
        with lock as lease:
            lease.ensure_held()

    return action


def with_once(world: World) -> Action:
    nobody_holds_it(world)
    once = world.first.once(world.name, keep=LONG)

    def action() -> None:
        with once as run:
            assert run

    return action


def with_once_that_fails(world: World) -> Action:
    nobody_holds_it(world)
    once = world.first.once(world.name, keep=LONG)

    def action() -> None:
        with contextlib.suppress(ZeroDivisionError), once:
            raise ZeroDivisionError

    return action


def with_once_that_is_done(world: World) -> Action:
    nobody_holds_it(world)
    with world.second.once(world.name, keep=LONG) as run:
        assert run
    once = world.first.once(world.name, keep=LONG, wait=5)

    def action() -> None:
        with once as run:
            assert run.done

    return action


def decorated_once(world: World) -> Action:
    nobody_holds_it(world)
    return world.first.once(world.name, keep=LONG)(lambda: None)


def detach(world: World) -> Action:
    lease = world.lock().acquire()
    nobody_holds_it(world, lease.owner)
    return lambda: lease.detach() and None


def adopt_and_release(world: World) -> Action:
    lease = world.second.lock(world.name).acquire()
    nobody_holds_it(world, lease.owner)
    text = lease.detach()
    return lambda: world.first.adopt(text).release()


def with_adopt(world: World) -> Action:
    lease = world.second.lock(world.name).acquire()
    nobody_holds_it(world, lease.owner)
    text = lease.detach()

    def action() -> None:
        with world.first.adopt(text) as adopted:
            adopted.ensure_held()

    return action


SCENARIOS: tuple[Callable[[World], Action], ...] = (
    release_of_a_min_hold,
    with_lock_of_a_min_hold,
    with_once,
    with_once_that_fails,
    with_once_that_is_done,
    decorated_once,
    detach,
    adopt_and_release,
    with_adopt,
)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(store: str, tmp_path: Path) -> Iterator[World]:
    gc.disable()  # dropping the exception must be enough
    with contextlib.closing(World(url_of(store, tmp_path))) as world:
        yield world
    gc.enable()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_an_interrupt_at_any_opcode_comes_out_and_leaves_nothing_held(
    scenario: Callable[[World], Action], store: str, world: World, report: Report
) -> None:
    report(sweep_interrupts(BlockingTrial(world, scenario), TARGET, BUDGET[store]))


# -- tasks ---------------------------------------------------------------------------------------------------------


def nobody_has_it(world: AsyncWorld, former: str = "") -> None:
    name, client = world.name, world.second

    async def settled() -> bool:
        return is_right(await client.inspect(name), former)

    async def check() -> None:
        await auntil(settled, within=PATIENCE)
        await client.forget(name)
        await client.force_release(name)

    world.afterwards(check)


async def async_min_hold(world: AsyncWorld) -> Prepared:
    nobody_has_it(world)

    async def swept() -> None:
        async with world.lock(min_hold=LONG) as lease:
            lease.ensure_held()

    return swept()


async def async_once(world: AsyncWorld) -> Prepared:
    nobody_has_it(world)

    async def swept() -> None:
        async with world.first.once(world.name, keep=LONG) as run:
            assert run
            await asyncio.sleep(0)

    return swept()


async def async_detach(world: AsyncWorld) -> Prepared:
    lease = await world.lock().acquire()
    nobody_has_it(world, lease.owner)
    return lease.detach()


async def async_adopt(world: AsyncWorld) -> Prepared:
    lease = await world.second.lock(world.name).acquire()
    nobody_has_it(world, lease.owner)
    text = await lease.detach()

    async def swept() -> None:
        async with await world.first.adopt(text) as adopted:
            adopted.ensure_held()
            await asyncio.sleep(0)

    return swept()


ASYNC: tuple[Callable[[AsyncWorld], Coroutine[Any, Any, Prepared]], ...] = (
    async_min_hold,
    async_once,
    async_detach,
    async_adopt,
)


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

    gc.disable()  # dropping the exception must be enough
    try:
        report(asyncio.run(main()))
    finally:
        gc.enable()
