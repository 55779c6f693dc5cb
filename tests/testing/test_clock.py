"""A clock that can be moved: what follows it, in threads and tasks, and what it refuses."""

import asyncio
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import gripfast
from gripfast import machine
from gripfast.core.ports import Granted
from gripfast.machine import boottime
from gripfast.testing import World, clock
from gripfast.testing.moments import moments
from gripfast.testing.observing import Recorder
from gripfast.testing.store import ThreadInbox
from gripfast.testing.waiting import auntil, until


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def renewals(recorder: Recorder) -> int:
    return len(recorder.of("job", "renewed"))


def test_a_lease_is_renewed_while_time_passes(world: World) -> None:
    recorder = Recorder()
    with gripfast.connect(world.url, observers=[recorder]) as client, client.lock("job", ttl=30) as lease:
        world.clock.advance(95)
        assert lease.held
        assert renewals(recorder) == 9


def test_a_lease_that_is_not_renewed_expires(world: World) -> None:
    told: list[str] = []
    lease = gripfast.lock("job", ttl=30, renew=False, on_lost=lambda _, reason: told.append(reason)).acquire()
    world.clock.advance(25)
    assert (lease.held, told) == (True, [])
    world.clock.advance(6)
    assert (lease.held, told) == (False, ["expired"])
    gripfast.lock("job").acquire(wait=0).release()


def test_a_lease_ends_with_its_max_hold(world: World) -> None:
    told: list[str] = []
    lease = gripfast.lock("job", max_hold=100, on_lost=lambda _, reason: told.append(reason)).acquire()
    world.clock.advance(99)
    assert lease.held
    world.clock.advance(2)
    assert told == ["max_hold"]


def test_a_suspended_process_loses_its_leases(world: World) -> None:
    told: list[str] = []
    lease = gripfast.lock("job", ttl=30, on_lost=lambda _, reason: told.append(reason)).acquire()
    world.clock.suspend(25)
    assert lease.held
    world.clock.suspend(31)
    assert (lease.held, told) == (False, ["expired"])


def test_a_min_hold_and_what_is_done_are_over_when_their_time_is(world: World) -> None:
    client = world.client
    client.lock("job", min_hold=60).acquire().release()
    with client.once("digest", keep=7 * 86400):
        pass
    world.clock.advance(61)
    client.lock("job").acquire(wait=0).release()
    with client.once("digest", keep=1) as run:
        assert run.done
    world.clock.advance(7 * 86400)
    with client.once("digest", keep=1) as run:
        assert run


def test_a_waiter_gives_up_at_its_own_moment(world: World) -> None:
    waits_for_its_moment(world, lambda: None)


def waits_for_its_moment(world: World, before_the_move: Callable[[], None]) -> None:
    """And not for the next one: the lock is free before the end."""
    waited: list[float] = []

    def wait() -> None:
        with pytest.raises(gripfast.LockTimeout) as raised:
            world.client.lock("job").acquire(wait=10)
        waited.append(raised.value.waited)

    lease = world.client.lock("job", ttl=20, renew=False).acquire()
    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: world.client.inspect("job").waiters == 1)
    before_the_move()
    world.clock.advance(40)
    thread.join(10)
    assert not lease.held
    assert 10 <= waited[0] < 19, waited


