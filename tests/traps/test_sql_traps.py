"""What went wrong in other SQL locks, and that it does not here: one test for each, on real servers."""

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator

import psycopg
import pymysql
import pytest

import gripfast
from gripfast import StoreUnavailable
from gripfast.stores.mysql import scripts as mysql
from gripfast.stores.postgres import scripts as postgres
from stores.sql_troubles import MODES, SESSIONS, is_postgres, row_locked
from support.both_colours import both_colours, each, staged
from support.pgbouncer import pgbouncer
from support.sql_process import DATABASE, HOST, PASSWORD, USER, SqlServer
from support.sql_servers import mariadb_server, postgres_server
from support.waiting import auntil

pytestmark = pytest.mark.in_turn(2)

NAMES = 200_000


@pytest.fixture(params=[postgres_server, mariadb_server], ids=["PostgreSQL", "MariaDB"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    shared: SqlServer = request.param()
    return shared


@staged
async def test_the_start_of_a_transaction_is_not_taken_for_now(server: SqlServer) -> None:
    """A claim waits for the row until the holder's lease has run out: it is granted then, and dated by then."""
    async with both_colours(server.lock_space(), request_timeout=10.0) as actors:
        for holder, other in (actors, actors[::-1]):
            name = f"{other.colour} waits"
            before = await holder.acquire(name, ttl=1.0, renew=False)
            with row_locked(server, name):
                asking = other.acquire(name, ttl=5.0, renew=False)
                await auntil(lambda before=before: not before.held)
            lease = await asking
            assert lease.token > before.token
            left_here = lease.remaining()
            info = await other.inspect(name)
            assert 0 < left_here <= 5.0
            assert info.expires_in >= lease.remaining()
            assert info.expires_in > 3.0
            await other.release(lease)


def test_no_two_of_many_names_have_the_same_advisory_key() -> None:
    """Of 64 bits and of 160, not of 16."""
    names = [f"job {number}" for number in range(NAMES)]
    assert len({postgres.advisory_key(DATABASE, name) for name in names}) == NAMES
    keys = {str(mysql.advisory_key(DATABASE, name)) for name in names}
    assert len({key.lower() for key in keys}) == NAMES
    assert max(len(key) for key in keys) <= 64


def test_user_level_locks_of_two_databases_are_two() -> None:
    """GET_LOCK is the whole server's."""
    server = mariadb_server()
    with server.fresh_database(mode="advisory") as one, server.fresh_database(mode="advisory") as other:
        with gripfast.connect(one) as first, gripfast.connect(other) as second:
            with first.lock("job"), second.lock("job"):
                pass


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_names_that_a_collation_would_merge_are_different_locks(server: SqlServer, mode: str) -> None:
    names = ["Job", "job", "job ", "jöb", "job\t", "JOB"]
    async with both_colours(server.lock_space(mode=mode)) as actors:
        for actor in actors:
            leases = [await actor.try_acquire(name) for name in names]
            assert None not in leases
            assert sorted(info.name for info in await actor.listing()) == sorted(names)
            for lease in leases:
                await actor.release(lease)


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_names_longer_than_64_characters_are_not_cut(server: SqlServer, mode: str) -> None:
    names = ["x" * 300 + "a", "x" * 300 + "b", "x" * 300]
    async with both_colours(server.lock_space(mode=mode)) as actors:
        for actor in actors:
            leases = [await actor.try_acquire(name) for name in names]
            assert None not in leases
            for name, lease in zip(names, leases, strict=True):
                assert (await actor.inspect(name)).token == lease.token
                await actor.release(lease)


@pytest.mark.parametrize("mode", MODES)
def test_a_row_that_is_missing_lets_one_in_not_all(server: SqlServer, mode: str) -> None:
    """Everyone comes at the same moment to a name that nobody has ever used."""
    url, inside, most, crowd = server.lock_space(mode=mode), 0, 0, 6
    counting, start = threading.Lock(), threading.Barrier(crowd)

    def come(client: gripfast.Client) -> None:
        nonlocal inside, most
        for number in range(8):
            start.wait()
            with client.lock(f"never used {number}", ttl=30).acquire(wait=30.0) as lease:
                with counting:
                    inside += 1
                    most = max(most, inside)
                lease.lost.wait(0.01)
                with counting:
                    inside -= 1

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(gripfast.connect(url)) for _ in range(crowd)]
        threads = [threading.Thread(target=come, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == 1


@pytest.mark.parametrize("mode", SESSIONS)
@staged
async def test_a_token_is_taken_without_waiting_for_the_row_that_is_locked(server: SqlServer, mode: str) -> None:
    """And others read it while the lock is held."""
    async with both_colours(server.lock_space(mode=mode)) as actors:
        tokens = [0]
        for holder, other in (actors, actors[::-1]):
            started = time.monotonic()
            lease = await holder.acquire("job")
            assert time.monotonic() - started < 3.0
            assert lease.token > tokens[-1]
            assert (await other.inspect("job")).token == lease.token
            tokens.append(lease.token)
            await holder.release(lease)


# Sessions that are not ours ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def application(server: SqlServer) -> Iterator["psycopg.Connection | pymysql.Connection"]:
    """A connection as an application has it."""
    connection: psycopg.Connection | pymysql.Connection
    if is_postgres(server):
        connection = psycopg.connect(server.url)
    else:
        connection = pymysql.connect(
            host=HOST, port=server.port, user=USER, password=PASSWORD, database=DATABASE, ssl_disabled=True
        )
    try:
        yield connection
    finally:
        connection.close()


def settings(server: SqlServer, connection: "psycopg.Connection | pymysql.Connection") -> dict[str, str]:
    """All that a session can set."""
    asked = "SELECT name, setting FROM pg_settings" if is_postgres(server) else "SHOW SESSION VARIABLES"
    with connection.cursor() as cursor:
        cursor.execute(asked)
        told = dict(cursor.fetchall())
    connection.rollback()
    changing = {"timestamp", "last_insert_id", "insert_id", "rand_seed1", "rand_seed2", "identity", "in_transaction"}
    return {name: value for name, value in told.items() if name not in changing}


def test_time_outs_do_not_leak_into_the_session_of_the_caller(server: SqlServer) -> None:
    """Neither after a wait that was granted nor after one in vain."""
    url = server.lock_space(mode="row")
    with application(server) as connection, gripfast.connect(url) as client, gripfast.connect(url) as other:
        before = settings(server, connection)
        with other.lock("job"):
            with pytest.raises(gripfast.LockTimeout):
                client.lock("job").within(connection, wait=0.3)
        connection.rollback()
        assert settings(server, connection) == before
        client.lock("job").within(connection, wait=5.0)
        connection.commit()
        assert settings(server, connection) == before


@pytest.mark.parametrize("mode", SESSIONS)
@staged
async def test_a_connection_that_is_used_again_has_no_time_out_of_the_last_one(server: SqlServer, mode: str) -> None:
    """First a lock with a short ttl and a short wait, then one that is held in silence for longer than both."""
    async with both_colours(server.lock_space(mode=mode)) as actors:
        await each(actors, short_then_long)


async def short_then_long(actor: object) -> None:
    acquire, release = actor.acquire, actor.release  # type: ignore[attr-defined]
    await release(await acquire(f"short {id(actor)}", ttl=1.0, wait=0.5))
    lease = await acquire(f"long {id(actor)}", ttl=60.0)
    ends = time.monotonic() + 2.5
    await auntil(lambda: time.monotonic() > ends)
    assert lease.held
    await release(lease)


# Proxies that pool transactions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", SESSIONS)
@staged
async def test_locks_in_sessions_are_refused_behind_a_pool_of_transactions(mode: str) -> None:
    with pgbouncer(postgres_server()) as url:
        async with both_colours(f"{url}?mode={mode}", connect_patience=60.0) as actors:
            for actor in actors:
                with pytest.raises(StoreUnavailable, match=r"pgbouncer.*mode=lease"):
                    await actor.acquire("job", wait=30.0)


@staged
async def test_leases_work_behind_a_pool_of_transactions() -> None:
    with pgbouncer(postgres_server()) as url:
        async with both_colours(f"{url}?prefix={uuid.uuid4().hex}:") as actors:
            for holder, other in (actors, actors[::-1]):
                lease = await holder.acquire("job")
                assert await other.try_acquire("job") is None
                waiting = other.acquire("job", wait=20.0)
                await holder.extend(lease)
                await holder.release(lease)
                await other.release(await waiting)
                assert await holder.inspect("job") is None
