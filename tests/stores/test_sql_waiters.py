"""What waiting for a lease costs a SQL server: connections, and statements. Both colours, each by itself."""

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Iterator

import pytest

import gripfast
from stores.sql_troubles import database_of
from support.sql_process import SqlServer
from support.sql_servers import PostgresServer, mariadb_server, postgres_server
from support.waiting import auntil, until

pytestmark = pytest.mark.in_turn(2)

MANY = 200
AT_MOST = 2
"""Connections for all of them."""
SILENCE = 2.5
"""Seconds: less than the pace at which a waiter queries though nothing has happened."""


@pytest.fixture(params=[postgres_server, mariadb_server], ids=["PostgreSQL", "MariaDB"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    shared: SqlServer = request.param()
    return shared


@pytest.fixture
def url(server: SqlServer) -> Iterator[str]:
    """Of a database of its own, so that its connections can be counted, with its tables."""
    with server.fresh_database() as url:
        with gripfast.connect(url) as client, client.lock("job"):
            pass
        yield url


class Count:
    """Of the connections to a database: the most there ever were, but for those of the holder."""

    def __init__(self, server: SqlServer, url: str) -> None:
        self._server = server
        self._database = database_of(url)
        self._before = {session.id for session in server.sessions(self._database)}
        self.most = 0

    def look(self) -> None:
        now = {session.id for session in self._server.sessions(self._database)}
        self.most = max(self.most, len(now - self._before))


def test_many_threads_that_wait_use_two_connections(server: SqlServer, url: str) -> None:
    with gripfast.connect(url) as holder, gripfast.connect(url) as client:
        lease = holder.lock("job", ttl=300).acquire()
        count, served = Count(server, url), 0
        asking = threading.Barrier(MANY + 1)

        def wait() -> None:
            nonlocal served
            asking.wait()
            with client.lock("job").acquire(wait=60.0):
                served += 1

        threads = [threading.Thread(target=wait) for _ in range(MANY)]
        for thread in threads:
            thread.start()
        asking.wait()
        watch(count, 0.5)
        assert 0 < count.most <= AT_MOST
        lease.release()
        while any(thread.is_alive() for thread in threads):
            watch(count, 0.02)
        assert served == MANY
        # Threads: whoever gives it back may still have its connection when the next one, who waits no more, queries.
        assert count.most <= AT_MOST + 1


def watch(count: Count, seconds: float) -> None:
    ends = time.monotonic() + seconds
    until(lambda: count.look() or time.monotonic() > ends, within=seconds + 30.0)


def test_many_tasks_that_wait_use_two_connections(server: SqlServer, url: str) -> None:
    async def play() -> None:
        async with gripfast.connect_async(url) as holder, gripfast.connect_async(url) as client:
            lease = await holder.lock("job", ttl=300).acquire()
            count, served = Count(server, url), 0

            async def wait() -> None:
                nonlocal served
                async with await client.lock("job").acquire(wait=60.0):
                    served += 1

            async with asyncio.TaskGroup() as group:
                for _ in range(MANY):
                    group.create_task(wait())
                await auntil(lambda: count.look() or count.most)
                ends = time.monotonic() + 0.5
                await auntil(lambda: count.look() or time.monotonic() > ends)
                assert count.most <= AT_MOST
                await lease.release()
                await auntil(lambda: count.look() or served == MANY, within=60.0)
            assert count.most <= AT_MOST

    asyncio.run(play())


# Statements -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def logging_server() -> Iterator[PostgresServer]:
    """Each statement of our user has a line that begins so."""
    with PostgresServer("log_statement=all", "log_line_prefix=<%u> ") as server:
        yield server


class Statements:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._seen = len(self.all())
        self._log_seen = len(server.log)

    def all(self) -> list[str]:
        return re.findall(r"^<gripfast> LOG:  (?:statement|execute [^:]*): (.*)", self._server.log, re.MULTILINE)

    def have(self, words: str) -> bool:
        """Among those that are new."""
        return words in self._server.log[self._log_seen :]

    def new(self) -> list[str]:
        told = self.all()[self._seen :]
        self._seen += len(told)
        return told


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_a_waiter_says_nothing_until_the_holder_releases(logging_server: PostgresServer, colour: str) -> None:
    with waiting(logging_server, colour, ttl=60.0) as (statements, lease, served):
        silent_for(SILENCE)
        assert statements.new() == []
        lease.release()
        assert served.wait(2.0)
        assert len(statements.new()) < 8


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_a_waiter_asks_when_the_holders_time_is_over(logging_server: PostgresServer, colour: str) -> None:
    with waiting(logging_server, colour, ttl=3.0) as (statements, _, served):
        silent_for(1.5)
        assert statements.new() == []
        assert served.wait(3.0)
        assert len(statements.new()) < 8


def silent_for(seconds: float) -> None:
    ends = time.monotonic() + seconds
    until(lambda: time.monotonic() > ends, within=seconds + 1.0)


@contextlib.contextmanager
def waiting(
    server: PostgresServer, colour: str, ttl: float
) -> Iterator[tuple[Statements, gripfast.Lease, threading.Event]]:
    """Somebody holds a lock, without renewing it, and another waits for it, and has said all it had to say."""
    url, served = server.lock_space(), threading.Event()

    def wait() -> None:
        with gripfast.connect(url) as client, client.lock("job").acquire(wait=30.0):
            served.set()

    async def await_it() -> None:
        async with gripfast.connect_async(url) as client, await client.lock("job").acquire(wait=30.0):
            served.set()

    with gripfast.connect(url) as holder:
        lease = holder.lock("job", ttl=ttl, renew=False).acquire()
        statements = Statements(server)
        action = wait if colour == "blocking" else lambda: asyncio.run(await_it())
        thread = threading.Thread(target=action)
        thread.start()
        until(lambda: statements.have("SET waited_until_us"))
        silent_for(0.2)
        statements.new()
        try:
            yield statements, lease, served
        finally:
            with contextlib.suppress(gripfast.LeaseLost):
                lease.release()
            thread.join()
