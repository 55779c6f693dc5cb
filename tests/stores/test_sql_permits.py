"""Semaphores and read/write locks in the tables of real SQL servers: what the conformance suite can't see of them."""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pytest

import gripfast
from chaos.sql_stage import behind
from gripfast import LeaseLost, LockTimeout, StoreUnavailable
from gripfast.stores.sql.permit_steps import Step
from gripfast.testing.waiters import waiters_among
from stores.sql_troubles import as_user, database_of, is_postgres, user
from support.both_colours import both_colours, staged
from support.pgbouncer import pgbouncer
from support.processes import Worker
from support.proxy import Proxy
from support.sql_process import HOST, SqlServer
from support.sql_servers import MariaServer, PostgresServer, mariadb_server, postgres_server
from support.waiting import auntil, until

LIMIT = 3
TABLES = ("gripfast_permit", "gripfast_permit_holder", "gripfast_permit_waiter")


@pytest.fixture(params=[postgres_server, mariadb_server], ids=["PostgreSQL", "MariaDB"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    shared: SqlServer = request.param()
    return shared


@pytest.fixture
def url(server: SqlServer) -> str:
    return server.lock_space()


def key(url: str, name: str) -> str:
    return dict(parse_qsl(urlsplit(url).query)).get("prefix", "") + name


def rows(server: SqlServer, url: str, name: str, table: str = "gripfast_permit_waiter") -> int:
    found = server.execute(f"SELECT count(*) FROM {table} WHERE name = %s", key(url, name), database=database_of(url))
    return int(found[0][0])


def waits_in_queue(server: SqlServer, url: str, name: str, count: int) -> None:
    until(lambda: rows(server, url, name) == count)


class Believers:
    """Of one name, in this process: never more of them than permits, and no slot twice."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._slots: set[int] = set()
        self.most = 0
        self.count = 0

    @contextlib.contextmanager
    def among(self, lease: Any) -> Iterator[None]:
        mine = set(lease.slots)
        with self._guard:
            assert not mine & self._slots, (mine, self._slots)
            self._slots |= mine
            self.most = max(self.most, len(self._slots))
            self.count += 1
        try:
            yield
        finally:
            with self._guard:
                self._slots -= mine


# Never more than the limit ------------------------------------------------------------------------------------------


def test_sixteen_threads_never_have_more_than_three_permits(url: str) -> None:
    believers, errors = Believers(), list[BaseException]()
    clients = [gripfast.connect(url) for _ in range(4)]
    ends = time.monotonic() + 3.0

    def work(client: gripfast.Client, chance: random.Random) -> None:
        try:
            while time.monotonic() < ends:
                lease = client.semaphore("api", limit=LIMIT).acquire(n=chance.choice((1, 1, 2, 3)), wait=30.0)
                with believers.among(lease):
                    time.sleep(chance.random() * 0.003)
                lease.release()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(clients[seed % 4], random.Random(seed))) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    assert not errors, errors
    assert believers.most == LIMIT
    assert believers.count > 16


@staged
async def test_many_tasks_never_have_more_than_three_permits(server: SqlServer) -> None:
    believers = Believers()
    async with gripfast.connect_async(server.lock_space()) as client:

        async def work(seed: int) -> None:
            chance = random.Random(seed)
            for _ in range(4):
                lease = await client.semaphore("api", limit=LIMIT).acquire(n=chance.choice((1, 2)), wait=30.0)
                with believers.among(lease):
                    await asyncio.sleep(chance.random() * 0.003)
                await lease.release()

        await asyncio.gather(*map(work, range(12)))
    assert believers.most <= LIMIT
    assert believers.count == 48


def test_those_who_claim_in_the_same_moment_get_no_more_than_there_is(url: str) -> None:
    """A statement that waits for the name and then counts would count what was there before it waited."""
    clients = [gripfast.connect(url) for _ in range(6)]
    for number in range(15):
        barrier, leases = threading.Barrier(6), list[Any]()

        def claim(client: gripfast.Client, name: str, barrier: threading.Barrier, leases: list[Any]) -> None:
            barrier.wait()
            leases.append(client.semaphore(name, limit=LIMIT).try_acquire())

        args = [(client, f"api {number}", barrier, leases) for client in clients]
        threads = [threading.Thread(target=claim, args=each) for each in args]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        granted = [lease for lease in leases if lease is not None]
        assert sorted(slot for lease in granted for slot in lease.slots) == list(range(LIMIT))
        assert len({lease.token for lease in granted}) == LIMIT
        for lease in granted:
            lease.release()
    for client in clients:
        client.close()


class Had(NamedTuple):
    entered: int
    left: int
    token: int
    slots: tuple[int, ...]


def test_processes_never_have_more_than_three_permits(url: str) -> None:
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker("sql_permits.py", url, "api", LIMIT, 4, 3.0)) for _ in range(3)]
        for worker in workers:
            worker.expect("ready")
        told = [had for worker in workers for had in _told(worker)]
    assert len(told) > 30
    assert len({each.token for each in told}) == len(told)
    moments = [(each.entered, 1, each.slots) for each in told] + [(each.left, 0, each.slots) for each in told]
    taken: set[int] = set()
    for _, is_entry, slots in sorted(moments):
        assert not is_entry or not taken & set(slots), (slots, taken)
        taken = taken | set(slots) if is_entry else taken - set(slots)
        assert len(taken) <= LIMIT


def _told(worker: Worker) -> list[Had]:
    told: list[Had] = []
    while (words := worker.line(40.0).split(" "))[0] == "had":
        entered, left, token = map(int, words[1:4])
        told.append(Had(entered, left, token, tuple(map(int, words[4].split(",")))))
    assert words == ["done", str(len(told))]
    return told


# The queue ----------------------------------------------------------------------------------------------------------


def test_waiters_of_several_clients_are_served_in_the_order_in_which_they_came(server: SqlServer, url: str) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(gripfast.connect(url)) for _ in range(3)]
        everything = clients[0].semaphore("api", limit=LIMIT).acquire(n=LIMIT)
        served, threads = list[Any](), list[threading.Thread]()

        def wait(client: gripfast.Client, n: int, number: int) -> None:
            with client.semaphore("api", limit=LIMIT).acquire(n=n, wait=30.0) as lease:
                served.append((lease.token, number))

        for number, n in enumerate([1, 3, 1, 2, 3, 1]):
            threads.append(threading.Thread(target=wait, args=(clients[number % 3], n, number)))
            threads[-1].start()
            waits_in_queue(server, url, "api", number + 1)
        assert clients[1].semaphore("api", limit=LIMIT).try_acquire() is None
        everything.release()
        for thread in threads:
            thread.join(30.0)
        assert [number for _, number in sorted(served)] == list(range(6))
        assert rows(server, url, "api") == rows(server, url, "api", "gripfast_permit_holder") == 0


def test_nobody_passes_a_waiter_that_needs_more_than_is_free(server: SqlServer, url: str) -> None:
    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        one = client.semaphore("api", limit=LIMIT).acquire()
        with _waiting(lambda: other.semaphore("api", limit=LIMIT).acquire(n=3, wait=30.0)) as waiting:
            waits_in_queue(server, url, "api", 1)
            assert client.semaphore("api", limit=LIMIT).try_acquire() is None
            one.release()
        waiting[0].release()
        assert client.semaphore("api", limit=LIMIT).try_acquire() is not None


@contextlib.contextmanager
def _waiting(acquire: Any) -> Iterator[list[Any]]:
    """Calls it on another thread; at the end it has got it."""
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(acquire()))
    thread.start()
    yield got
    thread.join(30.0)
    assert got


def test_a_reader_does_not_pass_a_writer_that_waits_and_readers_enter_together(server: SqlServer, url: str) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(gripfast.connect(url)) for _ in range(4)]
        first = clients[0].rwlock("index").read().acquire()
        served = list[tuple[int, str]]()
        met = threading.Barrier(2)

        def read(number: int) -> None:
            with clients[number].rwlock("index").read().acquire(wait=30.0) as lease:
                served.append((lease.token, "reader"))
                met.wait(30.0)  # both are in at once, or this breaks

        def write() -> None:
            with clients[1].rwlock("index").write().acquire(wait=30.0) as lease:
                served.append((lease.token, "writer"))

        threads = [threading.Thread(target=write), *(threading.Thread(target=read, args=(each,)) for each in (2, 3))]
        for number, thread in enumerate(threads, 1):
            thread.start()
            waits_in_queue(server, url, "index", number)
        first.release()
        for thread in threads:
            thread.join(30.0)
        assert [who for _, who in sorted(served)] == ["writer", "reader", "reader"]


def test_a_waiter_that_gives_up_leaves_no_row_and_lets_the_next_one_in(server: SqlServer, url: str) -> None:
    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        first = client.semaphore("api", limit=2).acquire()
        with pytest.raises(LockTimeout):
            other.semaphore("api", limit=2).acquire(n=2, wait=0.3)
        until(lambda: rows(server, url, "api") == 0)
        assert other.semaphore("api", limit=2).try_acquire() is not None
        first.release()


def test_a_killed_waiter_does_not_keep_the_others_waiting(server: SqlServer, url: str) -> None:
    """PostgreSQL sees that its session is gone. Elsewhere it is in the way until the window is over."""
    with gripfast.connect(url) as client, Worker("wait_permit.py", url, "api", 1) as doomed:
        first = client.semaphore("api", limit=1).acquire()
        waits_in_queue(server, url, "api", 1)
        with _waiting(lambda: client.semaphore("api", limit=1).acquire(wait=30.0)) as waiting:
            waits_in_queue(server, url, "api", 2)
            before = {session.id for session in server.sessions()}
            doomed.kill()
            until(lambda: {session.id for session in server.sessions()} < before)
            started = time.monotonic()
            first.release()
        assert time.monotonic() - started < (5.0 if is_postgres(server) else 15.0)
        waiting[0].release()


def test_a_waiter_whose_listening_session_ends_keeps_its_position() -> None:
    server = postgres_server()
    with server.fresh_database() as url, gripfast.connect(url) as client, gripfast.connect(url) as other:
        first, served = client.semaphore("api", limit=1).acquire(), list[int]()

        def wait(which: gripfast.Client, number: int) -> None:
            with which.semaphore("api", limit=1).acquire(wait=30.0):
                served.append(number)

        threads = [threading.Thread(target=wait, args=each) for each in ((other, 0), (client, 1))]
        for number, thread in enumerate(threads, 1):
            thread.start()
            waits_in_queue(server, url, "api", number)
        asked = "SELECT session FROM gripfast_permit_waiter ORDER BY ticket"
        until(lambda: 0 not in [row[0] for row in server.execute(asked, database=database_of(url))])
        (before,), _ = server.execute(asked, database=database_of(url))
        server.kill_session(before)
        until(lambda: server.execute(asked, database=database_of(url))[0][0] not in (before, 0))
        first.release()
        for thread in threads:
            thread.join(30.0)
        assert served == [0, 1]


def test_permits_of_a_holder_that_is_not_renewed_are_free_when_its_time_is_over(url: str) -> None:
    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        stale = client.semaphore("api", limit=1, ttl=0.5, renew=False).acquire()
        lease = other.semaphore("api", limit=1).acquire(wait=10.0)
        assert lease.token > stale.token
        assert not stale.held


def test_holders_of_a_busy_semaphore_are_renewed(url: str) -> None:
    """A claim locks the name, not those who have permits already."""
    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        leases = [client.semaphore("api", limit=40, ttl=1.2).acquire() for _ in range(30)]
        ends = time.monotonic() + 4.0

        def work() -> None:
            while time.monotonic() < ends:
                other.semaphore("api", limit=40).acquire(wait=30.0).release()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(lease.held for lease in leases)
        for lease in leases:
            lease.release()


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
            await asyncio.sleep(delay * 0.0005)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).release()
            lease = await other.semaphore("api", limit=1).acquire(wait=10.0)
            await lease.release()


async def _acquired(semaphore: Any) -> Any:
    return await semaphore.acquire()


def test_a_client_that_stops_in_the_middle_does_not_keep_the_name_locked(
    server: SqlServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a stopped process does, whose connection stays."""
    decide, goes_on = Step.decide, threading.Event()

    def stopped(self: Step, answer: Any) -> Any:
        monkeypatch.setattr(Step, "decide", decide)
        goes_on.wait(30.0)
        return decide(self, answer)

    told = url + "&request_timeout=1"
    with gripfast.connect(told) as client, gripfast.connect(url) as other:
        client.semaphore("api", limit=1).acquire().release()
        monkeypatch.setattr(Step, "decide", stopped)
        late: list[Any] = []
        thread = threading.Thread(target=lambda: late.append(_outcome(client)))
        thread.start()
        until(lambda: Step.decide is decide)
        lease = other.semaphore("api", limit=1).acquire(wait=10.0)
        goes_on.set()
        thread.join(30.0)
        assert lease.held
        assert isinstance(late[0], StoreUnavailable | LockTimeout), late
        lease.release()


def _outcome(client: gripfast.Client) -> Any:
    try:
        return client.semaphore("api", limit=1).acquire(wait=0.2)
    except gripfast.GripfastError as error:
        return error


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
        with _waiting(lambda: other.semaphore("api", limit=1).acquire(wait=30.0)) as waiting:
            waits_in_queue(server, url, "api", 1)
            client.semaphore("api", limit=1).resize(3)
        assert waiting[0].slots == (1,)
        refused: list[Any] = []
        with _waiting(lambda: refused.append(_refusal(other)) or True):
            waits_in_queue(server, url, "api", 1)
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


def test_a_server_that_replicates_statements_never_gives_more_than_there_is() -> None:
    """There, the server makes us use REPEATABLE READ."""
    with (
        MariaServer("log-bin", "binlog-format=STATEMENT", "server-id=1") as server,
        gripfast.connect(server.url) as client,
    ):
        believers = Believers()

        def work(seed: int) -> None:
            for _ in range(6):
                lease = client.semaphore("api", limit=LIMIT).acquire(n=1 + seed % 2, wait=60.0)
                with believers.among(lease):
                    time.sleep(0.002)
                lease.release()

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert believers.most <= LIMIT
        assert believers.count == 36


def test_a_proxy_before_a_server_with_another_isolation_level_is_no_obstacle() -> None:
    with PostgresServer("default_transaction_isolation=serializable") as server, pgbouncer(server) as url:
        with gripfast.connect(url) as client:
            leases = [client.semaphore("api", limit=2).acquire() for _ in range(2)]
            assert [lease.slots for lease in leases] == [(0,), (1,)]


def test_through_a_proxy_that_hands_sessions_around_waiters_look_themselves() -> None:
    server: PostgresServer = postgres_server()
    with pgbouncer(server) as url, gripfast.connect(url, prefix=f"{random.random()}:") as client:
        first = client.semaphore("api", limit=1).acquire()
        with _waiting(lambda: client.semaphore("api", limit=1).acquire(wait=30.0)) as waiting:
            until(lambda: waiters_among([client], "api") == 1)
            first.release()
        waiting[0].release()
        with client.rwlock("index").write() as lease:
            lease.downgrade()
