"""KeyboardInterrupt at every opcode, and a cancel at every await, of semaphores and read/write locks: it comes out, and
all permits are free within a second."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import gripfast
from gripfast.testing.waiters import was_waited_for
from support.sweeping import Action, Moment, Report, Swept, combined, sweep_cancels, sweep_interrupts
from support.waiting import auntil, until
from sweeps.test_cancels import AsyncWorld
from sweeps.worlds import PATIENCE, STORES, TARGET, World, new_name, url_of

pytestmark = pytest.mark.filterwarnings("ignore")  # a broken run may well drop a lease, or a coroutine it did not start

BUDGET = {"memory": 40, "sqlite": 20}
BUDGET_OF_SERVERS = 8
LIMIT = 2
Kind = Literal["semaphore", "rwlock"]


def kinds_of(client: gripfast.Client | gripfast.AsyncClient) -> list[Kind]:
    can = client.capabilities
    kinds: dict[Kind, bool] = {"semaphore": can.semaphores, "rwlock": can.rwlocks}
    return [kind for kind, has in kinds.items() if has]


def skip_unless_it_can(client: gripfast.Client | gripfast.AsyncClient, scenario: Callable[..., Any]) -> None:
    """What a scenario is about, its name says."""
    can, about = client.capabilities, scenario.__name__
    is_rw = "read" in about or "write" in about or "downgrade" in about
    can_kind = can.rwlocks if is_rw else can.semaphores
    needs_session = "exception_is_kept" in about
    if not can_kind or ("downgrade" in about and not can.downgrades) or (needs_session and not can.session):
        pytest.skip(f"this store can't {about}")


class PermitWorld(World):
    """The second client takes all permits, where a scenario needs that, and in the end."""

    def semaphore(self) -> gripfast.Semaphore:
        return self.first.semaphore(self.name, LIMIT)

    def rwlock(self) -> gripfast.RWLock:
        return self.first.rwlock(self.name)

    def take_all(self, wait: float | None = None) -> list[gripfast.Lease]:
        leases: list[gripfast.Lease] = []
        for kind in kinds_of(self.second):
            if kind == "semaphore":
                leases.append(self.second.semaphore(self.name, LIMIT).acquire(LIMIT, wait=wait))
            else:
                leases.append(self.second.rwlock(self.name).write().acquire(wait=wait))
        return leases

    def taken(self) -> None:
        for lease in self.take_all():
            self.afterwards(lease.release)

    def taken_until_awaited(self) -> None:
        leases = self.take_all()
        over = threading.Event()

        def let_go() -> None:
            until(lambda: over.is_set() or self.waiters() > 0, within=10.0)
            for lease in leases:
                lease.release()

        thread = threading.Thread(target=let_go)
        thread.start()
        self.afterwards(over.set)
        self.afterwards(thread.join)

    def end(self, lease: gripfast.Lease) -> None:
        """A session ends if the reading of an answer was interrupted, and the lease with it."""
        with contextlib.suppress(*[gripfast.LeaseLost][: self.first.capabilities.session]):
            lease.release()

    def waiters(self) -> int:
        if not self.second.capabilities.waiters_seen:
            return int(was_waited_for(self.name))
        infos = [self.second.inspect(self.name, kind) for kind in kinds_of(self.second)]
        return sum(info.waiters for info in infos if info is not None)

    def not_free(self) -> str | None:
        try:
            for lease in self.take_all(PATIENCE):
                lease.release()
        except gripfast.LockTimeout as error:
            return f"not free within {PATIENCE:g} s: {error}"
        try:
            until(lambda: not any(self.seen()), within=PATIENCE)
        except AssertionError:
            return f"someone still has it: {self.seen()}"
        return None

    def seen(self) -> list[gripfast.PermitInfo | None]:
        return [self.second.inspect(self.name, kind) for kind in kinds_of(self.second)]


Scenario = Callable[[PermitWorld], Action]


def acquire_and_release(world: PermitWorld) -> Action:
    semaphore = world.semaphore()
    return lambda: semaphore.acquire(2).release()


def acquire_and_drop(world: PermitWorld) -> Action:
    semaphore = world.semaphore()
    return lambda: semaphore.acquire(wait=5) and None


def with_semaphore(world: PermitWorld) -> Action:
    semaphore = world.semaphore()

    def action() -> None:
        with semaphore as lease:
            assert lease.slots == (0,)

    return action


def with_semaphore_that_waits_and_is_granted(world: PermitWorld) -> Action:
    world.taken_until_awaited()
    return with_semaphore(world)


def acquire_that_times_out(world: PermitWorld) -> Action:
    world.taken()
    semaphore = world.semaphore()

    def action() -> None:
        with contextlib.suppress(gripfast.LockTimeout):
            semaphore.acquire(wait=0.005)

    return action


def release(world: PermitWorld) -> Action:
    return world.semaphore().acquire().release


def release_that_hands_over(world: PermitWorld) -> Action:
    """Whoever waits is told, although the release was interrupted before it could tell."""
    lease = world.semaphore().acquire(2)
    got: list[gripfast.Lease] = []
    thread = threading.Thread(target=lambda: got.append(world.second.semaphore(world.name, LIMIT).acquire(wait=10)))
    thread.start()
    until(lambda: world.waiters() > 0)

    def end() -> None:
        thread.join(PATIENCE)
        assert got, "the waiter was not told"
        got.pop().release()

    world.afterwards(end)
    return lease.release


def limited_function(world: PermitWorld) -> Action:
    return world.first.limited(world.name, LIMIT)(lambda: None)


def writing_function_that_reads(world: PermitWorld) -> Action:
    read = world.first.read_locked(world.name)(lambda: None)
    return world.first.write_locked(world.name)(lambda: read())


def with_read_and_read_again(world: PermitWorld) -> Action:
    rwlock = world.rwlock()

    def action() -> None:
        with rwlock.read() as outer, rwlock.read() as inner:
            assert outer.token == inner.token

    return action


def with_write_that_waits_and_is_granted(world: PermitWorld) -> Action:
    world.taken_until_awaited()
    rwlock = world.rwlock()

    def action() -> None:
        with rwlock.write() as lease:
            lease.ensure_held()

    return action


def write_that_times_out(world: PermitWorld) -> Action:
    """On some stores it has a turnstile by then, behind which readers wait."""
    world.afterwards(world.second.rwlock(world.name).read().acquire().release)
    rwlock = world.rwlock()

    def action() -> None:
        with contextlib.suppress(gripfast.LockTimeout):
            rwlock.write().acquire(wait=0.005)

    return action


def downgrade(world: PermitWorld) -> Action:
    lease = world.rwlock().write().acquire()

    def end() -> None:
        """A downgrade that was begun is repeated until it is confirmed: readers get in."""
        share = lease._state.want.share
        if share is not None and share.n == 1:
            world.second.rwlock(world.name).read().acquire(wait=3 * PATIENCE).release()
        world.end(lease)

    world.afterwards(end)
    return lease.downgrade


def downgrade_whose_exception_is_kept(world: PermitWorld) -> Action:
    """And with it all frames, as a debugger does, or a thread that waits for the processor meanwhile. A session is
    repaired all the same."""
    kept: list[BaseException] = []
    lower = downgrade(world)
    world.afterwards(kept.clear)

    def action() -> None:
        try:
            lower()
        except BaseException as error:
            kept.append(error)
            raise

    return action


def downgrade_that_hands_over(world: PermitWorld) -> Action:
    lease = world.rwlock().write().acquire()
    got: list[gripfast.Lease] = []
    thread = threading.Thread(target=lambda: got.append(world.second.rwlock(world.name).read().acquire(wait=10)))
    thread.start()
    until(lambda: world.waiters() > 0)

    def end() -> None:
        share = lease._state.want.share
        if lease.held and (share is None or share.n > 1):
            lease.downgrade()  # it was not begun
        thread.join(3 * PATIENCE)
        assert got, "the waiting reader was not told"
        got.pop().release()
        world.end(lease)

    world.afterwards(end)
    return lease.downgrade


def with_write_and_downgrade(world: PermitWorld) -> Action:
    rwlock = world.rwlock()

    def action() -> None:
        with rwlock.write() as lease:
            lease.downgrade()

    return action


SCENARIOS: tuple[Scenario, ...] = (
    acquire_and_release,
    acquire_and_drop,
    with_semaphore,
    with_semaphore_that_waits_and_is_granted,
    acquire_that_times_out,
    release,
    release_that_hands_over,
    limited_function,
    writing_function_that_reads,
    with_read_and_read_again,
    with_write_that_waits_and_is_granted,
    write_that_times_out,
    downgrade,
    downgrade_whose_exception_is_kept,
    downgrade_that_hands_over,
    with_write_and_downgrade,
)


class PermitTrial:
    def __init__(self, world: PermitWorld, scenario: Scenario) -> None:
        self._world = world
        self._scenario = scenario

    def begin(self) -> Action:
        self._world.new_run()
        return self._scenario(self._world)

    def problem(self) -> str | None:
        return self._world.problem()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(store: str, tmp_path: Path) -> Iterator[PermitWorld]:
    gc.disable()  # dropping the exception must be enough
    try:
        with contextlib.closing(PermitWorld(url_of(store, tmp_path))) as world:
            yield world
    finally:
        gc.enable()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_an_interrupt_at_any_opcode_comes_out_and_leaves_no_permit_taken(
    scenario: Scenario, store: str, world: PermitWorld, report: Report
) -> None:
    skip_unless_it_can(world.second, scenario)
    report(sweep_interrupts(PermitTrial(world, scenario), TARGET, BUDGET.get(store, BUDGET_OF_SERVERS)))


# -- cancels ----------------------------------------------------------------------------------------------------------


class AsyncPermitWorld(AsyncWorld):
    async def taken(self) -> None:
        lease = await self.second.semaphore(self.name, LIMIT).acquire(LIMIT)
        self.afterwards(lease.release)

    async def not_free(self) -> str | None:
        try:
            if self.second.capabilities.semaphores:
                await (await self.second.semaphore(self.name, LIMIT).acquire(LIMIT, wait=PATIENCE)).release()
            await (await self.second.rwlock(self.name).write().acquire(wait=PATIENCE)).release()
            await auntil(self.is_free, within=PATIENCE)
        except (gripfast.LockTimeout, AssertionError) as error:
            return f"not free within {PATIENCE:g} s: {error}"
        return None

    async def is_free(self) -> bool:
        return all([await self.second.inspect(self.name, kind) is None for kind in kinds_of(self.second)])


Prepared = Coroutine[Any, Any, object]


async def with_permits(world: AsyncPermitWorld) -> Prepared:
    async def swept() -> None:
        async with world.first.semaphore(world.name, LIMIT) as lease:
            lease.ensure_held()
            await asyncio.sleep(0)

    return swept()


async def with_permits_that_are_taken(world: AsyncPermitWorld) -> Prepared:
    await world.taken()

    async def swept() -> None:
        with contextlib.suppress(gripfast.LockTimeout):
            await world.first.semaphore(world.name, LIMIT).acquire(wait=0.02)

    return swept()


async def limited_coroutine(world: AsyncPermitWorld) -> Prepared:
    @world.first.limited(world.name, LIMIT)
    async def work() -> None:
        await asyncio.sleep(0)

    return work()


async def with_read(world: AsyncPermitWorld) -> Prepared:
    async def swept() -> None:
        async with world.first.rwlock(world.name).read() as lease:
            lease.ensure_held()
            await asyncio.sleep(0)

    return swept()


async def with_write_while_another_one_reads(world: AsyncPermitWorld) -> Prepared:
    lease = await world.second.rwlock(world.name).read().acquire()
    world.afterwards(lease.release)

    async def swept() -> None:
        with contextlib.suppress(gripfast.LockTimeout):
            await world.first.rwlock(world.name).write().acquire(wait=0.02)

    return swept()


async def write_and_downgrade(world: AsyncPermitWorld) -> Prepared:
    async def swept() -> None:
        async with world.first.rwlock(world.name).write() as lease:
            await lease.downgrade()

    return swept()


ASYNC_SCENARIOS = (
    with_permits,
    with_permits_that_are_taken,
    limited_coroutine,
    with_read,
    with_write_while_another_one_reads,
    write_and_downgrade,
)


class CancelTrial:
    def __init__(self, world: AsyncPermitWorld, scenario: Callable[[AsyncPermitWorld], Coroutine[Any, Any, Prepared]]):
        self._world = world
        self._scenario = scenario

    async def begin(self) -> Prepared:
        self._world.name = new_name()
        return await self._scenario(self._world)

    async def problem(self) -> str | None:
        return await self._world.problem()


@pytest.mark.parametrize("scenario", ASYNC_SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_cancel_at_any_await_comes_out_and_leaves_no_permit_taken(
    scenario: Callable[[AsyncPermitWorld], Coroutine[Any, Any, Prepared]], store: str, tmp_path: Path, report: Report
) -> None:
    async def main() -> Swept:
        world = AsyncPermitWorld(url_of(store, tmp_path))
        try:
            skip_unless_it_can(world.first, scenario)
            sweeps = [await sweep_cancels(CancelTrial(world, scenario), moment) for moment in Moment]
        finally:
            await world.aclose()
        return combined(sweeps)

    gc.disable()  # dropping the exception must be enough
    try:
        report(asyncio.run(main()))
    finally:
        gc.enable()
