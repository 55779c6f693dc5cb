"""Semaphores and read/write locks on SQL servers: transactions that do not end, locked rows, tables, rights."""

import asyncio
import contextlib
import os
import random
import signal
import time
from typing import Any

import pytest

import gripfast
from chaos.sql_stage import behind
from cli.commandline import is_stopped
from gripfast import LeaseLost, LockTimeout, StoreUnavailable
from gripfast.core.ports import Hold, Share
from gripfast.runtime.blocking import drive
from gripfast.stores.sql.permit_steps import Step
from gripfast.testing.waiters import waiters_among
from stores.sql_permits import await_queue, rows, waiting_for
from stores.sql_troubles import as_user, database_of, is_postgres, user
from support.both_colours import both_colours, staged
from support.pgbouncer import pgbouncer
from support.processes import Worker
from support.proxy import Proxy
from support.sql_process import HOST, SqlServer
from support.sql_servers import PostgresServer, mariadb_server, postgres_server
from support.waiting import auntil, until

pytestmark = pytest.mark.in_turn(2)

TABLES = ("gripfast_permit", "gripfast_permit_holder", "gripfast_permit_waiter")


# The other one first than in test_sql_permits.py: so each has its turn in `make test`.
@pytest.fixture(params=[mariadb_server, postgres_server], ids=["MariaDB", "PostgreSQL"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    shared: SqlServer = request.param()
    return shared


@pytest.fixture
def url(server: SqlServer) -> str:
    return server.lock_space()


# A transaction that does not end ------------------------------------------------------------------------------------


def test_an_interrupt_between_the_two_requests_leaves_nothing_held_or_locked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = Step.decide

    def interrupted(self: Step, answer: Any) -> Any:
        monkeypatch.setattr(Step, "decide", decide)
        raise KeyboardInterrupt

    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        client.semaphore("api", limit=1).acquire().release()
        monkeypatch.setattr(Step, "decide", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            client.semaphore("api", limit=1).acquire()
        started = time.monotonic()
        assert other.semaphore("api", limit=1).acquire(wait=10.0).held
        assert time.monotonic() - started < 3.0
        assert kept.tb is not None  # and with it the connection


@staged
async def test_a_cancelled_claim_leaves_nothing_held_or_locked(server: SqlServer) -> None:
    url = server.lock_space()
    async with gripfast.connect_async(url) as client, gripfast.connect_async(url) as other:
        for delay in range(12):
            task = asyncio.ensure_future(_acquired(client.semaphore("api", limit=1)))
            for _ in range(delay):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).release()
            lease = await other.semaphore("api", limit=1).acquire(wait=10.0)
            await lease.release()


async def _acquired(semaphore: Any) -> Any:
    return await semaphore.acquire()


def test_a_process_that_is_stopped_in_the_middle_does_not_keep_the_name_locked(url: str) -> None:
    """Its connection stays, and its system answers for it. The server ends the transaction after the time that one
    request may take; until then the others wait."""
    with gripfast.connect(url) as other, Worker("stop_in_step.py", url + "&request_timeout=1", 1) as stopping:
        stopping.expect("claims")
        until(lambda: is_stopped(stopping.pid), within=30.0)
        lease = other.semaphore("api", limit=1).acquire(wait=30.0)
        assert is_stopped(stopping.pid)
        os.kill(stopping.pid, signal.SIGCONT)
        assert stopping.line() in ("StoreUnavailable", "LockTimeout")
        assert lease.held
        lease.release()


@pytest.mark.parametrize("nth", [1, 2])
def test_what_an_unanswered_claim_got_is_released(server: SqlServer, url: str, nth: int) -> None:
    with Proxy((HOST, server.port)) as proxy, gripfast.connect(url) as other:
        with gripfast.connect(behind(proxy, url) + "&request_timeout=1") as client:
            client.semaphore("api", limit=1).acquire().release()
            proxy.drop_reply(nth)
            with contextlib.suppress(StoreUnavailable, LockTimeout):
                client.semaphore("api", limit=1).acquire(wait=0.5).release()
            proxy.spare()
            assert other.semaphore("api", limit=1).acquire(wait=10.0).held


# Locked rows, limits, notes -----------------------------------------------------------------------------------------


def test_a_locked_row_of_one_holder_does_not_keep_the_others_from_being_renewed(server: SqlServer) -> None:
    with server.fresh_database() as url, gripfast.connect(url) as client:
        stuck, fine = (client.semaphore(name, limit=1, ttl=1.5).acquire() for name in ("stuck", "fine"))
        connection: Any = server._connect(database_of(url))  # type: ignore[attr-defined]
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT 1 FROM gripfast_permit_holder WHERE name = 'stuck' FOR UPDATE")
            until(lambda: not stuck.held)
            assert fine.held
            cursor.execute("ROLLBACK")
        fine.release()


def test_a_locked_name_does_not_keep_the_others_from_being_cleaned_up(server: SqlServer) -> None:
    with server.fresh_database() as url, gripfast.connect(url) as client:
        leases = {name: client.semaphore(name, limit=1).acquire() for name in ("stuck", "one", "two")}
        holds = [Hold(name, lease.owner, 30.0, share=Share("semaphore", 1, 1)) for name, lease in leases.items()]
        connection: Any = server._connect(database_of(url))  # type: ignore[attr-defined]
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT 1 FROM gripfast_permit WHERE kind = 'semaphore' AND name = 'stuck' FOR UPDATE")
            store = client._runtime.env.store
            found = drive(store.abandon(holds))
            assert [each is None for each in found] == [False, True, True], found
            cursor.execute("ROLLBACK")
        assert [each is None for each in drive(store.abandon(holds))] == [True, True, True]
        assert rows(server, url, "stuck", "gripfast_permit_holder") == 0


@staged
async def test_who_is_released_by_force_is_told_why(server: SqlServer) -> None:
    async with both_colours(server.lock_space()) as actors:
        for actor in actors:
            client = actor.client
            held = await _result(client.semaphore("api", limit=2, ttl=0.6).acquire())
            assert await _result(client.force_release("api", kind="semaphore", slot=1)) is False
            assert await _result(client.force_release("api", kind="semaphore", slot=0, reason="deploy"))
            assert await _result(client.inspect("api", kind="semaphore")) is None
            await auntil(lambda held=held: not held.held)
            with pytest.raises(LeaseLost, match="deploy") as lost:
                await _result(held.ensure_held())
            assert lost.value.reason == "broken"


async def _result(found: Any) -> Any:
    return await found if hasattr(found, "__await__") else found


def test_a_larger_limit_serves_waiters_and_a_smaller_one_refuses_those_that_can_not_fit(
    server: SqlServer, url: str
) -> None:
    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        first = client.semaphore("api", limit=1).acquire()
        with waiting_for(lambda: other.semaphore("api", limit=1).acquire(wait=30.0)) as waiting:
            await_queue(server, url, "api", 1)
            client.semaphore("api", limit=1).resize(3)
        assert waiting[0].slots == (1,)
        refused: list[Any] = []
        with waiting_for(lambda: refused.append(_refusal(other)) or True):
            await_queue(server, url, "api", 1)
            client.semaphore("api", limit=3).resize(2)
        assert isinstance(refused[0], gripfast.ConfigurationError), refused
        first.release()
        waiting[0].release()


def _refusal(client: gripfast.Client) -> Any:
    try:
        return client.semaphore("api", limit=3).acquire(n=3, wait=30.0)
    except gripfast.GripfastError as error:
        return error


def test_all_names_are_listed_in_pages(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripfast.stores.sql.permits.PAGE", 3)
    with gripfast.connect(url) as client:
        names = [f"name {number}" for number in range(8)]
        leases = [client.semaphore(name, limit=2).acquire() for name in names for _ in range(2)]
        client.semaphore("name 4 unused", limit=1).acquire().release()
        client.rwlock("name 3").read().acquire()
        listed = list(client.list(kind="semaphore"))
        assert [info.name for info in listed] == names
        assert all(len(info.holders) == 2 for info in listed)
        assert [info.name for info in client.list("name 7", kind="semaphore")] == ["name 7"]
        for lease in leases:
            lease.release()


# Tables, rights, forgetting -----------------------------------------------------------------------------------------


def test_tables_of_an_older_version_are_completed(server: SqlServer) -> None:
    with server.fresh_database() as url:
        with gripfast.connect(url) as client, client.lock("job"):
            pass
        for table in TABLES:
            server.execute(f"DROP TABLE {table}", database=database_of(url))
        with gripfast.connect(url) as client, client.semaphore("api", limit=1) as lease:
            assert lease.held


def test_these_rights_are_enough_and_locks_need_none_of_them(server: SqlServer) -> None:
    with server.fresh_database() as url, user(server) as name:
        with gripfast.connect(url) as client, client.semaphore("api", limit=1):
            pass
        _grant(server, url, name, "gripfast_lock")
        with gripfast.connect(as_user(url, name)) as client:
            with client.lock("job"):
                pass
            with pytest.raises(StoreUnavailable, match="does not let this user do that"):
                client.semaphore("api", limit=1).try_acquire()
            for table in TABLES:
                _grant(server, url, name, table)
            with client.semaphore("api", limit=1), gripfast.connect(as_user(url, name)) as other:
                with pytest.raises(LockTimeout):
                    other.semaphore("api", limit=1).acquire(wait=0.2)
            assert client.force_release("api", kind="semaphore") is False


def _grant(server: SqlServer, url: str, name: str, table: str) -> None:
    place = table if is_postgres(server) else f"{database_of(url)}.{table}"
    whom = name if is_postgres(server) else f"{name}@'%'"
    server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {place} TO {whom}", database=database_of(url))


def test_names_that_nobody_has_used_for_a_day_are_forgotten(server: SqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripfast.stores.sql.permits.SWEEP_PACE", 0.0)
    with server.fresh_database() as url, gripfast.connect(url) as client:
        for name in ("idle", "used"):
            client.semaphore(name, limit=1).acquire().release()
        kept = client.semaphore("held", limit=1).acquire()
        age = "since_us = 1, token = 1, checked_us = 1"
        server.execute(f"UPDATE gripfast_permit SET {age} WHERE name <> 'used'", database=database_of(url))
        server.execute("UPDATE gripfast_permit SET checked_us = 1", database=database_of(url))
        client.semaphore("another", limit=1).acquire().release()
        found = server.execute("SELECT name FROM gripfast_permit ORDER BY name", database=database_of(url))
        assert [_text(name) for (name,) in found] == ["another", "held", "used"]
        checked = server.execute("SELECT min(checked_us) FROM gripfast_permit", database=database_of(url))
        assert int(checked[0][0]) > 1
        kept.release()


def _text(column: Any) -> str:
    return column.decode() if isinstance(column, bytes) else str(column)


def test_a_proxy_before_a_server_with_another_isolation_level_is_no_obstacle() -> None:
    with PostgresServer("default_transaction_isolation=serializable") as server, pgbouncer(server) as url:
        with gripfast.connect(url) as client:
            leases = [client.semaphore("api", limit=2).acquire() for _ in range(2)]
            assert [lease.slots for lease in leases] == [(0,), (1,)]


def test_through_a_proxy_that_hands_sessions_around_waiters_look_themselves() -> None:
    server: PostgresServer = postgres_server()
    with pgbouncer(server) as url, gripfast.connect(url, prefix=f"{random.random()}:") as client:
        first = client.semaphore("api", limit=1).acquire()
        with waiting_for(lambda: client.semaphore("api", limit=1).acquire(wait=30.0)) as waiting:
            until(lambda: waiters_among([client], "api") == 1)
            first.release()
        waiting[0].release()
        with client.rwlock("index").write() as lease:
            lease.downgrade()
