"""Semaphores and read/write locks in the tables of real SQL servers: never more than the limit, and the queue."""

import asyncio
import contextlib
import random
import threading
import time
from typing import Any, NamedTuple

import pytest

import gripfast
from gripfast import LockTimeout
from stores.sql_permits import LIMIT, Believers, await_queue, give_way, rows, waiting_for, waiting_sessions
from stores.sql_troubles import database_of
from support.both_colours import staged
from support.lanes import Lanes
from support.processes import Worker
from support.sql_process import SqlServer
from support.sql_servers import MariaServer, mariadb_server, postgres_server
from support.waiting import until

pytestmark = pytest.mark.in_turn(2)


@pytest.fixture(params=[postgres_server, mariadb_server], ids=["PostgreSQL", "MariaDB"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    shared: SqlServer = request.param()
    return shared


@pytest.fixture
def url(server: SqlServer) -> str:
    return server.lock_space()


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
                    give_way(chance.randrange(20))
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
                    for _ in range(chance.randrange(20)):
                        await asyncio.sleep(0)
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
                    give_way(10)
                lease.release()

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert believers.most <= LIMIT
        assert believers.count == 36


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
            await_queue(server, url, "api", number + 1)
        assert clients[1].semaphore("api", limit=LIMIT).try_acquire() is None
        everything.release()
        for thread in threads:
            thread.join(30.0)
        assert [number for _, number in sorted(served)] == list(range(6))
        assert rows(server, url, "api") == rows(server, url, "api", "gripfast_permit_holder") == 0


def test_nobody_passes_a_waiter_that_needs_more_than_is_free(server: SqlServer, url: str) -> None:
    with gripfast.connect(url) as client, gripfast.connect(url) as other:
        one = client.semaphore("api", limit=LIMIT).acquire()
        with waiting_for(lambda: other.semaphore("api", limit=LIMIT).acquire(n=3, wait=30.0)) as waiting:
            await_queue(server, url, "api", 1)
            assert client.semaphore("api", limit=LIMIT).try_acquire() is None
            one.release()
        waiting[0].release()
        assert client.semaphore("api", limit=LIMIT).try_acquire() is not None


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
            await_queue(server, url, "index", number)
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
    """Its session is gone, and the server says so."""
    with gripfast.connect(url) as client, contextlib.ExitStack() as stack:
        first = client.semaphore("api", limit=1).acquire()
        doomed = stack.enter_context(Worker("wait_permit.py", url, "api", 1))
        await_queue(server, url, "api", 1)
        sessions = until(lambda: waiting_sessions(server, url, "api"))
        with waiting_for(lambda: client.semaphore("api", limit=1).acquire(wait=30.0)) as waiting:
            await_queue(server, url, "api", 2)
            doomed.kill()
            until(lambda: not sessions & {session.id for session in server.sessions()})
            started = time.monotonic()
            first.release()
        assert time.monotonic() - started < 5.0
        waiting[0].release()


def test_a_waiter_that_is_killed_before_it_listens_does_not_keep_the_others_waiting(server: SqlServer) -> None:
    """Its first claim queues it, and only the second one says where it listens. In between, nobody knew whether it was
    alive, so for ten seconds nobody passed it."""
    with server.fresh_database() as url, gripfast.connect(url) as client, Lanes(server.port) as lanes:

        def sessions() -> set[int]:
            return {session.id for session in server.sessions(database_of(url))}

        first = client.semaphore("api", limit=1).acquire()
        others = sessions()
        lanes.greet(lambda lane: lane.hold() if lanes.all() else None)  # it gets one connection, and can't listen
        with Worker("wait_permit.py", url.replace(f":{server.port}/", f":{lanes.port}/"), "api", 1) as doomed:
            await_queue(server, url, "api", 1)
            doomed.kill()
        until(lambda: sessions() <= others, within=30.0)
        first.release()
        started = time.monotonic()
        client.semaphore("api", limit=1).acquire(wait=30.0).release()
        assert time.monotonic() - started < 3.0


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
            await_queue(server, url, "api", number)
        listens = "SELECT session FROM gripfast_permit_waiter WHERE channel <> '' ORDER BY ticket"
        until(lambda: len(server.execute(listens, database=database_of(url))) == 2)
        (before,), _ = server.execute(listens, database=database_of(url))
        server.kill_session(before)
        until(lambda: server.execute(listens, database=database_of(url))[0][0] != before)
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
        leases = [client.semaphore("api", limit=40, ttl=3.0).acquire() for _ in range(30)]
        ends = time.monotonic() + 5.0

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
