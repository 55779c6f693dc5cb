"""KeyboardInterrupt at every opcode of Gripfast's frames while an event loop runs.

The interrupt stops the loop for good: whatever the client had at the store must be given back without it. A blocking
client, which knows nothing of that loop, must get the lock within a second.

asyncio itself ties a knot here: the task keeps the interrupt, whose traceback keeps the task and all frames below it.
So the exception is only dropped when the garbage collector has run.
"""

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import gripfast
from support.sweeping import Action, Report, sweep_interrupts
from sweeps.worlds import LEVELS, SQL, STORES, TARGET, World, url_of

pytestmark = pytest.mark.filterwarnings("ignore")  # a broken run may well drop a lease, or a coroutine it did not start
COLOUR = "asyncio"

BUDGET = {
    "memory": 25, "sqlite": 15, "redis": 15, "sentinel": 9, "redlock": 6, "cluster": 9, "zookeeper": 6, "etcd": 6
} | dict.fromkeys((*SQL, *LEVELS, "etcd-trio"), 6)  # fmt: skip

Main = Callable[[gripfast.AsyncClient, str], Awaitable[None]]


async def acquire_and_release(client: gripfast.AsyncClient, name: str) -> None:
    lease = await client.lock(name).acquire()
    await lease.release()


async def acquire_and_drop(client: gripfast.AsyncClient, name: str) -> None:
    await client.lock(name).acquire()


async def with_lock(client: gripfast.AsyncClient, name: str) -> None:
    async with client.lock(name) as lease:
        lease.ensure_held()


async def with_acquire(client: gripfast.AsyncClient, name: str) -> None:
    async with client.lock(name).acquire() as lease:
        lease.ensure_held()


async def with_lock_in_a_closed_client(client: gripfast.AsyncClient, name: str) -> None:
    async with client, client.lock(name) as lease:
        lease.ensure_held()


async def with_lock_twice_by_reentry(client: gripfast.AsyncClient, name: str) -> None:
    lock = client.lock(name, reentrant=True)
    async with lock as outer, lock as inner:
        assert outer.token == inner.token


async def try_acquire(client: gripfast.AsyncClient, name: str) -> None:
    lease = await client.lock(name).try_acquire()
    assert lease is not None
    await lease.release()


async def extend(client: gripfast.AsyncClient, name: str) -> None:
    async with client.lock(name) as lease:
        await lease.extend(60.0)


async def with_lock_in_a_task(client: gripfast.AsyncClient, name: str) -> None:
    await asyncio.create_task(with_lock_coroutine(client, name))


async def with_lock_coroutine(client: gripfast.AsyncClient, name: str) -> None:
    await with_lock(client, name)


async def acquire_that_times_out(client: gripfast.AsyncClient, name: str) -> None:
    with contextlib.suppress(gripfast.LockTimeout):
        await client.lock(name).acquire(wait=0.005)


async def with_locks(client: gripfast.AsyncClient, name: str) -> None:
    async with client.locks(f"a-{name}", name) as leases:
        leases.ensure_held()


async def run_of_an_election(client: gripfast.AsyncClient, name: str) -> None:
    async def work(term: gripfast.AsyncLease) -> None:
        term.ensure_held()

    await client.election(name).run(work)


async def run_whose_first_term_is_lost(client: gripfast.AsyncClient, name: str) -> None:
    terms: list[int] = []

    async def lose_the_first(term: gripfast.AsyncLease) -> None:
        terms.append(term.token)
        if len(terms) == 1:
            term._state.finish("broken")
            term.ensure_held()

    await client.election(name).run(lose_the_first)


FREE: tuple[Main, ...] = (
    acquire_and_release,
    acquire_and_drop,
    with_lock,
    with_acquire,
    with_lock_in_a_closed_client,
    with_lock_twice_by_reentry,
    try_acquire,
    extend,
    with_lock_in_a_task,
    with_locks,
    run_of_an_election,
    run_whose_first_term_is_lost,
)
TAKEN: tuple[Main, ...] = (acquire_that_times_out,)
TAKEN_UNTIL_AWAITED: tuple[Main, ...] = (acquire_and_release, with_lock, with_locks, run_of_an_election)

CASES = [
    *((main, "free") for main in FREE),
    *((main, "taken") for main in TAKEN),
    *((main, "awaited") for main in TAKEN_UNTIL_AWAITED),
]


class AsyncioTrial:
    """Each run has an event loop and a client of its own."""

    def __init__(self, world: World, main: Main, state: str) -> None:
        self._world = world
        self._main = main
        self._prepare = {"free": lambda: None, "taken": world.taken, "awaited": world.taken_until_awaited}[state]

    def begin(self) -> Action:
        self._world.new_run()
        self._prepare()
        url, name = self._world.url, self._world.name

        async def main() -> None:
            # An interrupt in a task that nobody awaits is told to the log; here it is meant.
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            await self._main(gripfast.connect_async(url), name)

        return lambda: asyncio.run(main())

    def problem(self) -> str | None:
        gc.collect()
        return self._world.problem()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(store: str, tmp_path: Path) -> Iterator[World]:
    with contextlib.closing(World(url_of(store, tmp_path))) as world:
        yield world


@pytest.mark.parametrize(("main", "state"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_an_interrupt_at_any_opcode_stops_the_loop_and_leaves_nothing_held(
    main: Main, state: str, store: str, world: World, report: Report
) -> None:
    report(sweep_interrupts(AsyncioTrial(world, main, state), TARGET, BUDGET[store]))
