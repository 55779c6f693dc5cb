"""One connection to a real server: what becomes of it when it is killed, cut, forked or dropped, or carries much."""

import gc
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterator

import pymysql
import pytest

from gripfast.stores.mysql import scripts
from gripfast.stores.mysql.wire import MysqlWire
from gripfast.stores.sql.descriptors import is_ready
from gripfast.stores.sql.ports import LinkDown, Refusal, Wire
from gripfast.stores.sql.statement import Query, Statement
from stores.mysql_stage import CARD, MINUTE, SECOND, Row, Stage, answer, ask, dialect, last, staged
from support.proxy import Proxy
from support.sql_process import HOST
from support.sql_servers import MariaServer, mariadb_server
from support.waiting import until

HERE = [Query(Statement("SELECT CONNECTION_ID()"))]


@pytest.fixture(scope="module")
def tls_server() -> Iterator[MariaServer]:
    with MariaServer(tls=True) as server:
        yield server


@pytest.fixture(params=["plain", "TLS"])
def server(request: pytest.FixtureRequest) -> MariaServer:
    made: MariaServer = request.getfixturevalue("tls_server") if request.param == "TLS" else mariadb_server()
    return made


@pytest.fixture
def stage(server: MariaServer) -> Iterator[Stage]:
    with staged(server) as stage:
        yield stage


def is_there(stage: Stage, session: int) -> bool:
    return bool(stage.sql("SELECT 1 FROM information_schema.processlist WHERE id = :id", id=session))


def used(stage: Stage) -> list[Row]:
    """By which session the user-level lock named like the database is."""
    return stage.sql("SELECT IS_USED_LOCK(:key)", key=stage.dialect.database)


def test_it_is_what_stores_ask_for(stage: Stage) -> None:
    wire: Wire = stage.dial()
    assert last(ask(stage.shared, HERE)).rows == [(str(stage.shared.session).encode(),)]
    assert wire.session != stage.shared.session
    assert wire.pushes() == []


def test_several_statements_are_one_request(stage: Stage) -> None:
    told = ask(stage.shared, [*HERE, Query(Statement("DO 1")), Query(Statement("SELECT :a, NULL"), {"a": "ö\0'"})])
    assert isinstance(told, list)
    assert [len(each.rows) for each in told] == [1, 0, 1]
    assert told[2].rows == [("ö\0'".encode(), None)]


def test_the_first_statement_that_is_refused_ends_the_request_and_not_the_connection(stage: Stage) -> None:
    queries = [
        *HERE,
        Query(Statement("SELECT * FROM nowhere")),
        Query(scripts.SCHEMA[0]),
        *scripts.claim("job", "a", 1, CARD),
    ]
    told = ask(stage.shared, queries)
    assert isinstance(told, Refusal)
    assert (told.kind, told.code) == ("no_table", "1146")
    assert stage.sql("SELECT 1 FROM gripfast_lock WHERE name = 'job'") == []
    assert ask(stage.shared, HERE)


@pytest.mark.parametrize("size", [0, 1, 250, 251, 70_000, 5_000_000])
def test_answers_of_any_size_arrive_whole(stage: Stage, size: int) -> None:
    large = [Query(Statement("SELECT REPEAT('x', :size), 1"), {"size": size})]
    assert last(ask(stage.shared, large)).rows == [(b"x" * size, b"1")]


def test_many_rows_arrive_in_order(stage: Stage) -> None:
    numbers = ask(stage.shared, [Query(Statement("SELECT seq, seq FROM seq_1_to_50000"))])
    assert last(numbers).rows == [(b"%d" % each,) * 2 for each in range(1, 50001)]


def test_a_request_too_large_for_the_buffers_of_the_system_arrives_whole(stage: Stage) -> None:
    """Usually in pieces: a server that reads as fast as it is sent may take it all at once."""
    much = b"x" * 6_000_000
    wire = stage.shared
    wire.send([Query(Statement("SELECT LENGTH(:much)"), {"much": much})])
    wire.flush()
    assert last(answer(wire)).rows == [(b"6000000",)]


