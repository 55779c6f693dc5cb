"""Read/write locks in sessions of SQL servers: writers under a stream of readers, deaths, and what is left behind."""

import asyncio
import contextlib
import itertools
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import gripfast
from gripfast.core import rules
from gripfast.stores.sql import session
from gripfast.testing.waiters import waiters_among, watch_for_waiters
from stores.sql_permits import rows
from stores.sql_troubles import as_user, database_of, is_postgres, user
from support.both_colours import both_colours, staged
from support.processes import Worker
from support.sql_process import SqlServer
from support.sql_servers import mariadb_server, postgres_server
from support.waiting import auntil, until

pytestmark = pytest.mark.in_turn(3)

PATIENCE = 10.0
SERVERS = {"PostgreSQL": postgres_server, "MariaDB": mariadb_server}


class Place(NamedTuple):
    server: SqlServer
    mode: str

    def url(self) -> str:
        return self.server.lock_space(mode=self.mode)


@pytest.fixture(params=["PostgreSQL advisory", "PostgreSQL row", "MariaDB row"])
def place(request: pytest.FixtureRequest) -> Place:
    engine, mode = request.param.split()
    return Place(SERVERS[engine](), mode)


@contextlib.contextmanager
def clients(url: str, count: int) -> Iterator[list[gripfast.Client]]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(gripfast.connect(url)) for _ in range(count)]
        watch_for_waiters(made[0])
        yield made


# A writer and readers -----------------------------------------------------------------------------------------------


class Stream:
    """Readers that come one after the other, so that there is always one."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.entered = 0
        self.reading = 0
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def among(self) -> Iterator[None]:
        with self._guard:
            self.entered += 1
            self.reading += 1
        try:
            yield
        finally:
            with self._guard:
                self.reading -= 1


def test_a_writer_waits_no_longer_than_the_readers_before_it_hold(place: Place) -> None:
    """A row that is locked FOR SHARE is given to each reader that comes: the writer waited for the whole stream."""
    stream, hold = Stream(), 0.2

    def read(client: gripfast.Client, begins_in: float) -> None:
        stream.is_over.wait(begins_in)
        while not stream.is_over.is_set():
            with client.rwlock("index").read().acquire(wait=PATIENCE), stream.among():
                stream.is_over.wait(hold)

    with clients(place.url(), 5) as (writing, *reading):
        threads = [threading.Thread(target=read, args=(each, n * hold / 4)) for n, each in enumerate(reading)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: stream.entered >= 8, within=PATIENCE)
            for _ in range(3):
                entered, begun = stream.entered, time.monotonic()
                with writing.rwlock("index").write().acquire(wait=PATIENCE):
                    assert stream.reading == 0
                    waited = time.monotonic() - begun
                    passed = stream.entered - entered
                assert passed <= 2 * len(reading), f"{passed} readers came in before the writer"
                assert waited < 2.0
        finally:
            stream.is_over.set()
            for thread in threads:
                thread.join()


@staged
async def test_a_task_that_writes_waits_no_longer_than_the_tasks_before_it_hold(place: Place) -> None:
    stream, url, hold, over = Stream(), place.url(), 0.2, asyncio.Event()

    async def pause(seconds: float) -> None:
        await asyncio.wait([asyncio.ensure_future(over.wait())], timeout=seconds)

    async def read(client: gripfast.AsyncClient, begins_in: float) -> None:
        await pause(begins_in)
        while not over.is_set():
            async with client.rwlock("index").read().acquire(wait=PATIENCE):
                with stream.among():
                    await pause(hold)

    async with contextlib.AsyncExitStack() as stack:
        writing, *reading = [await stack.enter_async_context(gripfast.connect_async(url)) for _ in range(5)]
        tasks = [asyncio.create_task(read(each, n * hold / 4)) for n, each in enumerate(reading)]
        await auntil(lambda: stream.entered >= 8, PATIENCE)
        begun, entered = time.monotonic(), stream.entered
        async with writing.rwlock("index").write().acquire(wait=PATIENCE):
            assert stream.reading == 0
            assert stream.entered - entered <= 2 * len(reading)
            assert time.monotonic() - begun < 2.0
        over.set()
        await asyncio.gather(*tasks)


def test_a_writer_whose_wait_begins_anew_is_not_passed_by_readers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the server's time-out is over, and the writer sends its statement again, it would be the last one."""
    monkeypatch.setattr(session, "WAIT_SLICE", 0.2)
    with clients(place.url(), 3) as (one, two, three):
        first = one.rwlock("index").read().acquire()
        order: list[str] = []

        def write() -> None:
            with two.rwlock("index").write().acquire(wait=PATIENCE):
                order.append("writer")

        def read() -> None:
            with three.rwlock("index").read().acquire(wait=PATIENCE):
                order.append("reader")

        writer, reader = threading.Thread(target=write), threading.Thread(target=read)
        writer.start()
        until(lambda: waiters_among([two], "index") == 1)
        ends = time.monotonic() + 0.5  # it has the turnstile by then
        until(lambda: time.monotonic() > ends)
        reader.start()
        ends = time.monotonic() + 3.0  # MariaDB's time-outs are whole seconds
        while time.monotonic() < ends:
            assert one.rwlock("index").read().try_acquire() is not None, "the same thread reads again"
            assert three.rwlock("index").read().try_acquire() is None, "nobody passes a writer that waits"
        assert order == []
        first.release()
        writer.join()
        reader.join()
        assert order == ["writer", "reader"]


