"""Waits, renewals and clean-ups that once came late or never."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

import gripfast
from gripfast.core.ports import Unreachable
from gripfast.interrupts.guard import Guard
from gripfast.machine import boottime
from gripfast.stores.sqlite import mailbox
from gripfast.testing.waiters import waiters_among, watch_for_waiters
from support.colours import renewal_of
from support.processes import Worker
from support.waiting import auntil, until

SOON = 2.0
"""Seconds; whoever is left to ask at the slow pace takes three."""


def waiters(client: gripfast.Client, name: str = "job") -> int:
    if not client.capabilities.waiters_seen:
        return waiters_among([client], name)
    info = client.inspect(name)
    return info.waiters if info else 0


@contextmanager
def another_program_writes(url: str) -> Iterator[None]:
    """Nobody else can write to the database meanwhile."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")


# -- renewal -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_leases_are_renewed_where_tasks_start_eagerly(url: str) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore]
        async with gripfast.connect_async(url) as client:
            async with client.lock("short", ttl=0.1):
                pass  # its renewal will find nothing to do
            async with client.lock("job", ttl=0.6) as lease:
                await auntil(renewal_of(lease))
                await auntil(renewal_of(lease))

    asyncio.run(main())


def test_renewal_goes_on_when_all_tasks_were_cancelled_in_the_middle_of_it(sqlite_url: str) -> None:
    def others() -> set[asyncio.Task[Any]]:
        return asyncio.all_tasks() - {asyncio.current_task()}

    async def main() -> None:
        async with gripfast.connect_async(sqlite_url) as client:
            lease = await client.lock("job", ttl=1.0).acquire()
            with another_program_writes(sqlite_url):
                await auntil(others)
                await asyncio.sleep(0)  # the round has begun, and waits for the file
                for task in others():
                    task.cancel()
                await asyncio.sleep(0)
            await auntil(renewal_of(lease))
            await lease.release()

    asyncio.run(main())


