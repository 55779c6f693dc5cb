"""`lock.within(connection)`: the lock in the caller's own transaction, with every driver that is known."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pymysql
import pytest

import gripfast
from api.within_stage import (
    PLACES,
    Kind,
    Place,
    blocking_ways,
    every_way,
    main_ways,
    taken,
    within,
    within_as_set,
    within_blocking,
)
from gripfast import LockTimeout
from support.both_colours import staged
from support.callers import mysql_words, opened
from support.sql_servers import MariaServer
from support.waiting import auntil, until

pytestmark = pytest.mark.in_turn(2)

# -- what it promises ----------------------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("ending", ["commit", "rollback"])
@staged
async def test_it_excludes_leases_until_the_transaction_ends(
    kind: Kind, url: str, client: gripfast.Client, place: Place, ending: str
) -> None:
    lock = client.lock("stock")
    before = lock.acquire()
    before.release()
    async with opened(kind, place.server.url) as caller:
        held = await within(url, caller)
        assert (held.name, held.token > before.token) == ("stock", True)
        assert await taken(lock)
        await getattr(caller, ending)()
        assert not await taken(lock)
    with lock as after:
        assert after.token > held.token


@every_way
@staged
async def test_it_is_excluded_by_a_lease_and_the_transaction_goes_on(
    kind: Kind, url: str, client: gripfast.Client, place: Place, table: str
) -> None:
    async with opened(kind, place.server.url) as caller:
        await caller.begin()
        await caller.execute(f"UPDATE {table} SET amount = 7")
        with client.lock("stock", label="the cellar") as lease:
            with pytest.raises(LockTimeout, match="the cellar") as refusal:
                await within(url, caller)
            holder = refusal.value.holder
            assert holder is not None
            assert (holder.owner, holder.token) == (lease.owner, lease.token)
            with pytest.raises(LockTimeout):
                await within(url, caller, wait=0.05)
            with pytest.raises(LockTimeout):
                await within_as_set(url, caller, wait=0.05)
        await caller.commit()
        assert await caller.execute(f"SELECT amount FROM {table}") == [(7,)]


@main_ways
@staged
async def test_two_transactions_exclude_each_other_and_one_may_take_it_twice(
    kind: Kind, url: str, place: Place
) -> None:
    async with opened(kind, place.server.url) as first, opened(kind, place.server.url) as second:
        once = await within(url, first)
        again = await within(url, first)
        assert again.token > once.token
        with pytest.raises(LockTimeout):
            await within(url, second)
        await first.commit()
        assert (await within(url, second)).token > again.token


@main_ways
@staged
async def test_the_end_of_the_callers_session_frees_it(
    kind: Kind, url: str, client: gripfast.Client, place: Place
) -> None:
    which = "SELECT pg_backend_pid()" if place.engine == "postgresql" else "SELECT CONNECTION_ID()"
    lock = client.lock("stock")
    async with opened(kind, place.server.url) as caller:
        ((session,),) = await caller.execute(which)
        await caller.rollback()
        await within(url, caller)
        assert await taken(lock)
        place.server.kill_session(session)
        await auntil(lambda: asyncio.to_thread(lambda: _got(lock)))


def _got(lock: gripfast.Lock) -> bool:
    lease = lock.try_acquire()
    if lease is not None:
        lease.release()
    return lease is not None


@main_ways
@staged
async def test_others_see_who_has_it(kind: Kind, url: str, client: gripfast.Client, place: Place) -> None:
    async with opened(kind, place.server.url) as caller:
        held = await within(url, caller, label="nightly")
        info = client.inspect("stock")
        assert info is not None
        assert (info.name, info.token, info.label) == ("stock", held.token, "nightly")
        assert [each.token for each in client.list()] == [held.token]
        await caller.commit()
        assert client.inspect("stock") is None
        assert list(client.list()) == []


@blocking_ways
def test_force_release_ends_the_callers_session(kind: Kind, url: str, client: gripfast.Client, place: Place) -> None:
    caller = kind(place.server.url)
    asyncio.run(caller.open())
    client.lock("stock").within(caller.given, 0)
    assert client.force_release("stock")
    with client.lock("stock").acquire(wait=5):
        with pytest.raises((psycopg.Error, pymysql.Error)):
            asyncio.run(caller.execute("SELECT 1"))
    caller.given.close() if caller.engine == "postgresql" else caller.given._force_close()


# -- waiting -------------------------------------------------------------------------------------------------------


@main_ways
@pytest.mark.parametrize("wait", [5.0, None])
@staged
async def test_it_waits_until_the_lease_is_released(
    kind: Kind, url: str, client: gripfast.Client, place: Place, wait: float | None
) -> None:
    lease = client.lock("stock").acquire()
    async with opened(kind, place.server.url) as caller:
        waiter = asyncio.create_task(within(url, caller, wait))
        _, waits = await asyncio.wait([waiter], timeout=0.3)
        assert waits
        lease.release()
        assert (await waiter).token > lease.token


@main_ways
@staged
async def test_a_lease_waits_until_the_transaction_ends(
    kind: Kind, url: str, client: gripfast.Client, place: Place
) -> None:
    async with opened(kind, place.server.url) as caller:
        held = await within(url, caller)
        waiter = asyncio.create_task(asyncio.to_thread(client.lock("stock").acquire, 10))
        _, waits = await asyncio.wait([waiter], timeout=0.3)
        assert waits
        await caller.commit()
        with await waiter as lease:
            assert lease.token > held.token


@main_ways
@staged
async def test_a_wait_holds_to_its_fractions_of_seconds(kind: Kind, place: Place) -> None:
    async def refused_after(wait: float) -> float:
        url = place.server.lock_space(mode=place.mode)
        with gripfast.connect(url) as client, client.lock("stock"):
            async with opened(kind, place.server.url) as caller:
                started = time.monotonic()
                with pytest.raises(LockTimeout) as refusal:
                    await within(url, caller, wait)
                took = time.monotonic() - started
        assert wait <= refusal.value.waited <= took
        return took

    async def refused(wait: float) -> None:
        """In time in one of five tries, as a busy machine may be late; never, if it waits for whole seconds."""
        for _ in range(5):
            if await refused_after(wait) < wait + 0.4:
                return
        raise AssertionError(f"a wait of {wait:g} s is longer, each time")

    await asyncio.gather(*map(refused, [0.0, 0.3, 1.2, 2.5]))


@main_ways
@staged
async def test_a_second_waiter_waits_no_longer_than_it_was_asked_to(
    kind: Kind, url: str, client: gripfast.Client, place: Place
) -> None:
    """On PostgreSQL it waits for the first waiter, and then for the holder."""

    async def refused(wait: float) -> None:
        async with opened(kind, place.server.url) as caller:
            started = time.monotonic()
            with pytest.raises(LockTimeout):
                await within(url, caller, wait)
            assert time.monotonic() - started < wait + 2.0  # one after the other, it is 2.5 at least

    with client.lock("stock"):
        await asyncio.gather(refused(2.5), refused(3.0))


SHOW = {"postgresql": "SHOW lock_timeout", "mysql": "SELECT CONCAT(@@innodb_lock_wait_timeout, 's')"}
SET = {"postgresql": "SET lock_timeout TO '200ms'", "mysql": "SET SESSION innodb_lock_wait_timeout = 1"}
THEIRS = {"postgresql": ("200ms", 0.2), "mysql": ("1s", 1.0)}
"""What that is, as it is shown and in seconds: as short as the engine can."""


@main_ways
@staged
async def test_the_callers_own_lock_timeout_neither_counts_nor_changes(
    kind: Kind, url: str, client: gripfast.Client, place: Place
) -> None:
    shown, seconds = THEIRS[place.engine]
    async with opened(kind, place.server.url) as caller:
        await caller.execute(SET[place.engine])
        await caller.commit()
        lease = client.lock("stock").acquire()
        with pytest.raises(LockTimeout) as refusal:
            await within(url, caller, wait=seconds * 1.5)
        assert refusal.value.waited >= seconds * 1.5
        assert await caller.execute(SHOW[place.engine]) == [(shown,)]
        await caller.rollback()
        waiter = asyncio.create_task(within(url, caller, wait=None))
        _, waits = await asyncio.wait([waiter], timeout=seconds * 1.5)
        assert waits
        lease.release()
        await waiter
        assert await caller.execute(SHOW[place.engine]) == [(shown,)]
        await caller.commit()
        assert await caller.execute(SHOW[place.engine]) == [(shown,)]


@pytest.mark.parametrize("place", PLACES[:1], ids=str)
def test_a_lock_timeout_of_the_transaction_alone_is_put_back_too(
    url: str, client: gripfast.Client, place: Place
) -> None:
    with psycopg.connect(place.server.url) as caller, ThreadPoolExecutor(1) as threads:
        caller.execute("SET LOCAL lock_timeout TO '700ms'")
        lease = client.lock("stock").acquire()
        waiter = threads.submit(within_blocking, url, caller, 10, {})
        until(lambda: _waits_for_a_lock(place))
        lease.release()
        waiter.result(10)
        assert caller.execute("SHOW lock_timeout").fetchone() == ("700ms",)
        caller.commit()
        assert caller.execute("SHOW lock_timeout").fetchone() == ("0",)


@pytest.mark.parametrize("place", PLACES[2:], ids=str)
def test_who_did_not_get_it_is_in_nobodys_way(client: gripfast.Client, place: Place, table: str) -> None:
    """In REPEATABLE READ a row that was skipped would leave a lock on the gap behind it, where new names go."""
    with closing(pymysql.connect(**mysql_words(place.server.url), ssl_disabled=True)) as caller:
        with client.lock("stock").acquire():
            for wait in (0, 0.1):
                with pytest.raises(LockTimeout):
                    client.lock("stock").within(caller, wait)
            with client.lock("stock, and more").acquire(wait=2):
                pass


def test_where_a_time_out_would_roll_back_the_transaction_it_is_not_used() -> None:
    with (
        MariaServer("innodb_rollback_on_timeout=ON") as server,
        gripfast.connect(server.url_with(mode="row")) as client,
    ):
        server.execute("CREATE TABLE stock (amount INTEGER) ENGINE = InnoDB")
        with closing(pymysql.connect(**mysql_words(server.url), ssl_disabled=True)) as caller:
            with caller.cursor() as cursor:
                cursor.execute("INSERT INTO stock VALUES (1)")
            with client.lock("stock").acquire(), pytest.raises(LockTimeout):
                client.lock("stock").within(caller, 2.5)
            client.lock("stock").within(caller, 2.5)
            caller.commit()
        assert server.execute("SELECT amount FROM stock") == [(1,)]


def _waits_for_a_lock(place: Place) -> bool:
    return any("FOR UPDATE" in session.query for session in place.server.sessions())


# -- races ---------------------------------------------------------------------------------------------------------


@blocking_ways
def test_transactions_and_leases_in_a_race_lose_no_update(kind: Kind, url: str, place: Place, table: str) -> None:
    """Four of each add one, and one more, with a read and a write."""
    begins = threading.Barrier(8)

    def add_one(run: Callable[[str], list[tuple[Any, ...]]]) -> None:
        ((amount,),) = run(f"SELECT amount FROM {table}")
        run(f"UPDATE {table} SET amount = {amount + 1}")

    def in_transactions() -> list[int]:
        async def work() -> list[int]:
            tokens = []
            async with opened(kind, place.server.url) as caller:
                with gripfast.connect(url) as client:
                    begins.wait()
                    for _ in range(10):
                        tokens.append(client.lock("stock").within(caller.given, 30).token)
                        add_one(lambda sql: _at_once(caller.execute(sql)))
                        await caller.commit()
            return tokens

        return asyncio.run(work())

    def in_leases() -> list[int]:
        tokens = []
        with gripfast.connect(url) as client:
            begins.wait()
            for _ in range(10):
                with client.lock("stock").acquire(wait=30) as lease:
                    add_one(place.server.execute)
                    tokens.append(lease.token)
        return tokens

    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(job) for job in (in_transactions, in_leases) * 4]
        tokens = [token for job in jobs for token in job.result(55)]
    assert place.server.execute(f"SELECT amount FROM {table}") == [(80,)]
    assert len(set(tokens)) == 80


def _at_once(step: Awaitable[Any]) -> Any:
    """Of a driver that blocks."""
    try:
        step.send(None)  # type: ignore[attr-defined]
    except StopIteration as done:
        return done.value
    raise AssertionError("it suspended")
