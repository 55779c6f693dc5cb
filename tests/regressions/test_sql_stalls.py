"""A SQL server that stands still for longer than a request may take, and goes on: so do its clients, all of them."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import gripfast
from gripfast.core import rules
from gripfast.core.ports import Hold
from gripfast.runtime.blocking import drive
from gripfast.stores.sql.conversation import Conversation
from regressions.sql_stage import ENGINES
from support.sql_servers import PostgresServer
from support.waiting import auntil

TIMEOUT = 0.4
TASKS = 100
LOCKING = {"postgresql": "LOCK TABLE {} IN EXCLUSIVE MODE", "mysql": "LOCK TABLES {} WRITE"}


@pytest.fixture(scope="module", params=ENGINES)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ENGINES[request.param]() as server:
        yield server


@contextmanager
def stalled(server: Any, table: str = "gripfast_lock") -> Iterator[None]:
    """Nobody gets at that table."""
    connection = server._connect("gripfast")
    try:
        cursor = connection.cursor()
        cursor.execute("BEGIN" if server.scheme == "postgresql" else "SELECT 1")
        cursor.execute(LOCKING[server.scheme].format(table))
        yield
    finally:
        connection.close()


def held(server: Any) -> int:
    return int(server.execute("SELECT count(*) FROM gripfast_lock WHERE owner IS NOT NULL")[0][0])


async def served(client: Any, number: int, failures: list[int]) -> None:
    """Takes a lock of its own, as often as that needs, and releases it."""
    while True:
        try:
            lease = await client.lock(f"own-{number}", ttl=600).try_acquire()
            await lease.release()
        except gripfast.StoreUnavailable:
            failures.append(number)
        else:
            return


def test_after_a_stall_every_task_is_served_again_and_no_lock_is_left(server: Any) -> None:
    async def main() -> None:
        async with gripfast.connect_async(server.lock_space(request_timeout=TIMEOUT)) as client:
            await (await client.lock("warm-up").acquire()).release()
            failures: list[int] = []
            with stalled(server):
                crowd = [asyncio.create_task(served(client, number, failures)) for number in range(TASKS)]
                await auntil(lambda: len(failures) >= 2 * TASKS)
            await auntil(lambda: all(task.done() for task in crowd))
            await auntil(lambda: not held(server))
        assert not held(server)

    asyncio.run(main())


def test_what_timed_out_in_the_queue_is_never_sent(server: Any) -> None:
    """It was, on a connection of its own each, after its clean-up: the lock was held for a whole ttl."""

    async def main() -> None:
        async with gripfast.connect_async(server.lock_space(request_timeout=TIMEOUT)) as client:
            await (await client.lock("warm-up").acquire()).release()
            link = client._runtime.env.store._link
            with stalled(server):
                tries = [client.lock(f"late-{number}", ttl=600).try_acquire() for number in range(12)]
                answers = await asyncio.gather(*tries, return_exceptions=True)
                assert all(isinstance(answer, gripfast.StoreUnavailable) for answer in answers)
                assert not link._requests
            await auntil(lambda: not len(client._runtime.env.ledger))
            await (await client.lock("behind them").acquire()).release()
            assert not held(server)
        assert not held(server)

    asyncio.run(main())


def test_a_force_release_that_nobody_waits_for_any_more_is_not_sent(server: Any) -> None:
    async def main() -> None:
        async with gripfast.connect_async(server.lock_space(request_timeout=TIMEOUT)) as client:
            lease = await client.lock("kept", ttl=600).acquire()
            link = client._runtime.env.store._link
            with stalled(server):
                busy = [asyncio.create_task(client.lock(f"{number}").try_acquire()) for number in range(8)]
                await auntil(lambda: link._requests)
                forcing = asyncio.create_task(client.force_release("kept"))
                await asyncio.sleep(0)
                forcing.cancel()
                await asyncio.gather(*busy, forcing, return_exceptions=True)
            await auntil(lambda: not link._requests)
            assert lease.held
            await lease.extend()
            await lease.release()

    asyncio.run(main())


def test_what_sessions_have_locked_is_free_after_a_stall(server: Any) -> None:
    """Each has its row, and waits for its token on a shared connection, which says that nothing of it ever left."""

    async def main() -> None:
        async with gripfast.connect_async(server.lock_space(request_timeout=TIMEOUT, mode="row")) as client:
            names = [f"row-{number}" for number in range(12)]
            for name in names:
                await (await client.lock(name).acquire()).release()
            with stalled(server, "gripfast_grant"):
                tries = [client.lock(name, ttl=600).try_acquire() for name in names]
                answers = await asyncio.gather(*tries, return_exceptions=True)
                assert all(isinstance(answer, gripfast.StoreUnavailable) for answer in answers), answers
            for name in names:
                await (await client.lock(name, ttl=600).acquire(wait=10)).release()

    asyncio.run(main())


def test_a_session_that_does_not_end_holds_up_the_watchdog_for_as_long_as_a_clean_up_may_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It did for a whole time-out of a request, while leases were to be renewed."""
    monkeypatch.setattr(rules, "GIVE_BACK_WITHIN", TIMEOUT)
    patience = 20 * TIMEOUT
    with PostgresServer() as server, gripfast.connect(server.lock_space(request_timeout=patience)) as client:
        client.lock("warm-up").acquire().release()
        store: Any = client._runtime.env.store
        with psycopg.connect(server.url.partition("?")[0]) as connection:
            store._link.claims.note("late", Conversation(connection.info.backend_pid, "", is_proxied=False))
            os.kill(connection.info.backend_pid, signal.SIGSTOP)
            try:
                started = time.monotonic()
                (trouble,) = drive(store.abandon([Hold("late", "late", 600)]))
                assert time.monotonic() - started < patience / 2
            finally:
                os.kill(connection.info.backend_pid, signal.SIGCONT)
        assert "did not end in time" in str(trouble.error)
        assert drive(store.abandon([Hold("late", "late", 600)])) == [None]