def test_an_answer_of_more_than_16_mb_breaks_the_connection(stage: Stage) -> None:
    pairs = "SELECT REPEAT('x', 15000000), REPEAT('x', 15000000)"
    with pytest.raises(ConnectionError, match="16 MB"):
        ask(stage.shared, [Query(Statement(pairs))], within=30)


def test_nothing_is_sent_while_a_request_is_under_way(stage: Stage) -> None:
    stage.shared.send(HERE)
    with pytest.raises(ConnectionError, match="has no complete answer"):
        stage.shared.send(HERE)
    assert answer(stage.shared)
    assert stage.shared.receive() is None


def test_one_that_ended_in_the_middle_of_a_request_takes_no_other(stage: Stage) -> None:
    wire = stage.dial()
    wire.send([Query(Statement("SELECT SLEEP(0.1)"))])
    wire.cut()
    with pytest.raises(ConnectionError):
        answer(wire)
    with pytest.raises(ConnectionError):
        wire.send(HERE)


def test_one_that_ends_while_nothing_is_under_way_says_so(stage: Stage) -> None:
    wire = stage.dial()
    stage.rows(scripts.end_session(wire.session, wire.birth))
    assert is_ready(wire.fileno(), 5.0)
    with pytest.raises(ConnectionError):
        wire.receive()


def test_a_killed_session_is_a_broken_connection(stage: Stage) -> None:
    wire = stage.dial()
    stage.rows(scripts.end_session(wire.session, wire.birth))
    until(lambda: not is_there(stage, wire.session))
    with pytest.raises(ConnectionError):
        ask(wire, HERE)


def test_a_session_that_is_killed_while_it_works_says_so_or_is_closed(stage: Stage) -> None:
    wire = stage.dial()
    wire.send([Query(Statement("SELECT SLEEP(100)"))])
    until(lambda: stage.sql("SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'"))
    stage.rows(scripts.end_session(wire.session, wire.birth))
    try:
        told = answer(wire)
    except ConnectionError:
        return
    assert isinstance(told, Refusal)
    assert told.kind == "gone"


def test_a_cut_from_another_thread_ends_the_wait_for_an_answer_and_the_session(stage: Stage) -> None:
    wire = stage.dial()
    stage.rows(scripts.advisory_try(stage.dialect.database, MINUTE), wire)
    wire.send([Query(Statement("SELECT SLEEP(0.2)"))])
    threading.Thread(target=wire.cut).start()
    with pytest.raises(ConnectionError):
        answer(wire)
    until(lambda: used(stage) == [(None,)])
    wire.cut()
    wire.close()
    wire.cut()


def test_a_cut_of_an_idle_connection_ends_its_session(stage: Stage) -> None:
    wire = stage.dial()
    wire.cut()
    until(lambda: not is_there(stage, wire.session))
    with pytest.raises(OSError, match=r".*"):
        ask(wire, HERE)


def test_a_close_says_goodbye_and_may_be_repeated(server: MariaServer, stage: Stage) -> None:
    counted = "SHOW GLOBAL STATUS LIKE 'Aborted_clients'"
    wire = stage.dial()
    before = server.execute(counted)
    wire.close()
    wire.close()
    until(lambda: not is_there(stage, wire.session))
    if server is not mariadb_server():  # others abort theirs there
        assert server.execute(counted) == before
    assert wire.fileno() == -1


def test_what_has_not_left_when_it_is_closed_never_will() -> None:
    """A claim that was given up, and is still on its way, must not arrive minutes later."""
    with socket.create_server((HOST, 0)) as listener:
        wire = MysqlWire(socket.create_connection(listener.getsockname()))
        peer, _ = listener.accept()
    with peer:
        wire.send([Query(Statement("SELECT :much"), {"much": b"x" * 7_000_000})])
        assert not wire.flush(), "it was to be too large for the buffers of the system"
        wire.close()
        with pytest.raises(ConnectionResetError):
            while peer.recv(65536):
                pass