def test_a_lock_and_a_read_write_lock_of_one_name_do_not_meet(place: Place) -> None:
    with clients(place.url(), 2) as (one, two):
        with one.lock("index") as lease, two.rwlock("index").write() as writer:
            assert [info.owner for info in one.list()] == [lease.owner]
            (info,) = one.list(kind="rwlock")
            assert [each.owner for each in info.holders] == [writer.owner]
            assert two.force_release("index")
            assert writer.held
            with contextlib.suppress(gripfast.LeaseLost):
                lease.release()
        assert one.lock("index").try_acquire() is not None


def test_tokens_grow_with_every_grant(place: Place) -> None:
    with clients(place.url(), 2) as (one, two):
        tokens = []
        for _ in range(5):
            with one.rwlock("index").read() as first, two.rwlock("index").read() as second:
                tokens += [first.token, second.token]
            with two.rwlock("index").write() as writer:
                tokens.append(writer.token)
                writer.downgrade()
                assert writer.token == tokens[-1]
                with one.rwlock("index").read() as reader:
                    tokens.append(reader.token)
        assert tokens == sorted(set(tokens))


def test_no_writer_comes_in_while_another_one_becomes_a_reader(place: Place) -> None:
    """Readers and writers that poll, wait and downgrade: whoever writes is alone."""
    url, ends = place.url(), time.monotonic() + 3.0
    guard, writing, reading, errors, downgraded = threading.Lock(), 0, 0, list[BaseException](), 0

    def enter(is_writer: bool, step: int) -> None:
        nonlocal writing, reading
        with guard:
            writing += step if is_writer else 0
            reading += 0 if is_writer else step
            assert writing <= (1 if reading == 0 else 0), (writing, reading)

    def work(client: gripfast.Client, number: int) -> None:
        nonlocal downgraded
        try:
            for turn in itertools.count(number):
                if time.monotonic() > ends:
                    return
                rwlock = client.rwlock("index")
                is_writer = turn % 3 == 0
                half = rwlock.write() if is_writer else rwlock.read()
                lease = half.try_acquire() if turn % 2 else half.acquire(wait=PATIENCE)
                if lease is None:
                    continue
                with lease:
                    enter(is_writer, 1)
                    if isinstance(lease, gripfast.WriteLease):
                        with guard:
                            changed, downgraded = downgraded, downgraded + 1
                        enter(True, -1)
                        if changed % 2:
                            lease.downgrade()
                            enter(False, 1)
                            enter(False, -1)
                    else:
                        enter(False, -1)
        except BaseException as error:
            errors.append(error)

    with clients(url, 4) as made:
        threads = [threading.Thread(target=work, args=(made[n % 4], n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors, errors
    assert downgraded > 5


# Deaths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["read", "write"])
def test_the_lock_of_a_killed_holder_is_free_at_once(place: Place, how: str) -> None:
    url = place.url()
    with clients(url, 1) as (client,), Worker("rwlock.py", url, how) as holder:
        holder.expect("begins")
        holder.expect("held")
        assert client.rwlock("index").write().try_acquire() is None
        holder.kill()
        with client.rwlock("index").write().acquire(wait=PATIENCE):
            info = client.inspect("index", kind="rwlock")
            assert info is not None
            assert [each.is_writer for each in info.holders] == [True]
        assert rows(place.server, url, "index", "gripfast_rw_holder") == 0, "nothing is left of the dead one"


def test_a_killed_writer_that_waited_keeps_no_reader_out(place: Place) -> None:
    """On PostgreSQL at once; MariaDB does not notice before the wait is over."""
    url = place.url()
    with clients(url, 2) as (one, two):
        lease = one.rwlock("index").read().acquire()
        with Worker("rwlock.py", url, "write") as waiting:
            waiting.expect("begins")
            until(lambda: two.rwlock("index").read().try_acquire() is None, within=PATIENCE)
            waiting.kill()
        if not is_postgres(place.server):
            lease.release()
        assert two.rwlock("index").read().acquire(wait=PATIENCE).held


def test_whoever_writes_is_alone_while_processes_are_killed(place: Place, tmp_path: Path, is_sampled: bool) -> None:
    url, journal, chance = place.url(), tmp_path / "journal", random.Random(5)
    numbers, ends, killed = itertools.count(), time.monotonic() + (3 if is_sampled else 20), 0
    with contextlib.ExitStack() as stack:

        def start() -> Worker:
            return stack.enter_context(Worker("rw_loop.py", next(numbers), url, journal))

        crew = [start() for _ in range(4)]
        while time.monotonic() < ends:
            position = chance.randrange(len(crew))
            crew[position].expect("ready")
            until(lambda: journal.exists() and chance.random() < 0.2)
            crew[position].kill()
            killed += 1
            crew[position] = start()
        for worker in crew:
            worker.kill()
    beliefs: dict[str, tuple[float, float, int, bool]] = {}
    for line in journal.read_text().splitlines():
        owner, is_writer, token, begins, last = line.split()
        beliefs[owner] = float(begins), float(last), int(token), is_writer == "1"
    for one, other in itertools.combinations(sorted(beliefs.values()), 2):
        assert (one[3] or other[3]) <= (one[1] < other[0]), "a writer was not alone"
        assert not (one[3] or other[3]) or one[2] < other[2], "tokens of writers are in order"
    assert killed
    assert len(beliefs) > 10
    with gripfast.connect(url) as client:
        client.rwlock("index").write().acquire(wait=PATIENCE).release()
        assert rows(place.server, url, "index", "gripfast_rw_holder") == 0


def test_a_reader_whose_session_was_ended_knows_it(place: Place) -> None:
    with clients(place.url(), 2) as (one, two):
        lease, other = one.rwlock("index").read().acquire(), two.rwlock("index").read().acquire()
        assert two.force_release("index", kind="rwlock", owner=lease.owner)
        until(lambda: not lease.held)
        assert other.held
        with pytest.raises(gripfast.LeaseLost):
            lease.release()
        assert one.force_release("index", kind="rwlock")
        assert not one.force_release("index", kind="rwlock")
        until(lambda: not other.held)


# What is left behind ------------------------------------------------------------------------------------------------


def test_a_connection_is_as_it_was_when_its_lock_is_released(place: Place) -> None:
    """However the lock was had: the next lock on the same connection has no turnstile, and no time-out of another."""
    leases: list[gripfast.Lease] = []
    with clients(place.url(), 2) as (one, two):
        for release in ("read", "write", "downgrade", "waited", "timed out"):
            rwlock = one.rwlock("index", ttl=5)
            if release == "waited":
                reader = two.rwlock("index").read().acquire()
                thread = threading.Thread(target=lambda: leases.append(one.rwlock("index").write().acquire(PATIENCE)))
                thread.start()
                until(lambda: waiters_among([one], "index") == 1)
                reader.release()
                thread.join()
                leases.pop().release()
            elif release == "timed out":
                with two.rwlock("index").read(), pytest.raises(gripfast.LockTimeout):
                    rwlock.write().acquire(wait=0.3)
            elif release == "read":
                rwlock.read().acquire().release()
            else:
                lease = rwlock.write().acquire()
                if release == "downgrade":
                    lease.downgrade()
                lease.release()
            assert left_on_idle_connections(place, one) == [], release
            assert two.rwlock("index").write().try_acquire() is not None, release


def left_on_idle_connections(place: Place, client: gripfast.Client) -> list[Any]:
    assert client._runtime is not None
    store: Any = client._runtime.env.store
    numbers = [each.conversation.session for each in store._link._own._idle]
    assert numbers
    if is_postgres(place.server):
        found = place.server.execute("SELECT pid FROM pg_locks WHERE locktype IN ('advisory', 'transactionid')")
        return [row for row in found if int(row[0]) in numbers]
    found = place.server.execute("SELECT trx_mysql_thread_id FROM information_schema.innodb_trx")
    return [row for row in found if int(row[0]) in numbers]


@pytest.mark.parametrize("how", ["read", "write"])
def test_idle_names_are_forgotten_and_held_ones_are_not(
    place: Place, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "TOKEN_MEMORY_US", 200_000)
    with place.server.fresh_database(mode=place.mode) as url, gripfast.connect(url) as client:
        database = database_of(url)

        def known() -> set[str]:
            asked = "SELECT name FROM gripfast_grant WHERE mode LIKE 'rw-%%'"
            found = place.server.execute(asked, database=database)
            return {name.decode() if isinstance(name, bytes) else name for (name,) in found}

        client.rwlock("old").read().acquire().release()
        held = client.rwlock("held")
        lease = (held.read() if how == "read" else held.write()).acquire()
        if place.mode == "row":
            client.rwlock("old").write().acquire().release()

        def is_swept() -> bool:
            assert client._runtime is not None
            store: Any = client._runtime.env.store
            store.rw().sweeps.due_at = 0.0
            client.rwlock("young").write().acquire().release()
            return "old" not in known()

        until(is_swept, within=PATIENCE)
        assert "held" in known()
        assert lease.held
        assert client.inspect("held", kind="rwlock") is not None
        lease.release()


RIGHTS = {
    ("PostgreSQL", "advisory"): {"gripfast_grant": "", "gripfast_rw_holder": ""},
    ("PostgreSQL", "row"): {"gripfast_grant": "", "gripfast_rw": "", "gripfast_rw_holder": ""},
    ("MariaDB", "row"): {"gripfast_grant": "", "gripfast_rw": "SELECT, INSERT, DELETE", "gripfast_rw_holder": ""},
}
"""Of one who reads and writes; all four if nothing is said."""


@staged
async def test_the_rights_that_are_documented_are_enough(place: Place) -> None:
    engine = "PostgreSQL" if is_postgres(place.server) else "MariaDB"
    with place.server.fresh_database(mode=place.mode) as url, user(place.server) as name:
        with gripfast.connect(url) as client, client.lock("made"):
            pass
        for table, rights in RIGHTS[engine, place.mode].items():
            where, whom = (table, name) if engine == "PostgreSQL" else (f"{database_of(url)}.{table}", f"{name}@'%'")
            granted = rights or "SELECT, INSERT, UPDATE, DELETE"
            place.server.execute(f"GRANT {granted} ON {where} TO {whom}", database=database_of(url))
        async with both_colours(as_user(url, name)) as actors:
            for actor in actors:
                lease = await actor.acquire(actor.client.rwlock("index").write(), 5.0)
                await actor.does(lambda lease=lease: lease.downgrade())
                await actor.extend(lease, 60)
                assert [info.name for info in await actor.listing(kind="rwlock")] == ["index"]
                await actor.release(lease)
                store: Any = actor.client._runtime.env.store
                store.rw().sweeps.due_at = 0.0
                lease = await actor.acquire(actor.client.rwlock("index").read(), 5.0)
                await actor.release(lease)


def test_mysql_advisory_refuses_both_with_the_way_out() -> None:
    with gripfast.connect(mariadb_server().lock_space(mode="advisory")) as client:
        with pytest.raises(gripfast.ConfigurationError, match=r"can't keep read/write locks: .*mode=row"):
            client.rwlock("index")
        with pytest.raises(gripfast.ConfigurationError, match=r"can't keep semaphores: .*mode=lease"):
            client.semaphore("api", 3)


def test_semaphores_are_refused_with_the_way_out(place: Place) -> None:
    with gripfast.connect(place.url()) as client:
        assert client.capabilities.rwlocks
        with pytest.raises(gripfast.ConfigurationError, match=r"can't keep semaphores: .*mode=lease"):
            client.semaphore("api", 3)
