"""The servers, the limits and the counting of the SQL benchmarks: a wrong ruler measures nothing."""

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import gripfast
from bench.sql import hand_off
from bench.sql.engines import LEASE, LIMITS, MARIA, MODES, POSTGRES, ROW, Engine
from bench.sql.limit import DATABASE, NAME, commit, scripts_for
from bench.sql.servers import maria_version, postgres_version
from bench.sql.waiter import SETTLED, Waits, in_a_thread, on_a_loop, waiter
from bench.sql.wire import COUNTED, Wire, counters, is_postgres, number, sessions, wire_to
from support.waiting import until

ENGINES = (POSTGRES, MARIA)


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: engine.name)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, str]]:
    """An engine, and the URL of a server where statements are counted."""
    with request.param.counting(tmp_path_factory.mktemp("server")) as url:
        yield request.param, url


@pytest.fixture
def engine(served: tuple[Engine, str]) -> Engine:
    return served[0]


@pytest.fixture
def url(served: tuple[Engine, str]) -> str:
    return served[1]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_the_server_is_gone_when_something_fails(engine: Engine, tmp_path: Path) -> None:
    urls = []
    with pytest.raises(LookupError), engine.server(tmp_path) as url:
        urls.append(urlsplit(url))
        with closing(wire_to(url)) as wire:
            assert wire.ask("SELECT 1") == [(b"1",)]
        raise LookupError
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((urls[0].hostname, urls[0].port)).close()


ON_DISK = {
    POSTGRES.name: ("SELECT current_setting('fsync'), current_setting('synchronous_commit')", (b"on", b"on")),
    MARIA.name: ("SELECT @@innodb_flush_log_at_trx_commit, @@innodb_flush_method <> 'nosync'", (b"1", b"1")),
}


def test_what_is_committed_is_on_disk(engine: Engine, url: str) -> None:
    question, durable = ON_DISK[engine.name]
    with closing(wire_to(url)) as wire:
        assert wire.ask(question) == [durable]


def lock_as_somebody_else(wire: Wire, url: str, mode: str) -> None:
    if mode == LEASE:
        wire.ask("UPDATE gripfast_lock SET owner = 'someone', expires_us = 4e18 WHERE name = 'bare'")
    elif mode == ROW:
        wire.ask("BEGIN; SELECT name FROM gripfast_row WHERE name = 'bare' FOR UPDATE")
    else:
        key = scripts_for(url).advisory_key(DATABASE, NAME)
        wire.ask(f"SELECT pg_advisory_lock({key})" if is_postgres(url) else f"SELECT GET_LOCK('{key}', 0)")


@pytest.mark.parametrize("mode", MODES)
def test_the_bare_lock_excludes_and_leaves_it_free(url: str, mode: str) -> None:
    with LIMITS[mode](url) as pair, closing(wire_to(url)) as other:
        pair()
        pair()
        lock_as_somebody_else(other, url, mode)
        with pytest.raises(Exception, match=r"not free|could not obtain lock|[Ll]ock wait timeout"):
            pair()
        if mode == LEASE:
            assert other.ask("SELECT owner FROM gripfast_lock WHERE name = 'bare'") == [(b"someone",)]
            other.ask("UPDATE gripfast_lock SET owner = NULL, expires_us = 0 WHERE name = 'bare'")


@pytest.mark.parametrize("mode", MODES)
def test_the_token_of_the_bare_lock_grows(url: str, mode: str) -> None:
    table = "gripfast_lock WHERE" if mode == LEASE else f"gripfast_grant WHERE mode = '{mode}' AND"

    def token() -> float:
        return number(wire.ask(f"SELECT token FROM {table} name = 'bare'"))

    with LIMITS[mode](url) as pair, closing(wire_to(url)) as wire:
        pair()
        before = token()
        pair()
        assert token() > before > 1e15


@pytest.mark.parametrize("mode", MODES)
def test_the_bare_lock_sends_what_gripfast_sends(url: str, mode: str) -> None:
    with (
        LIMITS[mode](url) as bare,
        gripfast.connect(f"{url}?mode={mode}") as client,
        counters(url) as counted,
    ):
        lock = client.lock("bench")

        def statements(pair: Callable[[], object]) -> float:
            """The least of two counts: idle names are swept once a minute, and it may be in one of them."""
            for _ in range(2):
                pair()
            counts = [counted()[COUNTED]]
            for _ in range(2):
                for _ in range(10):
                    pair()
                counts.append(counted()[COUNTED])
            return min(after - before for before, after in itertools.pairwise(counts))

        assert statements(bare) == statements(lambda: lock.acquire().release())


def test_a_commit_is_one_statement_and_the_counting_is_none(url: str) -> None:
    with commit(url) as update, counters(url) as counted:
        update()
        before = counted()[COUNTED]
        for _ in range(10):
            update()
        assert counted()[COUNTED] - before == 10


def test_sessions_are_known_by_their_numbers(url: str) -> None:
    def others(wire: Wire) -> Callable[[], int]:
        before = sessions(wire)
        return lambda: len(sessions(wire) - before)

    with closing(wire_to(url)) as wire:
        come = others(wire)
        assert come() == 0
        with closing(wire_to(url)), closing(wire_to(url)):
            assert come() == 2
        until(lambda: come() == 0)


@pytest.mark.parametrize("waits", [in_a_thread, on_a_loop])
def test_who_waits_tells_when_it_was_let_in(waits: Waits, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/locks.db"
    with waiter(waits, store, "bench") as other, gripfast.connect(store) as client:
        for _ in range(2):
            lease = client.lock("bench").acquire()
            other.ask()
            released = time.monotonic()
            lease.release()
            assert other.entered() >= released > SETTLED


def test_who_can_not_wait_says_why() -> None:
    with pytest.raises(RuntimeError, match="ConfigurationError"), waiter(in_a_thread, "nonsense://", "bench"):
        pass


def test_hand_offs_are_told_by_the_middle_one_and_the_worst() -> None:
    assert hand_off.figures([0.001, 0.009, 0.002]) == {"p50 ms": 2, "worst ms": 9}


def test_versions_are_those_of_the_servers(engine: Engine, url: str) -> None:
    told = {POSTGRES.name: postgres_version, MARIA.name: maria_version}[engine.name]()
    with closing(wire_to(url)) as wire:
        ((version,),) = wire.ask("SELECT version()")
    assert told
    assert told in str(version)
