"""Whatever happens to a SQL server or to connections: who asks gets an answer that is true, or an error that says what
is wrong and what to do about it. Both colours are on stage at once."""

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

import gripfast
from chaos.sql_stage import behind
from gripfast import LeaseLost, LockTimeout, StoreUnavailable
from stores.sql_troubles import MODES, SESSIONS, as_user, is_postgres, row_locked, user
from support.both_colours import another, both_colours, each, outcome, staged
from support.proxy import Proxy
from support.sql_process import HOST, PASSWORD, SqlServer
from support.sql_servers import MariaServer, PostgresServer, mariadb_server, postgres_server
from support.waiting import auntil

pytestmark = pytest.mark.in_turn(2)

TOLD_WITHIN = 1.0
IN_TIME = 5.0
"""Seconds that no refusal may take."""


@pytest.fixture(params=[postgres_server, mariadb_server], ids=["PostgreSQL", "MariaDB"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    shared: SqlServer = request.param()
    return shared


@pytest.fixture(scope="module", params=[PostgresServer, MariaServer], ids=["PostgreSQL", "MariaDB"])
def own_server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    """One that may be killed and configured."""
    with request.param() as server:
        yield server


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No password in the log, and no thread or task stumbles."""
    caplog.set_level(logging.DEBUG)
    yield
    records = caplog.get_records("call")
    assert [record.getMessage() for record in records if PASSWORD in record.getMessage()] == []
    assert [record.getMessage() for record in records if record.levelno >= logging.ERROR] == []


def assert_refused(told: Any, *words: str) -> None:
    error = told.error
    assert isinstance(error, StoreUnavailable), told
    assert told.seconds < IN_TIME, told
    text = "".join(traceback.format_exception(error))
    assert PASSWORD not in text + repr(error)
    for word in words:
        assert word in str(error), str(error)


# Restarts and killed sessions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_a_restart_goes_unnoticed_by_whoever_asks_afterwards(own_server: SqlServer, mode: str) -> None:
    """Every connection that was kept is dead then."""
    async with both_colours(own_server.lock_space(mode=mode)) as actors:
        for lease in await each(actors, lambda actor: actor.acquire(actor.colour)):
            assert lease.held
            await actors[lease.name == "asyncio"].release(lease)
        own_server.restart()
        for actor in actors:
            lease = await actor.try_acquire(actor.colour)
            assert lease is not None
            await actor.release(lease)


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_sessions_that_are_killed_while_nothing_is_asked_go_unnoticed(own_server: SqlServer, mode: str) -> None:
    async with both_colours(own_server.lock_space(mode=mode)) as actors:
        for actor in actors:
            for _ in range(3):
                await actor.release(await actor.acquire(actor.colour))
                await kill_all(own_server)
                assert (await actor.inspect(actor.colour)) is None
                await kill_all(own_server)


async def kill_all(server: SqlServer) -> None:
    doomed = {session.id for session in server.sessions()}
    for session in doomed:
        server.kill_session(session)
    await auntil(lambda: not doomed & {session.id for session in server.sessions()})


@staged
async def test_a_session_that_is_killed_in_the_middle_of_a_claim_is_replaced(own_server: SqlServer) -> None:
    """Whether it was done is not known; asking again as the same owner is right."""
    async with both_colours(own_server.lock_space()) as actors:
        for actor in actors:
            await actor.release(await actor.acquire(actor.colour))
            with row_locked(own_server, actor.colour):
                asking = actor.acquire(actor.colour)
                await auntil(lambda: is_blocked(own_server))
                await kill_all(own_server)
            lease = await asking
            assert lease.held
            await actor.release(lease)


def is_blocked(server: SqlServer) -> bool:
    """Somebody waits for a row."""
    if is_postgres(server):
        return bool(server.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
    # innodb_trx would tell, too, but not if it is asked more often than ten times a second.
    ((_, waits),) = server.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
    return int(waits) > 0


@pytest.mark.parametrize("mode", SESSIONS)
@staged
async def test_a_holder_is_told_within_a_second_that_its_session_was_killed(own_server: SqlServer, mode: str) -> None:
    async with both_colours(own_server.lock_space(mode=mode)) as actors:
        leases = await each(actors, lambda actor: actor.acquire(actor.colour, ttl=60))
        killed = time.monotonic()
        await kill_all(own_server)
        for actor, lease in zip(actors, leases, strict=True):
            assert await actor.hears_of_loss(lease, TOLD_WITHIN)
            with pytest.raises(LeaseLost, match="session"):
                await actor.release(lease)
        assert time.monotonic() - killed < 2 * TOLD_WITHIN
        for actor in actors:
            assert await actor.try_acquire(actor.colour) is not None


@pytest.mark.parametrize("mode", SESSIONS)
@staged
async def test_a_waiter_whose_session_was_killed_goes_on_waiting(own_server: SqlServer, mode: str) -> None:
    async with both_colours(own_server.lock_space(mode=mode)) as actors:
        for holder, waiter in (actors, actors[::-1]):
            lease = await holder.acquire("job")
            waiting = waiter.acquire("job", wait=20)
            await auntil(lambda: stands_in_line(own_server))
            for session in stands_in_line(own_server):
                own_server.kill_session(session)
            await auntil(lambda: stands_in_line(own_server))  # it stands there anew
            await holder.release(lease)
            got = await waiting
            assert got.held
            await waiter.release(got)


def stands_in_line(server: SqlServer) -> list[int]:
    """Those who wait for a lock of the engine."""
    if is_postgres(server):
        rows = server.execute("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    else:
        asked = "user = 'gripfast' AND state IN ('User lock', 'Statistics')"
        rows = server.execute(f"SELECT id FROM information_schema.processlist WHERE {asked}")
    return [row[0] for row in rows]


@pytest.mark.parametrize("mode", SESSIONS)
@staged
async def test_two_extends_at_once_do_not_vouch_for_each_other(server: SqlServer, mode: str) -> None:
    """While there is no answer to the first, the second has not asked: it can't say that all is well."""
    with Proxy((HOST, server.port)) as proxy:
        async with both_colours(behind(proxy, server.lock_space(mode=mode)), request_timeout=1) as actors:
            for actor in actors:
                lease = await actor.acquire(actor.colour, ttl=3, renew=False)
                other = another(actor)
                proxy.hold("replies")
                left = lease.remaining()
                told = await asyncio.gather(outcome(actor.extend(lease)), outcome(other.extend(lease)))
                assert lease.remaining() < left
                assert [type(each.error) for each in told] != [type(None), type(None)]
                proxy.let_go()
                await other.leaves()
                with contextlib.suppress(LeaseLost, StoreUnavailable):
                    await actor.release(lease)


@pytest.mark.parametrize("mode", SESSIONS)
@staged
async def test_a_release_that_gets_no_answer_does_not_say_that_the_lease_was_lost(server: SqlServer, mode: str) -> None:
    """Nobody had taken it; and it is free, at the latest when the server hears that the connection has ended."""
    with Proxy((HOST, server.port)) as proxy:
        async with both_colours(behind(proxy, server.lock_space(mode=mode)), request_timeout=1) as actors:
            for actor in actors:
                lease = await actor.acquire(actor.colour, ttl=30)
                proxy.hold("replies")
                told = await outcome(actor.release(lease))
                proxy.let_go()
                assert told.error is None or isinstance(told.error, StoreUnavailable)
                assert (await actor.acquire(actor.colour, wait=5.0)).held


# Deadlocks, and transactions that can't be put in order --------------------------------------------------------------


@contextlib.contextmanager
def refusing(server: SqlServer, url: str, table: str, times: int) -> Iterator[None]:
    """The server gives up so many writes to a table, with the error by which it ends a deadlock. In the database of the
    URL; the count survives that they are undone."""
    database = url.rpartition("/")[2].partition("?")[0]
    for statement in _refusals(server, table, times):
        server.execute(statement, database=database)
    yield


def _refusals(server: SqlServer, table: str, times: int) -> list[str]:
    if is_postgres(server):
        return [
            "CREATE SEQUENCE refusals",
            "GRANT USAGE ON SEQUENCE refusals TO PUBLIC",
            f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('refusals') <= {times} THEN
                RAISE EXCEPTION 'gave up' USING ERRCODE = CASE WHEN random() < 0.5 THEN '40001' ELSE '40P01' END;
            END IF; RETURN NEW; END $$""",
            f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()",
        ]
    body = f"""BEGIN
        SET @refusals = coalesce(@refusals, 0) + 1;
        IF @refusals <= {times} THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213; END IF; END"""
    return [
        f"CREATE TRIGGER refuse_{event} BEFORE {event} ON {table} FOR EACH ROW {body}" for event in ("INSERT", "UPDATE")
    ]


TABLES = {"lease": "gripfast_lock", "row": "gripfast_grant", "advisory": "gripfast_grant"}


@pytest.fixture(params=["PostgreSQL-lease", "PostgreSQL-row", "PostgreSQL-advisory", "MariaDB-lease"])
def engine_and_mode(request: pytest.FixtureRequest) -> tuple[SqlServer, str]:
    """MariaDB's triggers, by which the errors are made, take the token of the other modes out of the answer."""
    engine, mode = request.param.split("-")
    return (postgres_server() if engine == "PostgreSQL" else mariadb_server()), mode


@staged
async def test_deadlocks_are_asked_again(engine_and_mode: tuple[SqlServer, str]) -> None:
    server, mode = engine_and_mode
    with server.fresh_database(mode=mode) as url:
        await use(url)  # makes the tables
        with refusing(server, url, TABLES[mode], times=3):
            await use(url)


async def use(url: str) -> None:
    async with both_colours(url) as actors:
        for actor in actors:
            lease = await actor.try_acquire("job")
            assert lease is not None
            await actor.extend(lease)
            await actor.release(lease)


@staged
async def test_deadlocks_without_end_are_told_in_time(engine_and_mode: tuple[SqlServer, str]) -> None:
    server, mode = engine_and_mode
    with server.fresh_database(mode=mode) as url:
        await use(url)
        with refusing(server, url, TABLES[mode], times=10**9):
            async with both_colours(url, request_timeout=0.5) as actors:
                for actor in actors:
                    assert_refused(await outcome(actor.try_acquire("job")), url.rpartition("@")[2].partition("?")[0])


# Servers that take no writes, or nobody more --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_a_replica_says_that_it_takes_no_writes(own_server: SqlServer, mode: str) -> None:
    url = own_server.lock_space(mode=mode)
    await use(url)
    own_server.make_read_only()
    try:
        async with both_colours(url, connect_patience=60.0) as actors:
            for actor in actors:
                assert_refused(await outcome(actor.acquire("job", wait=30.0)), "takes no writes", "primary")
    finally:
        own_server.make_writable()


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_transactions_that_are_read_only_by_default_are_not_in_the_way(mode: str) -> None:
    server = postgres_server()
    with user(server) as name, server.fresh_database(mode=mode) as url:
        database = url.rpartition("/")[2].partition("?")[0]
        server.execute(f"ALTER ROLE {name} SET default_transaction_read_only = on", database=database)
        server.execute(f"GRANT ALL ON SCHEMA public TO {name}", database=database)
        await use(as_user(url, name))


@pytest.mark.parametrize("mode", SESSIONS)
@staged
async def test_two_locks_need_two_connections(server: SqlServer, mode: str) -> None:
    async with both_colours(server.lock_space(mode=mode, max_connections=1), request_timeout=1) as actors:
        for actor in actors:
            lease = await actor.acquire(f"first {actor.colour}")
            assert_refused(await outcome(actor.try_acquire("second")), "connections are in use", "max_connections")
            await actor.extend(lease)
            await actor.release(lease)
            assert await actor.try_acquire(f"second {actor.colour}") is not None


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_a_server_without_a_connection_left_says_so(server: SqlServer, mode: str) -> None:
    with server.fresh_database(mode=mode) as url:
        await use(url)
        limit = "CONNECTION LIMIT 0" if is_postgres(server) else "WITH MAX_USER_CONNECTIONS 1"
        with user(server, limit) as name, connected_once(server, url, name):
            async with both_colours(as_user(url, name), request_timeout=1, connect_patience=0.5) as actors:
                for actor in actors:
                    assert_refused(await outcome(actor.try_acquire("job")), "has no connection left")


@contextlib.contextmanager
def connected_once(server: SqlServer, url: str, name: str) -> Iterator[None]:
    """MariaDB knows no limit of 0 connections."""
    if is_postgres(server):
        yield
        return
    database = url.rpartition("/")[2].partition("?")[0]
    server.execute(f"GRANT ALL ON {database}.* TO {name}@'%'")
    with gripfast.connect(as_user(url, name)) as client:
        client.inspect("job")
        yield


# Isolation ------------------------------------------------------------------------------------------------------------


LEVELS = ["SERIALIZABLE", "REPEATABLE READ", "READ UNCOMMITTED"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", LEVELS)
@staged
async def test_the_isolation_level_that_is_the_default_does_not_matter(
    own_server: SqlServer, mode: str, level: str
) -> None:
    """Many contend, and nobody sees anything but a lock that is taken."""
    if is_postgres(own_server):
        own_server.execute(f"ALTER ROLE gripfast SET default_transaction_isolation = '{level.lower()}'")
    else:
        own_server.execute(f"SET GLOBAL TRANSACTION ISOLATION LEVEL {level}")
    url = own_server.lock_space(mode=mode)
    holders: list[str] = []

    async def contend(actor: Any) -> None:
        for _ in range(5):
            lease = await actor.acquire("job", wait=30.0)
            holders.append(actor.name)
            assert len(holders) == 1
            await actor.extend(lease)
            holders.remove(actor.name)
            await actor.release(lease)

    async with both_colours(url) as actors, both_colours(url) as others:
        await each([*actors, *others], contend)


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_a_lock_that_is_taken_is_no_fault(server: SqlServer, mode: str) -> None:
    async with both_colours(server.lock_space(mode=mode)) as actors:
        for holder, other in (actors, actors[::-1]):
            lease = await holder.acquire("job")
            assert await other.try_acquire("job") is None
            with pytest.raises(LockTimeout):
                await other.acquire("job", wait=0.05)
            await holder.release(lease)