def test_a_waiter_that_does_not_wait_yet_gives_up_at_its_own_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is queued, but got no turn until the clock is about to be moved."""
    hear, has_its_turn = ThreadInbox.hear, threading.Event()

    async def hear_late(inbox: ThreadInbox, until: float) -> Granted | None:
        has_its_turn.wait(10)
        return await hear(inbox, until)

    monkeypatch.setattr(ThreadInbox, "hear", hear_late)
    waits_for_its_moment(world, threading.Timer(0.1, has_its_turn.set).start)


def test_a_waiter_gets_what_has_expired(world: World) -> None:
    got: list[gripfast.Lease] = []
    lease = world.client.lock("job", ttl=20, renew=False).acquire()
    thread = threading.Thread(target=lambda: got.append(world.client.lock("job").acquire(wait=100)))
    thread.start()
    until(lambda: world.client.inspect("job").waiters == 1)
    world.clock.advance(25)
    thread.join(10)
    assert not lease.held
    got[0].release()


def test_code_that_waits_for_ever_is_told(world: World) -> None:
    with world.hold("job"), world.clock.fast_forward(), pytest.raises(AssertionError, match="'job' without an end"):
        gripfast.lock("job").acquire()


def test_nobody_waits_in_a_fast_forward(world: World) -> None:
    with world.hold("job"), world.clock.fast_forward(), pytest.raises(gripfast.LockTimeout) as raised:
        gripfast.lock("job").acquire(wait=600)
    assert 600 <= raised.value.waited < 601 + 30


def test_permits_follow_the_clock(world: World) -> None:
    semaphore = world.client.semaphore("jobs", 1)
    lease = semaphore.acquire()
    with world.clock.fast_forward(), pytest.raises(gripfast.LockTimeout):
        world.client.semaphore("jobs", 1).acquire(wait=600)
    assert lease.held
    lease.release()


def test_an_on_lost_that_hangs_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripfast.testing.clock.PATIENCE", 0.2)
    go_on = threading.Event()
    lease = gripfast.lock("job", on_lost=lambda *_: go_on.wait()).acquire()
    with pytest.raises(TimeoutError, match="gripfast-on-lost has still not done"):
        world.clock.suspend(31)
    go_on.set()
    del lease


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_a_clock_goes_forward_only(world: World, seconds: float) -> None:
    for move in (world.clock.advance, world.clock.suspend):
        with pytest.raises(gripfast.ConfigurationError, match="only goes forward"):
            move(seconds)


def test_what_other_processes_read_is_not_moved(world: World, tmp_path: Path) -> None:
    """A file of locks says until when they are held: another process would believe this one's clock."""
    url = f"sqlite:///{tmp_path}/locks.db"
    world.clock.advance(3600)
    with gripfast.connect(url) as client, client.lock("job", ttl=30) as lease:
        world.clock.advance(3600)
        assert lease.held
        code = f"import gripfast; print(gripfast.connect({url!r}).inspect('job').expires_in)"
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
        assert 0 < float(told) <= 30


