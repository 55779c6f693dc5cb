"""Cancel at every await of the asyncio API: the cancel comes out, and the lock is free within a second."""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast.testing.waiters import was_waited_for, watch_for_waiters
from support.sweeping import Moment, Report, Swept, combined, sweep_cancels
from support.waiting import auntil
from sweeps.worlds import PATIENCE, STORES, ledger_size, new_name, url_of

pytestmark = pytest.mark.filterwarnings("ignore")  # a broken run may well drop a lease, or a coroutine it did not start
COLOUR = "asyncio"


class AsyncWorld:
    """Two clients of one loop and the name of the current run."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.first = gripfast.connect_async(url)
        watch_for_waiters(self.first)
        self.second = gripfast.connect_async(url)
        self.name = ""
        self._afterwards: list[Callable[[], Coroutine[Any, Any, object]]] = []

    def lock(self, **settings: object) -> gripfast.AsyncLock:
        return self.first.lock(self.name, **settings)  # type: ignore[arg-type]

    def afterwards(self, step: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._afterwards.append(step)

    async def taken(self) -> None:
        lease = await self.second.lock(self.name).acquire(wait=PATIENCE)
        self.afterwards(lease.release)

    async def taken_until_awaited(self) -> None:
        """The second client has the lock until someone stands in line for it, or the broken part is over."""
        lease = await self.second.lock(self.name).acquire(wait=PATIENCE)
        over = asyncio.Event()

        async def let_go() -> None:
            async def awaited() -> bool:
                if not self.second.capabilities.waiters_seen:
                    return over.is_set() or was_waited_for(self.name)
                info = await self.second.inspect(self.name)
                return over.is_set() or (info is not None and info.waiters > 0)

            await auntil(awaited, within=10.0)
            await lease.release()

        helper = asyncio.create_task(let_go())

        async def end() -> None:
            over.set()
            await helper

        self.afterwards(end)

    async def problem(self) -> str | None:
        while self._afterwards:
            await self._afterwards.pop(0)()
        return await self.not_free() or await self.not_drained()

    async def not_free(self) -> str | None:
        try:
            lease = await self.second.lock(self.name).acquire(wait=PATIENCE)
        except gripfast.LockTimeout as error:
            await self.second.force_release(self.name)
            return f"not free within {PATIENCE:g} s: {error}"
        await lease.release()
        try:
            await auntil(self.is_free, within=PATIENCE)
        except AssertionError:
            return f"someone still has it: {await self.second.inspect(self.name)}"
        return None

    async def is_free(self) -> bool:
        return await self.second.inspect(self.name) is None

    async def not_drained(self) -> str | None:
        try:
            await auntil(lambda: ledger_size(self.first) == 0, within=PATIENCE)
        except AssertionError:
            return f"the ledger still has {ledger_size(self.first)} entries"
        return None

    async def aclose(self) -> None:
        await self.first.aclose()
        await self.second.aclose()


Prepared = Coroutine[Any, Any, object]
Scenario = Callable[[AsyncWorld], Coroutine[Any, Any, Prepared]]


async def _with(manager: Any) -> None:
    async with manager as lease:
        lease.ensure_held()
        await asyncio.sleep(0)


async def acquire(world: AsyncWorld) -> Prepared:
    async def swept() -> None:
        lease = await world.lock().acquire()
        await lease.release()

    return swept()


async def acquire_and_drop(world: AsyncWorld) -> Prepared:
    async def swept() -> None:
        await world.lock().acquire()

    return swept()


async def acquire_that_waits_and_is_granted(world: AsyncWorld) -> Prepared:
    await world.taken_until_awaited()
    return await acquire(world)


async def acquire_that_times_out(world: AsyncWorld) -> Prepared:
    await world.taken()

    async def swept() -> None:
        with contextlib.suppress(gripfast.LockTimeout):
            await world.lock().acquire(wait=0.02)

    return swept()


async def try_acquire(world: AsyncWorld) -> Prepared:
    async def swept() -> None:
        lease = await world.lock().try_acquire()
        assert lease is not None
        await lease.release()

    return swept()


async def try_acquire_of_a_taken_lock(world: AsyncWorld) -> Prepared:
    await world.taken()

    async def swept() -> None:
        assert await world.lock().try_acquire() is None

    return swept()


async def with_lock(world: AsyncWorld) -> Prepared:
    return _with(world.lock())


async def with_acquire(world: AsyncWorld) -> Prepared:
    return _with(world.lock().acquire())


async def with_lock_that_waits_and_is_granted(world: AsyncWorld) -> Prepared:
    await world.taken_until_awaited()
    return _with(world.lock())


async def with_acquire_that_waits_and_is_granted(world: AsyncWorld) -> Prepared:
    await world.taken_until_awaited()
    return _with(world.lock().acquire(wait=10.0))


async def with_lock_twice_by_reentry(world: AsyncWorld) -> Prepared:
    lock = world.lock(reentrant=True)

    async def swept() -> None:
        async with lock:
            await _with(lock)

    return swept()


async def release(world: AsyncWorld) -> Prepared:
    lease = await world.lock().acquire()
    return lease.release()


async def extend(world: AsyncWorld) -> Prepared:
    lease = await world.lock().acquire()
    return lease.extend(60.0)


async def decorated_function(world: AsyncWorld) -> Prepared:
    @world.first.locked(world.name)
    async def work() -> None:
        await asyncio.sleep(0)

    return work()


async def first_use_of_a_client(world: AsyncWorld) -> Prepared:
    async def swept() -> None:
        async with gripfast.connect_async(world.url) as client:
            await _with(client.lock(world.name))

    return swept()


async def close_with_a_lease_still_held(world: AsyncWorld) -> Prepared:
    client = gripfast.connect_async(world.url)
    lease = await client.lock(world.name).acquire()

    async def swept() -> None:
        await client.aclose()
        assert not lease.held

    world.afterwards(client.aclose)
    return swept()


async def with_locks(world: AsyncWorld) -> Prepared:
    async def swept() -> None:
        async with world.first.locks(f"a-{world.name}", world.name) as leases:
            leases.ensure_held()

    return swept()


async def with_locks_of_which_the_second_is_waited_for(world: AsyncWorld) -> Prepared:
    await world.taken_until_awaited()
    return await with_locks(world)


async def locks_of_which_the_second_is_taken(world: AsyncWorld) -> Prepared:
    await world.taken()

    async def swept() -> None:
        assert await world.first.locks(f"a-{world.name}", world.name).try_acquire() is None

    return swept()


async def _work(term: gripfast.AsyncLease) -> None:
    term.ensure_held()
    await asyncio.sleep(0)


async def with_lead(world: AsyncWorld) -> Prepared:
    return _with(world.first.election(world.name, "value").lead())


async def run_of_an_election(world: AsyncWorld) -> Prepared:
    return world.first.election(world.name).run(_work)


async def run_of_an_election_that_campaigns(world: AsyncWorld) -> Prepared:
    await world.taken_until_awaited()
    return await run_of_an_election(world)


async def run_whose_first_term_is_lost(world: AsyncWorld) -> Prepared:
    terms: list[int] = []

    async def lose_the_first(term: gripfast.AsyncLease) -> None:
        terms.append(term.token)
        if len(terms) == 1:
            term._state.finish("broken")
            term._state.tell()
        await asyncio.sleep(0)

    return world.first.election(world.name).run(lose_the_first)


SCENARIOS: tuple[Scenario, ...] = (
    acquire,
    acquire_and_drop,
    acquire_that_waits_and_is_granted,
    acquire_that_times_out,
    try_acquire,
    try_acquire_of_a_taken_lock,
    with_lock,
    with_acquire,
    with_lock_that_waits_and_is_granted,
    with_acquire_that_waits_and_is_granted,
    with_lock_twice_by_reentry,
    release,
    extend,
    decorated_function,
    first_use_of_a_client,
    close_with_a_lease_still_held,
    with_locks,
    with_locks_of_which_the_second_is_waited_for,
    locks_of_which_the_second_is_taken,
    with_lead,
    run_of_an_election,
    run_of_an_election_that_campaigns,
    run_whose_first_term_is_lost,
)


class CancelTrial:
    def __init__(self, world: AsyncWorld, scenario: Scenario) -> None:
        self._world = world
        self._scenario = scenario

    async def begin(self) -> Prepared:
        self._world.name = new_name()
        return await self._scenario(self._world)

    async def problem(self) -> str | None:
        return await self._world.problem()


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_cancel_at_any_await_comes_out_and_leaves_nothing_held(
    scenario: Scenario, store: str, tmp_path: Path, report: Report
) -> None:
    async def main() -> Swept:
        world = AsyncWorld(url_of(store, tmp_path))
        tasks_before = asyncio.all_tasks()
        try:
            sweeps = [await sweep_cancels(CancelTrial(world, scenario), moment) for moment in Moment]
        finally:
            await world.aclose()
        await auntil(lambda: asyncio.all_tasks() <= tasks_before)
        return combined(sweeps)

    gc.disable()  # dropping the exception must be enough
    try:
        report(asyncio.run(main()))
    finally:
        gc.enable()