def test_a_dropped_wire_ends_its_session_without_a_warning(stage: Stage) -> None:
    wire = stage.dialect.dial(10.0, is_shared=False)
    session = wire.session
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del wire
        gc.collect()
    until(lambda: not is_there(stage, session))


def test_a_wire_in_a_circle_of_references_is_dropped_without_a_warning(stage: Stage) -> None:
    wire = stage.dialect.dial(10.0, is_shared=False)
    wire.itself = wire  # type: ignore[attr-defined]
    session = wire.session
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del wire
        gc.collect()
    until(lambda: not is_there(stage, session))


def test_the_connection_that_pymysql_made_has_no_part_in_it_any_more(stage: Stage) -> None:
    made: list[pymysql.Connection[pymysql.cursors.Cursor]] = []
    connect = stage.dialect._connect
    stage.dialect._connect = lambda timeout: made.append(connect(timeout)) or made[-1]
    wire = stage.dial()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.clear()
        gc.collect()
    assert ask(wire, HERE)


@pytest.mark.parametrize("ends_by", ["exit", "close", "collection"])
def test_a_forked_child_leaves_the_connections_of_its_parent_alone(stage: Stage, ends_by: str) -> None:
    wire = stage.dial()
    stage.rows(scripts.advisory_try(stage.dialect.database, MINUTE), wire)
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        try:
            assert wire.fileno() == -1
            if ends_by == "close":
                wire.close()
                wire.cut()
            elif ends_by == "collection":
                del wire
                gc.collect()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert ask(wire, HERE)
    assert used(stage) == [(str(wire.session).encode(),)]


def test_a_shared_wire_gives_up_at_the_server_what_takes_too_long(stage: Stage) -> None:
    """A claim that was given up for lost does not arrive later."""
    stage.rows(scripts.claim("job", "a", MINUTE, CARD))
    locked = [Query(Statement("START TRANSACTION")), Query(Statement("SELECT 1 FROM gripfast_lock FOR UPDATE"))]
    stage.rows(locked)
    impatient = stage.dial(is_shared=True, timeout=0.3)
    started = time.monotonic()
    assert stage.refusal(scripts.claim("job", "b", MINUTE, CARD), impatient).kind == "busy"
    assert time.monotonic() - started < 3.0
    stage.sql("ROLLBACK")
    assert stage.row(scripts.look("job"))[0] == b"a"
    assert stage.refusal([Query(Statement("SELECT SLEEP(50)"))], impatient).kind == "busy"


def test_others_may_wait_as_long_as_they_like(stage: Stage) -> None:
    assert last(ask(stage.dial(timeout=0.5), [Query(Statement("SELECT SLEEP(1.1)"))])).rows == [(b"0",)]


def test_a_server_that_says_nothing_is_told_in_time() -> None:
    with Proxy((HOST, mariadb_server().port)) as proxy:
        proxy.hold("replies")
        started = time.monotonic()
        with pytest.raises(LinkDown, match=r"mysql://127\.0\.0\.1:\d+/gripfast can't be reached: .*not made in time"):
            dialect(f"mysql://user@127.0.0.1:{proxy.port}/gripfast").dial(0.3, True)
        assert time.monotonic() - started < 3.0


def test_a_connection_that_ends_while_it_is_made_is_told(stage: Stage) -> None:
    for allowed in (1, 60, 120, 400):
        with Proxy((HOST, mariadb_server().port)) as proxy:
            url = mariadb_server().url.replace(f":{mariadb_server().port}/", f":{proxy.port}/")
            proxy.cut_after(allowed)
            with pytest.raises(LinkDown, match="can't be reached") as told:
                dialect(url).dial(5.0, True)
            assert told.value.fault.kind == "down"


def test_a_descriptor_that_can_be_read_while_nothing_is_under_way_has_ended(stage: Stage) -> None:
    """What stores go by before they use one again: TLS leaves nothing unread behind."""
    wire = stage.dial()
    assert not is_ready(wire.fileno(), 0.05)
    stage.rows(scripts.ping("advisory", SECOND), wire)
    assert is_ready(wire.fileno(), 5.0), "the server was to end it"
