"""One connection to a real PostgreSQL: requests, answers, and every way in which it can end."""

import contextlib
import gc
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import pytest

from gripfast.stores.postgres import scripts
from gripfast.stores.postgres.wire import PostgresWire
from gripfast.stores.sql.ports import Refusal, Rows
from gripfast.stores.sql.statement import Query, Statement, Value
from stores.postgres_requests import (
    CARD,
    TTL,
    answer_of,
    answered,
    ask,
    claimed,
    dialect_of,
    drop_tables,
    has_answered,
    make_tables,
    new_name,
    prepared,
    refused,
    sql,
    told,
    wire_through,
    wire_to,
)
from support.proxy import HOST, Proxy
from support.sql_servers import postgres_server
from support.waiting import until

LENGTH = Statement("SELECT length(:text)")
BIG = 30_000_000


@pytest.fixture
def wire() -> Iterator[PostgresWire]:
    with wire_to() as wire:
        yield wire


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy((HOST, postgres_server().port)) as proxy:
        yield proxy


def has_session(number: int) -> bool:
    return bool(postgres_server().execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", number))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


# Requests -------------------------------------------------------------------------------------------------------------


def test_a_request_of_several_statements_is_one_packet_and_one_transaction(proxy: Proxy) -> None:
    with wire_through(proxy) as wire:
        queries = [
            *sql("CREATE TEMPORARY TABLE t (n int)"),
            *sql("INSERT INTO t VALUES (1), (2)"),
            *sql("SELECT n FROM t"),
        ]
        proxy.hold("requests")
        wire.send(queries)
        assert wire.flush()
        until(lambda: proxy.held("requests"))
        proxy.let_go()
        assert answer_of(wire) == [Rows([], 0), Rows([], 2), Rows([(b"1",), (b"2",)], 2)]
        assert refused(wire, [*sql("INSERT INTO t VALUES (3)"), *sql("SELECT 1/0"), *sql("SELECT 2")]).code == "22012"
        assert told(wire, sql("SELECT count(*) FROM t")) == [(b"2",)]


def test_a_transaction_that_was_begun_lasts_beyond_its_request(wire: PostgresWire) -> None:
    answered(wire, [*sql("BEGIN"), *sql("CREATE TEMPORARY TABLE t (n int)")])
    answered(wire, sql("INSERT INTO t VALUES (1)"))
    answered(wire, sql("ROLLBACK"))
    assert refused(wire, sql("SELECT * FROM t")).kind == "no_table"


def test_an_error_in_the_middle_ends_the_request_and_the_next_one_is_answered(wire: PostgresWire) -> None:
    for _ in range(3):
        answer = refused(wire, [Query(LENGTH, {"text": "abc"}), *sql("SELECT 1/0"), *scripts.look("x")])
        assert (answer.kind, answer.code, answer.message) == ("other", "22012", "division by zero")
        assert told(wire, [Query(LENGTH, {"text": "abc"})]) == [(b"3",)]


def test_an_error_when_the_transaction_is_committed_is_told(wire: PostgresWire) -> None:
    key = "CREATE TEMPORARY TABLE t (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)"
    answered(wire, sql(key))
    insert = Query(Statement("INSERT INTO t VALUES (:n::int), (:n::int)"), {"n": 1})
    for queries in ([insert], [insert, *sql("SELECT 1")], sql("INSERT INTO t VALUES (1), (1)")):
        assert refused(wire, queries).code == "23505"
        assert told(wire, sql("SELECT count(*) FROM t")) == [(b"0",)]


def test_values_come_back_as_they_were_sent(wire: PostgresWire) -> None:
    statement = Statement("SELECT :text::text, :number::bigint, :real::float8, :none::text, :bytes::text")
    values: dict[str, Value] = {"text": "ä'\"\\:x $1 🔒", "number": -(2**63), "real": 0.1}
    values |= {"none": None, "bytes": b"raw"}
    expected = [("ä'\"\\:x $1 🔒".encode(), b"-9223372036854775808", b"0.1", None, b"raw")]
    for _ in range(2):
        assert told(wire, [Query(statement, values)]) == expected


def test_a_statement_is_prepared_once_if_it_has_places(wire: PostgresWire) -> None:
    for _ in range(3):
        told(wire, [Query(LENGTH, {"text": "abc"})])
        told(wire, [Query(LENGTH, {"text": "ab"}), Query(LENGTH, {"text": "a"}), *sql("SELECT 1")])
        assert prepared(wire) == 1


def test_a_statement_that_could_not_be_prepared_is_prepared_later() -> None:
    with postgres_server().fresh_database() as url, wire_to(url) as wire:
        drop_tables(wire)
        before = prepared(wire)
        claim = scripts.claim("job", "a", TTL, CARD)
        assert refused(wire, claim).kind == "no_table"
        assert refused(wire, [*sql("SELECT 1/0"), *claim]).code == "22012"
        make_tables(wire)
        assert refused(wire, [*sql("SELECT 1/0"), *claim]).code == "22012"
        assert prepared(wire) == before
        assert claimed(wire, "job", "a").owner == "a"
        assert prepared(wire) == before + 1


def test_where_prepared_statements_vanish_none_is_prepared_any_more(wire: PostgresWire) -> None:
    told(wire, [Query(LENGTH, {"text": "abc"})])
    answered(wire, sql("DEALLOCATE ALL"))
    assert refused(wire, [Query(LENGTH, {"text": "abc"})]).kind == "retry"
    assert told(wire, [Query(LENGTH, {"text": "abc"})]) == [(b"3",)]
    assert prepared(wire) == 0


def test_tables_that_were_made_anew_do_not_disturb_prepared_statements() -> None:
    with postgres_server().fresh_database() as url, wire_to(url) as wire:
        for _ in range(3):
            make_tables(wire)
            assert claimed(wire, "job", "a").owner == "a"
            answered(wire, sql("DROP TABLE gripfast_lock"))
            assert refused(wire, scripts.claim("job", "a", TTL, CARD)).kind == "no_table"


def test_a_request_that_does_not_fit_is_written_bit_by_bit(proxy: Proxy) -> None:
    with wire_through(proxy) as wire:
        proxy.hold("requests")
        wire.send([Query(LENGTH, {"text": "x" * BIG}), Query(LENGTH, {"text": "y"})])
        assert not wire.flush()
        assert wire.receive() is None
        proxy.let_go()
        answer = answer_of(wire)
        assert isinstance(answer, list)
        assert [rows.rows for rows in answer] == [[(str(BIG).encode(),)], [(b"1",)]]
        assert wire.flush()


def test_a_request_that_was_broken_off_is_the_end_of_its_connection(wire: PostgresWire) -> None:
    """A part of it may have left, and its answer would be taken for that of the next."""
    with pytest.raises(UnicodeEncodeError):
        wire.send([*sql("SELECT 1"), Query(LENGTH, {"text": "\ud800"})])
    assert_ended(wire, "interrupted")


def test_a_request_before_the_last_one_was_answered_is_the_end_of_the_connection(wire: PostgresWire) -> None:
    wire.send(sql("SELECT 1"))
    with pytest.raises(ConnectionResetError, match="another command"):
        wire.send(sql("SELECT 2"))
    assert_ended(wire, "another command")


def test_a_large_answer_is_taken_in_bit_by_bit(wire: PostgresWire) -> None:
    text = f"SELECT repeat('x', {BIG}) UNION ALL SELECT 'y'"
    rows = told(wire, sql(text))
    assert [len(row[0] or b"") for row in rows] == [BIG, 1]
    many = answered(wire, sql("SELECT n, n + 1 FROM generate_series(1, 50000) AS n"))
    assert many.affected == 50000
    assert many.rows[-1] == (b"50000", b"50001")


def test_an_answer_is_not_told_before_it_is_complete(proxy: Proxy) -> None:
    with wire_through(proxy) as wire:
        proxy.hold("replies")
        wire.send(sql("SELECT 1"))
        until(lambda: proxy.held("replies"))
        assert wire.receive() is None
        proxy.let_go()
        assert answer_of(wire) == [Rows([(b"1",)], 1)]
        assert wire.receive() is None


def test_notices_are_logged_and_not_printed(
    wire: PostgresWire, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="gripfast.connection"):
        answered(wire, sql("DROP TABLE IF EXISTS not_there"))
    assert "not_there" in caplog.text
    assert capfd.readouterr() == ("", "")


# Pushes ---------------------------------------------------------------------------------------------------------------


def test_notifications_are_heard_in_order_also_beside_an_answer(wire: PostgresWire) -> None:
    with wire_to() as other:
        channels = [f"gripfast_{new_name('')[:32]}" for _ in range(3)]
        for channel in channels:
            answered(wire, scripts.listen(channel))
        assert wire.pushes() == []
        for channel in channels:
            told(other, sql(f"SELECT pg_notify('{channel}', '')"))
        told(wire, sql("SELECT 1"))
        assert wire.pushes() == channels
        assert wire.pushes() == []


def test_a_notification_makes_the_descriptor_readable(wire: PostgresWire) -> None:
    channel = f"gripfast_{new_name('')[:32]}"
    answered(wire, scripts.listen(channel))
    with wire_to() as other:
        told(other, sql(f"SELECT pg_notify('{channel}', '')"))
    readable, _, _ = select.select([wire.fileno()], [], [], 10)
    assert readable
    assert wire.receive() is None
    assert wire.pushes() == [channel]


# Ends -----------------------------------------------------------------------------------------------------------------


def test_a_session_that_is_terminated_while_it_is_asked_says_so_once(wire: PostgresWire) -> None:
    wire.send(sql("SELECT pg_sleep(60)"))
    until(lambda: has_session(wire.session))
    postgres_server().kill_session(wire.session)
    answer = answer_of(wire)
    assert isinstance(answer, Refusal)
    assert (answer.kind, answer.code) == ("gone", "57P01")
    assert_ended(wire, "administrator")


def test_a_pipeline_of_a_session_that_is_terminated_is_answered_the_same(wire: PostgresWire) -> None:
    wire.send([Query(LENGTH, {"text": "x"}), *sql("SELECT pg_sleep(60)"), *sql("SELECT 1")])
    until(lambda: has_session(wire.session))
    postgres_server().kill_session(wire.session)
    answer = answer_of(wire)
    assert isinstance(answer, Refusal)
    assert answer.kind == "gone"
    assert_ended(wire, "administrator")


def test_an_idle_session_that_is_terminated_ends_with_the_servers_last_words(wire: PostgresWire) -> None:
    postgres_server().kill_session(wire.session)
    with pytest.raises(ConnectionResetError, match="administrator"):
        while has_answered(wire, time.monotonic() + 10) is None:
            pass
    assert_ended(wire, "administrator")


def test_a_request_on_a_session_that_has_been_terminated_is_not_answered(wire: PostgresWire) -> None:
    postgres_server().kill_session(wire.session)
    until(lambda: not has_session(wire.session))
    try:
        answer = ask(wire, sql("SELECT 1"))
    except OSError:
        pass
    else:
        assert isinstance(answer, Refusal)
        assert answer.kind == "gone"
    assert_ended(wire, "administrator")


@pytest.mark.parametrize(
    "queries", [sql("SELECT 1"), [Query(LENGTH, {"text": "x"}), *sql("SELECT 1")]], ids=["one", "several"]
)
def test_a_connection_that_is_cut_before_the_answer_is_an_error(proxy: Proxy, queries: list[Query]) -> None:
    with wire_through(proxy) as wire:
        proxy.hold("replies")
        wire.send(queries)
        until(lambda: proxy.held("replies"))
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            answer_of(wire)
        assert_ended(wire, "server closed|connection")


@pytest.mark.parametrize("size", [1, 20, 60])
def test_a_connection_that_is_cut_in_the_middle_of_the_answer_is_an_error(proxy: Proxy, size: int) -> None:
    with wire_through(proxy) as wire:
        proxy.cut_after(size)
        with pytest.raises(ConnectionResetError):
            ask(wire, [*sql("SELECT 1"), *sql("SELECT repeat('x', 100)")])
        assert_ended(wire, "server closed|connection")


def assert_ended(wire: PostgresWire, words: str) -> None:
    for use in (wire.receive, wire.flush, lambda: wire.send(sql("SELECT 1"))):
        with pytest.raises(ConnectionResetError, match=words):
            use()
    assert wire.pushes() == []
    assert os.fstat(wire.fileno())  # whoever polls it must not find another's file there


def test_a_cut_from_another_thread_ends_a_wait_and_the_session(proxy: Proxy) -> None:
    for connect in (wire_to(is_shared=False), wire_through(proxy, is_shared=False)):
        with connect as wire:
            wire.send(sql("SELECT pg_sleep(60)"))
            wire.flush()
            thread = threading.Thread(target=wire.cut)
            thread.start()
            with pytest.raises(ConnectionResetError):
                answer_of(wire)
            thread.join()
            session = wire.session
            until(lambda session=session: not has_session(session))
            wire.cut()
        wire.cut()


def test_a_cut_in_the_middle_of_a_close_touches_nobody_elses_file() -> None:
    """Another file may have the number of the descriptor by then."""
    for _ in range(20):
        with wire_to() as wire:
            stop = threading.Event()

            def cut_on_and_on(wire: PostgresWire = wire, stop: threading.Event = stop) -> None:
                while not stop.is_set():
                    wire.cut()

            thread = threading.Thread(target=cut_on_and_on)
            thread.start()
            wire.close()
            pairs = [socket.socketpair() for _ in range(4)]
            stop.set()
            thread.join()
            for left, right in pairs:
                left.send(b"!")
                assert right.recv(1) == b"!"
                left.close()
                right.close()


def test_a_closed_wire_is_closed_for_good(wire: PostgresWire) -> None:
    before = open_files()
    wire.close()
    wire.close()
    assert open_files() == before - 2
    until(lambda: not has_session(wire.session))
    for use in (wire.receive, wire.flush, lambda: wire.send(sql("SELECT 1"))):
        with pytest.raises(ConnectionResetError, match="closed"):
            use()
    assert wire.pushes() == []
    assert wire.fileno() == -1


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_a_wire_that_is_dropped_ends_its_session_without_a_warning(is_busy: bool) -> None:
    before = open_files()
    wire = dialect_of(postgres_server().url).dial(10, is_shared=False)
    session = wire.session
    if is_busy:
        wire.send(sql("SELECT pg_sleep(60)"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del wire
        gc.collect()
    assert open_files() == before
    until(lambda: not has_session(session))


def test_wires_that_are_open_when_the_interpreter_ends_say_nothing() -> None:
    text = (
        "import sys; from urllib.parse import urlsplit; from gripfast.stores.postgres.factory import dialect\n"
        "kept = dialect(urlsplit(sys.argv[1]), {}).dial(10, is_shared=True)\n"
        "kept.cycle = kept"
    )
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", text, postgres_server().url], capture_output=True
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


def test_a_forked_child_lets_go_of_its_parents_connections_without_a_word(wire: PostgresWire) -> None:
    idle = dialect_of(postgres_server().url).dial(10, is_shared=False)
    wire.send(sql("SELECT pg_sleep(0.2), 7"))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told_by_child = b""
        try:
            for each in (wire, idle):
                with contextlib.suppress(ConnectionResetError):
                    each.send(sql("SELECT 1"))
                    told_by_child += b"sent "
                each.cut()
                each.close()
            del each, idle, wire
            gc.collect()
            told_by_child += b"done"
        finally:
            os.write(writer, told_by_child)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"done"
    os.close(reader)
    os.close(writer)
    answer = answer_of(wire)
    assert isinstance(answer, list)
    assert answer[0].rows[0][1] == b"7"
    assert told(idle, sql("SELECT 1")) == [(b"1",)]
    idle.close()


def test_a_session_ends_with_its_parent_although_a_child_lives_on() -> None:
    """The child must not keep the descriptor open."""
    wire = dialect_of(postgres_server().url).dial(10, is_shared=False)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    session = wire.session
    wire.cut()
    wire.close()
    until(lambda: not has_session(session))
    os.close(writer)
    os.close(reader)
    os.waitpid(child, 0)