def test_renewal_goes_on_when_a_round_was_cancelled_before_it_began(url: str) -> None:
    born: list[asyncio.Task[Any]] = []

    def cancelled_if_first(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        if not born:
            task.cancel()
        born.append(task)
        return task

    async def main() -> None:
        async with gripfast.connect_async(url) as client:
            lease = await client.lock("job", ttl=2).acquire()
            asyncio.get_running_loop().set_task_factory(cancelled_if_first)
            await auntil(renewal_of(lease))
            assert born[0].cancelled()
            await lease.release()

    asyncio.run(main())


# -- a blocking client's coroutine functions ---------------------------------------------------------------------------


def test_a_cancelled_call_of_a_coroutine_function_leaves_the_line_at_once(url: str) -> None:
    with gripfast.connect(url) as client:
        watch_for_waiters(client)
        held = client.lock("job").acquire()

        @client.locked("job")
        async def body() -> None: ...

        async def main() -> None:
            call = asyncio.create_task(body())
            try:
                await auntil(lambda: waiters(client) == 1)
                call.cancel()
                await asyncio.wait([call])
                await auntil(lambda: waiters(client) == 0, within=SOON)
                assert call.cancelled()
            finally:
                held.release()

        asyncio.run(main())


def test_the_error_of_a_coroutine_function_comes_out_though_the_lease_was_lost(url: str) -> None:
    with gripfast.connect(url) as client:

        @client.locked("job", ttl=0.05, renew=False)
        async def body() -> None:
            until(lambda: client.inspect("job") is None)
            raise KeyError("of the body")

        with pytest.raises(KeyError, match="of the body"):
            asyncio.run(body())


# -- endings -----------------------------------------------------------------------------------------------------------


def test_a_request_to_the_worker_of_a_closed_client_is_refused(sqlite_url: str) -> None:
    async def main() -> None:
        client = gripfast.connect_async(sqlite_url)
        store = client._store()
        await client.inspect("job")
        await client.aclose()
        async with asyncio.timeout(SOON):
            assert isinstance(await store.inspect("job"), Unreachable)

    asyncio.run(main())


async def closed(client: gripfast.AsyncClient, lease: gripfast.AsyncLease) -> None:
    await client.aclose()


async def released_but_cancelled(client: gripfast.AsyncClient, lease: gripfast.AsyncLease) -> None:
    release = asyncio.create_task(lease.release())
    await asyncio.sleep(0)
    release.cancel()
    await asyncio.wait([release])
    assert release.cancelled()


async def released_soon(client: gripfast.AsyncClient, lease: gripfast.AsyncLease) -> None:
    lease._release_soon()


@pytest.mark.parametrize("ends", [closed, released_but_cancelled, released_soon])
def test_whoever_waits_for_a_loss_hears_of_every_ending(
    url: str, ends: Callable[[gripfast.AsyncClient, gripfast.AsyncLease], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with gripfast.connect_async(url) as client:
            lease = await client.lock("job").acquire()
            waiting = asyncio.create_task(lease.lost.wait())
            await asyncio.sleep(0)
            await ends(client, lease)
            async with asyncio.timeout(SOON):
                assert await waiting is False

    asyncio.run(main())


# -- waking ------------------------------------------------------------------------------------------------------------


def test_the_death_of_one_who_was_handed_the_lock_is_noticed_by_the_next_in_line(sqlite_url: str) -> None:
    with (
        gripfast.connect(sqlite_url) as first,
        gripfast.connect(sqlite_url) as third,
        ThreadPoolExecutor() as pool,
    ):
        lease = first.lock("job").acquire()
        with Worker("hold.py", sqlite_url, "job", 30) as second:
            until(lambda: waiters(first) == 1)
            waiting = pool.submit(third.lock("job").acquire, wait=10)
            until(lambda: waiters(first) == 2)
            lease.release()
            second.expect("held")
            second.kill()
            waiting.result(SOON).release()


def mailboxes() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "mailbox" in thread.name}


def test_a_burst_of_hand_overs_too_large_for_the_queue_reaches_every_waiter(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "SEND_TRIES", 1000, raising=False)  # this machine may be slower than the reader
    names = [f"job {number}" for number in range(40)]

    async def main(client: gripfast.Client) -> None:
        leases = [client.lock(name).acquire() for name in names]
        async with gripfast.connect_async(sqlite_url) as other:

            async def visit(name: str) -> None:
                async with other.lock(name):
                    pass

            visits = [asyncio.create_task(visit(name)) for name in names]
            await auntil(lambda: sum(info.waiters for info in client.list()) == len(names))
            read_slowly(other)
            for lease in leases:
                lease.release()
            async with asyncio.timeout(SOON):
                await asyncio.gather(*visits)

    with gripfast.connect(sqlite_url) as client:
        asyncio.run(main(client))


def read_slowly(client: gripfast.AsyncClient) -> None:
    """From now on each delivery takes the client's thread a few milliseconds."""
    inboxes: Any = client._store()._engine.inboxes  # type: ignore[attr-defined]
    delivers, never = inboxes.deliver, threading.Event()

    def delivers_slowly(*args: Any) -> Any:
        never.wait(0.003)
        return delivers(*args)

    inboxes.deliver = delivers_slowly


def test_waiters_are_woken_though_the_wake_folder_was_cleaned_away(sqlite_url: str) -> None:
    before = mailboxes()
    with (
        gripfast.connect(sqlite_url) as client,
        gripfast.connect(sqlite_url) as other,
        ThreadPoolExecutor() as pool,
    ):
        lease = other.lock("job").acquire()
        with pytest.raises(gripfast.LockTimeout):
            client.lock("job").acquire(wait=0.01)
        shutil.rmtree(sqlite_url.removeprefix("sqlite:///") + "-wake")
        waiting = pool.submit(client.lock("job").acquire, wait=10)
        until(lambda: waiters(other) == 1)
        lease.release()
        waiting.result(SOON).release()
        shutil.rmtree(sqlite_url.removeprefix("sqlite:///") + "-wake")
    until(lambda: mailboxes() <= before)


# -- short of everything -----------------------------------------------------------------------------------------------


@contextmanager
def out_of_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def test_without_a_free_descriptor_a_release_succeeds_and_renewal_goes_on(sqlite_url: str) -> None:
    with (
        gripfast.connect(sqlite_url) as client,
        gripfast.connect(sqlite_url) as other,
        ThreadPoolExecutor() as pool,
        client.lock("kept", ttl=0.6) as kept,
    ):
        lease = client.lock("job").acquire()
        waiting = pool.submit(other.lock("job", ttl=0.9).acquire, wait=10)
        until(lambda: waiters(client) == 1)
        with out_of_descriptors():
            lease.release()
            until(renewal_of(kept))
            until(renewal_of(kept))
        waiting.result(5).release()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_was_inside_a_guard_is_not_kept_out() -> None:
    guard, inside, go_on = Guard(), threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        go_on.wait(10)

    thread = threading.Thread(target=guard.run, args=(stay,))
    thread.start()
    assert inside.wait(5)
    if (child := os.fork()) == 0:
        guard.run(lambda: None)
        os._exit(0)
    try:
        until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG), within=SOON)
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        go_on.set()
        thread.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_requests_to_a_locked_database_lose_their_patience_together(sqlite_url: str) -> None:
    async def main() -> None:
        async with gripfast.connect_async(sqlite_url, request_timeout=0.3) as client:
            await client.inspect("job")
            with another_program_writes(sqlite_url):
                began = boottime()
                requests = [client.lock(f"job {number}").try_acquire() for number in range(6)]
                answers = await asyncio.gather(*requests, return_exceptions=True)
                took = boottime() - began
        assert {type(answer) for answer in answers} == {gripfast.StoreUnavailable}
        assert took < 3 * 0.3

    asyncio.run(main())


# -- a lease that has run out when its client is closed ----------------------------------------------------------------


def _run_out_unseen(lease: Any) -> None:
    """As if the whole process had been stopped until now."""
    lease._state.deadline = 0.0
    lease._runtime._losses.announce(lease._state)


def test_a_loss_that_was_not_told_yet_is_told_when_the_client_is_closed() -> None:
    """Who wakes up too late and closes its client at once was never told, and its lease counted as released."""
    told: list[str] = []
    client = gripfast.connect("memory://")
    lease = client.lock("job", renew=False, on_lost=lambda _, reason: told.append(reason)).acquire()
    _run_out_unseen(lease)
    client.close()
    until(lambda: told == ["expired"])


def test_a_loss_that_was_not_told_yet_is_told_when_the_async_client_is_closed() -> None:
    told: list[str] = []

    async def main() -> None:
        client = gripfast.connect_async("memory://")
        lease = await client.lock("job", renew=False, on_lost=lambda _, reason: told.append(reason)).acquire()
        _run_out_unseen(lease)
        await client.aclose()
        await auntil(lambda: told == ["expired"])

    asyncio.run(main())
