"""KeyboardInterrupt at every opcode of the blocking API: it comes out, and the lock is free within a second."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gripfast
from support.sweeping import Action, Report, sweep_interrupts
from sweeps.worlds import LEVELS, SQL, STORES, TARGET, World, url_of

pytestmark = pytest.mark.filterwarnings("ignore")  # a broken run may well drop a lease, or a coroutine it did not start
COLOUR = "blocking"

BUDGET = {
    "memory": 80, "sqlite": 40, "redis": 40, "sentinel": 20, "redlock": 14, "cluster": 26, "zookeeper": 10, "etcd": 10
} | dict.fromkeys((*SQL, *LEVELS, "etcd-trio"), 12)  # fmt: skip

Scenario = Callable[[World], Action]


def acquire_and_release(world: World) -> Action:
    lock = world.lock()
    return lambda: lock.acquire().release()


def acquire_with_patience_and_release(world: World) -> Action:
    lock = world.lock()
    return lambda: lock.acquire(wait=5.0).release()


def acquire_and_drop(world: World) -> Action:
    """The finaliser of the lease runs within the sweep."""
    lock = world.lock()
    return lambda: lock.acquire() and None


def with_lock(world: World) -> Action:
    lock = world.lock()

    def action() -> None:
        with lock as lease:
            lease.ensure_held()

    return action


def with_lock_that_is_set_to_wait(world: World) -> Action:
    lock = world.lock(wait=5.0)

    def action() -> None:
        with lock as lease:
            lease.ensure_held()

    return action


def with_acquire(world: World) -> Action:
    lock = world.lock()

    def action() -> None:
        with lock.acquire() as lease:
            lease.ensure_held()

    return action


def with_lock_whose_body_raises(world: World) -> Action:
    lock = world.lock()

    def action() -> None:
        with contextlib.suppress(ZeroDivisionError), lock:
            raise ZeroDivisionError

    return action


def try_acquire(world: World) -> Action:
    lock = world.lock()

    def action() -> None:
        lease = lock.try_acquire()
        assert lease is not None
        lease.release()

    return action


def try_acquire_of_a_taken_lock(world: World) -> Action:
    world.taken()
    lock = world.lock()

    def action() -> None:
        assert lock.try_acquire() is None

    return action


def release(world: World) -> Action:
    lease = world.lock().acquire()
    return lease.release


def extend(world: World) -> Action:
    lease = world.lock().acquire()
    return lambda: lease.extend(60.0)


def acquire_that_times_out(world: World) -> Action:
    world.taken()
    lock = world.lock()

    def action() -> None:
        with contextlib.suppress(gripfast.LockTimeout):
            lock.acquire(wait=0.005)

    return action


def acquire_that_waits_and_is_granted(world: World) -> Action:
    world.taken_until_awaited()
    lock = world.lock()
    return lambda: lock.acquire(wait=10.0).release()


def with_lock_that_waits_and_is_granted(world: World) -> Action:
    world.taken_until_awaited()
    lock = world.lock()

    def action() -> None:
        with lock as lease:
            lease.ensure_held()

    return action


def with_lock_twice_by_reentry(world: World) -> Action:
    lock = world.lock(reentrant=True)

    def action() -> None:
        with lock as outer, lock as inner:
            assert outer.token == inner.token

    return action


def acquire_twice_by_reentry(world: World) -> Action:
    lock = world.lock(reentrant=True)

    def action() -> None:
        outer = lock.acquire()
        lock.acquire().release()
        outer.release()

    return action


def decorated_function(world: World) -> Action:
    return world.first.locked(world.name)(lambda: None)


def first_use_of_a_client(world: World) -> Action:
    """Opening the store, starting the watchdog and closing the client are swept, too."""
    url, name = world.url, world.name

    def action() -> None:
        with gripfast.connect(url) as client, client.lock(name) as lease:
            lease.ensure_held()

    return action


def first_use_of_a_client_that_nobody_closes(world: World) -> Action:
    url, name = world.url, world.name

    def action() -> None:
        with gripfast.connect(url).lock(name) as lease:
            lease.ensure_held()

    return action


def close_with_a_lease_still_held(world: World) -> Action:
    client = gripfast.connect(world.url)
    lease = client.lock(world.name).acquire()

    def action() -> None:
        client.close()
        assert not lease.held

    world.afterwards(client.close)
    return action


def with_locks(world: World) -> Action:
    locks = world.first.locks(f"a-{world.name}", world.name)

    def action() -> None:
        with locks as leases:
            leases.ensure_held()

    return action


def with_locks_of_which_the_second_is_waited_for(world: World) -> Action:
    world.taken_until_awaited()
    return with_locks(world)


def locks_of_which_the_second_is_taken(world: World) -> Action:
    world.taken()
    locks = world.first.locks(f"a-{world.name}", world.name)

    def action() -> None:
        with contextlib.suppress(gripfast.LockTimeout):
            locks.acquire(wait=0.005)

    return action


def release_of_several(world: World) -> Action:
    return world.first.locks(f"a-{world.name}", world.name).acquire().release


def with_lead(world: World) -> Action:
    election = world.first.election(world.name, "value")

    def action() -> None:
        with election.lead() as term:
            term.ensure_held()

    return action


def run_of_an_election(world: World) -> Action:
    election = world.first.election(world.name)
    return lambda: election.run(lambda term: term.ensure_held())


def run_of_an_election_that_campaigns(world: World) -> Action:
    world.taken_until_awaited()
    return run_of_an_election(world)


def run_whose_function_raises(world: World) -> Action:
    election = world.first.election(world.name)

    def action() -> None:
        with contextlib.suppress(ZeroDivisionError):
            election.run(lambda term: 1 / 0)

    return action


def run_whose_first_term_is_lost(world: World) -> Action:
    """It leads again, and what it had lost is not left."""
    election, terms = world.first.election(world.name), []

    def lose_the_first(term: gripfast.Lease) -> None:
        terms.append(term.token)
        if len(terms) == 1:
            term._state.finish("broken")
            term.ensure_held()

    return lambda: election.run(lose_the_first)


def watch(world: World) -> Action:
    leaders = world.first.election(world.name).watch()

    def action() -> None:
        assert next(leaders) is None

    return action


SCENARIOS: tuple[Scenario, ...] = (
    acquire_and_release,
    acquire_with_patience_and_release,
    acquire_and_drop,
    with_lock,
    with_lock_that_is_set_to_wait,
    with_acquire,
    with_lock_whose_body_raises,
    try_acquire,
    try_acquire_of_a_taken_lock,
    release,
    extend,
    acquire_that_times_out,
    acquire_that_waits_and_is_granted,
    with_lock_that_waits_and_is_granted,
    with_lock_twice_by_reentry,
    acquire_twice_by_reentry,
    decorated_function,
    first_use_of_a_client,
    first_use_of_a_client_that_nobody_closes,
    close_with_a_lease_still_held,
    with_locks,
    with_locks_of_which_the_second_is_waited_for,
    locks_of_which_the_second_is_taken,
    release_of_several,
    with_lead,
    run_of_an_election,
    run_of_an_election_that_campaigns,
    run_whose_function_raises,
    run_whose_first_term_is_lost,
    watch,
)


class BlockingTrial:
    def __init__(self, world: World, scenario: Scenario) -> None:
        self._world = world
        self._scenario = scenario

    def begin(self) -> Action:
        return self._scenario(self._world.new_run())

    def problem(self) -> str | None:
        return self._world.problem()


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
    scenario: Scenario, store: str, world: World, report: Report
) -> None:
    report(sweep_interrupts(BlockingTrial(world, scenario), TARGET, BUDGET[store]))