def test_what_other_processes_hold_is_not_over(world: World, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    code = f"import gripfast; lease = gripfast.connect({url!r}).lock('job').acquire(); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        world.clock.suspend(3600)
        with gripfast.connect(url) as client:
            assert client.lock("job").try_acquire() is None
        other.communicate(b"\n")


# -- tasks -----------------------------------------------------------------------------------------------------------


def test_a_task_renews_while_time_passes(world: World) -> None:
    async def main() -> None:
        async with world.async_client.lock("job") as lease:
            await world.clock.advance_async(3600)
            assert lease.held

    run(main())


def test_the_body_of_a_task_is_cancelled_when_its_lease_is_lost(world: World) -> None:
    told: list[str] = []

    async def work() -> None:
        async with gripfast.async_lock("job", on_lost=lambda _, reason: told.append(reason)):
            await asyncio.Event().wait()

    async def main() -> None:
        working = asyncio.create_task(work())
        await world.clock.suspend_async(31)
        assert told == ["expired"]
        with pytest.raises(gripfast.LeaseLost):
            await working
        working = asyncio.create_task(work())
        await auntil(lambda: world.held() == ["job"])
        world.lose("job", "broken")
        with pytest.raises(gripfast.LeaseLost):
            await working
        await auntil(lambda: told == ["expired", "broken"])

    run(main())


@pytest.mark.parametrize("from_a_thread", [False, True])
def test_a_body_that_loses_its_lease_is_cancelled_at_its_next_await(world: World, from_a_thread: bool) -> None:
    """Also if that is a sleep of no time: one more turn of the loop would be one more write without the lock."""
    done: list[str] = []

    async def main() -> None:
        with pytest.raises(gripfast.LeaseLost, match="taken"):
            async with gripfast.async_lock("job"):
                if from_a_thread:
                    thread = threading.Thread(target=world.lose, args=("job", "taken"))
                    thread.start()
                    thread.join()
                else:
                    world.lose("job", "taken")
                done.append("before it")
                await asyncio.sleep(0)
                done.append("after it")
        await asyncio.sleep(0)  # is no business of the lock any more

    run(main())
    assert done == ["before it"]


def test_a_body_without_an_await_ends_as_usual_and_nothing_behind_it_is_cancelled(world: World) -> None:
    async def main() -> None:
        with pytest.raises(gripfast.LeaseLost):
            async with gripfast.async_lock("job"):
                world.lose("job")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    run(main())


def test_a_waiting_task_gives_up_at_its_own_moment(world: World) -> None:
    async def main() -> None:
        lease = await world.async_client.lock("job", ttl=20, renew=False).acquire()
        waiting = asyncio.create_task(_waited(world.async_client))
        await world.clock.advance_async(40)
        assert not lease.held
        assert 10 <= await waiting < 19

    run(main())


async def _waited(client: gripfast.AsyncClient) -> float:
    with pytest.raises(gripfast.LockTimeout) as raised:
        await client.lock("job").acquire(wait=10)
    return raised.value.waited


def test_a_task_does_not_wait_in_a_fast_forward(world: World) -> None:
    async def main() -> None:
        with world.clock.fast_forward():
            with world.hold("job"), pytest.raises(gripfast.LockTimeout):
                await gripfast.async_lock("job").acquire(wait=600)
            with world.outage(), pytest.raises(gripfast.StoreUnavailable):
                await gripfast.async_lock("job").acquire(wait=600)
            with world.outage(seconds=3):
                async with gripfast.async_lock("job"):
                    assert world.held() == ["job"]

    run(main())


def test_in_a_loop_the_other_method_is_named(world: World) -> None:
    async def main() -> None:
        async with world.async_client.lock("job"):
            with pytest.raises(gripfast.ConfigurationError, match=r"await clock\.advance_async"):
                world.clock.advance(1)

    run(main())


@pytest.mark.parametrize("cancels_its_tasks", [True, False])
def test_the_clock_is_moved_though_a_loop_ends_meanwhile(world: World, cancels_its_tasks: bool) -> None:
    """What the clock has asked of the loop comes behind its end: it is cancelled, or never begins."""
    loops: list[asyncio.AbstractEventLoop] = []
    is_entered = threading.Event()

    async def main() -> None:
        await world.async_client.inspect("job")
        loops.append(loop := asyncio.get_running_loop())
        is_entered.set()
        until(lambda: len(loop._ready) > 0)  # type: ignore[attr-defined]

    def to_its_end() -> None:
        if cancels_its_tasks:
            asyncio.run(main())
        else:
            asyncio.new_event_loop().run_until_complete(main())

    thread = threading.Thread(target=to_its_end)
    thread.start()
    assert is_entered.wait(10)
    world.clock.advance(1)
    thread.join()
    if not cancels_its_tasks:
        loops[0].run_until_complete(asyncio.sleep(0))
        loops[0].close()
    assert clock._settle_from_outside(loops[0]) == []


def test_a_task_that_leaves_a_lock_held_is_found() -> None:
    async def main(world: World) -> gripfast.AsyncLease:
        return await world.async_client.lock("job").acquire()

    with pytest.raises(AssertionError, match="'job' is still held"), World() as world:
        lease = asyncio.run(main(world))
    assert not lease.held


def test_fast_forward_does_not_move_the_clock_after_its_end(world: World) -> None:
    """Its thread has just seen that somebody waits when the block ends: what comes next would be late by that much."""
    answers = iter([False, True, True])
    with moments.waits(threading.Event(), boottime() + 1000, lambda: None):
        before = machine._ahead[0]
        world.clock._skip(lambda: next(answers))
    assert machine._ahead[0] == before


def test_which_boot_it_is_does_not_depend_on_the_clock(world: World) -> None:
    """Where the system has no id for it. Processes that share a file would take each other's locks for dead ones."""
    before = _moment_of_boot()
    world.clock.advance(3600)
    assert abs(_moment_of_boot() - before) <= 1


def _moment_of_boot() -> int:
    return int(machine._boot_session().removeprefix("booted "))
