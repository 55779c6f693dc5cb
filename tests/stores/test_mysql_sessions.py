"""Locks that live in sessions of MariaDB and MySQL: their SQL texts against a real server, in each state of a lock."""

import contextlib
import time
from collections.abc import Iterator

import pytest

from gripfast.stores.mysql import scripts
from gripfast.stores.mysql.wire import MysqlWire
from gripfast.stores.sql.statement import Query, Statement, Value
from stores.mysql_stage import CARD, MINUTE, SECOND, SHORT, Row, Stage, answer, ask, dialect, last, number, staged
from support.sql_servers import mariadb_server
from support.waiting import until


@pytest.fixture(scope="module")
def database() -> Iterator[Stage]:
    with staged(mariadb_server()) as stage:
        yield stage


@pytest.fixture
def stage(database: Stage) -> Stage:
    """With nothing in the tables."""
    database.empty()
    return database


@pytest.fixture
def wires(stage: Stage) -> Iterator[tuple[MysqlWire, MysqlWire]]:
    """Two that can hold locks in their sessions."""
    with contextlib.ExitStack() as ends:
        made = [stage.dialect.dial(10.0, is_shared=False) for _ in range(2)]
        for wire in made:
            ends.callback(wire.close)
        yield made[0], made[1]


def test_a_row_that_is_not_there_can_not_be_locked(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    mine, _ = wires
    assert stage.rows(scripts.row_try("job", MINUTE), mine) == []
    assert stage.rows(scripts.row_wait("job", MINUTE, SECOND), mine) == []


def test_one_session_has_the_row_locked(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    mine, other = wires
    stage.rows(scripts.row_make("job"))
    assert stage.row(scripts.row_try("job", MINUTE), mine)[0]
    assert stage.refusal(scripts.row_try("job", MINUTE), other).kind == "busy"
    stage.rows(scripts.row_free(), mine)
    assert stage.row(scripts.row_try("job", MINUTE), other)[0]


def test_making_a_row_waits_for_nobody_who_has_it(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    stage.rows(scripts.row_make("job"))
    stage.rows(scripts.row_try("job", MINUTE), wires[0])
    started = time.monotonic()
    stage.rows(scripts.row_make("job"))
    assert time.monotonic() - started < 5.0


def test_who_waits_for_a_row_gets_it_when_it_is_freed(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    mine, other = wires
    stage.rows(scripts.row_make("job"))
    mark = stage.row(scripts.row_try("job", MINUTE), mine)
    other.send(scripts.row_wait("job", MINUTE, MINUTE))
    until(lambda: is_waiting(stage, other))
    stage.rows(scripts.row_free(), mine)
    assert last(answer(other)).rows == [mark]


def is_waiting(stage: Stage, wire: MysqlWire) -> bool:
    under_way = "SELECT 1 FROM information_schema.processlist WHERE id = :id AND info LIKE 'SELECT%'"
    return bool(stage.sql(under_way, id=wire.session))


def test_a_wait_for_a_row_ends(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    mine, other = wires
    stage.rows(scripts.row_make("job"))
    stage.rows(scripts.row_try("job", MINUTE), mine)
    assert stage.refusal(scripts.row_wait("job", MINUTE, SHORT), other).kind == "busy"


def lasting(stage: Stage, wire: MysqlWire) -> bytes | None:
    return stage.sql("SELECT @@wait_timeout", wire)[0][0]


def test_a_session_that_freed_its_row_holds_nothing_any_more(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    mine, other = wires
    stage.rows(scripts.row_make("job"))
    stage.rows(scripts.row_wait("job", MINUTE, 7 * SECOND), mine)
    assert stage.sql("SELECT @@in_transaction", mine) == [(b"1",)]
    stage.rows(scripts.row_free(), mine)
    assert stage.sql("SELECT @@in_transaction, @@autocommit", mine) == [(b"0", b"1")]
    assert stage.row(scripts.row_try("job", MINUTE), other)[0]


def test_each_lease_sets_how_long_its_session_lasts(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    """Settings that are in force are not sent again; what was refused may not have been set."""
    mine, other = wires
    stage.rows(scripts.row_make("job"))
    for ttl in (MINUTE, MINUTE, 2 * MINUTE, MINUTE):
        assert stage.rows(scripts.row_try("job", ttl), mine)
        assert lasting(stage, mine) == str(ttl // SECOND).encode()
        stage.rows(scripts.row_free(), mine)
    stage.rows(scripts.row_try("job", MINUTE), other)
    stage.refusal(scripts.row_try("job", 3 * MINUTE), mine)
    assert lasting(stage, mine) == b"180"
    stage.sql("SET SESSION wait_timeout = 77", mine)
    stage.refusal([Query(Statement("SELECT 1 FROM nowhere"))], mine)
    stage.refusal(scripts.row_try("job", 3 * MINUTE), mine)
    assert lasting(stage, mine) == b"180"


def test_what_is_in_force_is_not_sent_again(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    counted = "SHOW SESSION STATUS LIKE 'Com_set_option'"
    stage.rows(scripts.ping("row", MINUTE), wires[0])
    before = stage.sql(counted, wires[0])
    for _ in range(3):
        assert stage.rows(scripts.ping("row", MINUTE), wires[0]) == [(b"1",)]
    assert stage.sql(counted, wires[0]) == before
    stage.rows(scripts.ping("row", 2 * MINUTE), wires[0])
    assert stage.sql(counted, wires[0]) != before


def test_what_holds_no_lock_any_more_can_be_freed_all_the_same(
    stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    stage.rows(scripts.row_free(), wires[0])
    stage.rows(scripts.row_make("job"))
    stage.rows(scripts.row_try("job", MINUTE), wires[1])
    stage.refusal(scripts.row_try("job", MINUTE), wires[0])  # a transaction was begun
    stage.rows(scripts.row_free(), wires[0])
    assert stage.sql("SELECT @@in_transaction", wires[0]) == [(b"0",)]


def test_the_server_ends_a_session_that_is_silent_for_its_ttl(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    """Whole seconds, rounded up."""
    mine, other = wires
    stage.rows(scripts.row_make("job"))
    stage.rows(scripts.row_try("job", SECOND // 2), mine)
    other.send(scripts.row_wait("job", MINUTE, MINUTE))
    assert last(answer(other)).rows
    with pytest.raises(ConnectionError):
        ask(mine, scripts.ping("row", SECOND))


def test_a_ping_keeps_a_session_and_says_for_how_long(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    mine, _ = wires
    assert stage.rows(scripts.ping("advisory", 2_500_000), mine)
    assert stage.sql("SELECT @@wait_timeout", mine) == [(b"3",)]
    assert stage.rows(scripts.ping("advisory", 1), mine)
    assert stage.sql("SELECT @@wait_timeout", mine) == [(b"1",)]


@pytest.fixture
def key(stage: Stage) -> Value:
    """Theirs are the whole server's."""
    return scripts.advisory_key(stage.dialect.database, "job")


def test_one_session_has_the_advisory_lock(stage: Stage, wires: tuple[MysqlWire, MysqlWire], key: Value) -> None:
    mine, other = wires
    assert stage.rows(scripts.advisory_try(key, MINUTE), mine) == [(b"1",)]
    assert stage.rows(scripts.advisory_try(key, MINUTE), other) == [(b"0",)]
    assert stage.rows(scripts.advisory_wait(key, MINUTE, SHORT), other) == [(b"0",)]
    assert stage.rows(scripts.advisory_free(key), other) == [(b"0",)]
    assert stage.rows(scripts.advisory_free(key), mine) == [(b"1",)]
    assert stage.rows(scripts.advisory_try(key, MINUTE), other) == [(b"1",)]


def test_who_asks_twice_for_an_advisory_lock_releases_it_once(
    stage: Stage, wires: tuple[MysqlWire, MysqlWire], key: Value
) -> None:
    mine, other = wires
    for _ in range(3):
        assert stage.rows(scripts.advisory_try(key, MINUTE), mine) == [(b"1",)]
    assert stage.rows(scripts.advisory_wait(key, MINUTE, SECOND), mine) == [(b"1",)]
    assert stage.rows(scripts.advisory_free(key), mine) == [(b"1",)]
    assert stage.rows(scripts.advisory_try(key, MINUTE), other) == [(b"1",)]


def test_who_waits_for_an_advisory_lock_gets_it(stage: Stage, wires: tuple[MysqlWire, MysqlWire], key: Value) -> None:
    mine, other = wires
    stage.rows(scripts.advisory_try(key, MINUTE), mine)
    other.send(scripts.advisory_wait(key, MINUTE, MINUTE))
    until(lambda: is_waiting(stage, other))
    stage.rows(scripts.advisory_free(key), mine)
    assert last(answer(other)).rows == [(b"1",)]


def test_advisory_keys_differ_by_database_and_name() -> None:
    keys = {scripts.advisory_key(*each) for each in [("a", "b"), ("ab", ""), ("a", "B"), ("a", "b "), ("", "ab")]}
    assert len(keys) == 5
    assert all(isinstance(key, str) and len(key) <= 64 and key == key.lower() for key in keys)


def granted(stage: Stage, wire: MysqlWire, mode: str = "row", name: str = "job", owner: str = "a") -> int:
    """Locked and told, as a store does it."""
    if mode == "row":
        stage.rows(scripts.row_make(name))
        mark = stage.row(scripts.row_try(name, MINUTE), wire)[0]
    else:
        mark = str(scripts.advisory_key(stage.dialect.database, name)).encode()
        assert stage.rows(scripts.advisory_try(mark, MINUTE), wire) == [(b"1",)]
    return number(stage.row(scripts.grant(mode, name, owner, wire.session, mark, MINUTE, CARD))[0])


def freed(stage: Stage, wire: MysqlWire, mode: str, name: str = "job") -> None:
    free = (
        scripts.row_free()
        if mode == "row"
        else scripts.advisory_free(scripts.advisory_key(stage.dialect.database, name))
    )
    stage.rows(free, wire)


modes = pytest.mark.parametrize("mode", ["row", "advisory"])


@modes
def test_a_grant_counts_on_and_others_see_it(mode: str, stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    mine, other = wires
    first = granted(stage, mine, mode)
    owner, token, ttl, since, card, session, is_held = stage.row(scripts.seen(mode, "job"))
    assert (owner, number(token), number(ttl), card) == (b"a", first, MINUTE, CARD.encode())
    assert (number(session), is_held) == (mine.session, b"1")
    assert abs(number(since) - time.time_ns() // 1000) < 5 * SECOND
    freed(stage, mine, mode)
    assert stage.row(scripts.seen(mode, "job"))[-1] == b"0"
    assert granted(stage, other, mode, owner="b") > first
    assert stage.row(scripts.seen(mode, "job"))[0] == b"b"


@modes
def test_tokens_of_sessions_grow_though_the_clock_was_set_back(
    mode: str, stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    ahead = granted(stage, wires[0], mode) + 10**15
    stage.sql("UPDATE gripfast_grant SET token = :ahead", ahead=ahead)
    assert granted(stage, wires[0], mode) == ahead + 1


@modes
def test_a_ttl_that_changes_is_told_to_those_who_look(
    mode: str, stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    granted(stage, wires[0], mode)
    for owner, told in (("b", MINUTE), ("a", SECOND)):
        stage.rows(scripts.set_ttl(mode, "job", owner, SECOND))
        assert number(stage.row(scripts.seen(mode, "job"))[2]) == told


@modes
def test_what_is_held_by_another_session_than_was_told_is_not_held_by_that_one(
    mode: str, stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    mine, other = wires
    granted(stage, mine, mode)
    stage.sql("UPDATE gripfast_grant SET session = :other", other=other.session)
    assert stage.row(scripts.seen(mode, "job"))[-1] == b"0"


@modes
def test_looking_at_locks_is_in_nobodys_way(mode: str, stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    """Not even for a moment: whoever looks takes no lock that a claim could meet."""
    granted(stage, wires[0], mode)
    freed(stage, wires[0], mode)
    begun = [Query(Statement("START TRANSACTION")), *scripts.seen_page(mode, "", "", 10)]
    assert len(stage.rows(begun)) == 1
    assert granted(stage, wires[1], mode)
    stage.sql("ROLLBACK")


def test_a_row_that_was_locked_in_a_callers_own_transaction_is_seen(
    stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    mine, _ = wires
    stage.rows(scripts.row_make("job"))
    locked_within(stage, mine)
    stage.rows(scripts.grant_within("row", "not locked", "a", mine.session, "", CARD))
    assert stage.row(scripts.seen("row", "job"))[-1] == b"1"
    assert [row[-1] for row in stage.rows(scripts.seen_page("row", "", "", 10))] == [b"1", b"0"]
    stage.sql("COMMIT", mine)
    assert stage.row(scripts.seen("row", "job"))[-1] == b"0"


def locked_within(stage: Stage, wire: MysqlWire, owner: str = "a") -> Row:
    """As a caller's own transaction does it; the token, and what it has to see."""
    stage.rows(scripts.row_make("job"))
    begun = [
        Query(Statement("START TRANSACTION")),
        Query(Statement("SELECT 1 FROM gripfast_row WHERE name = 'job' FOR UPDATE")),
    ]
    assert stage.rows(begun, wire) == [(b"1",)]
    told = stage.row(scripts.grant_within("row", "job", owner, wire.session, "", CARD))
    stage.sql("SELECT 1 FROM gripfast_within WHERE name = 'job' FOR UPDATE", wire)
    return told


def test_a_transaction_that_takes_the_lock_again_keeps_what_it_has_seen(
    stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    mine, other = wires
    token, shown = locked_within(stage, mine)
    assert shown == token
    again, shown = stage.row(scripts.grant_within("row", "job", "b", mine.session, "", CARD))
    assert (number(again) > number(token), shown) == (True, token)
    stage.sql("COMMIT", mine)
    for wire in (mine, other):
        token, shown = locked_within(stage, wire)
        assert shown == token
        stage.sql("COMMIT", wire)


def test_those_who_look_see_neither_each_other_nor_are_in_the_way_of_the_lock(
    stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    """As if looking took for ever."""
    mine, other = wires
    locked_within(stage, mine)
    stage.sql("COMMIT", mine)
    stage.sql("START TRANSACTION")
    stage.sql("START TRANSACTION", other)
    for wire in (stage.shared, other):
        assert stage.row(scripts.seen("row", "job"), wire)[-1] == b"0"
        assert stage.rows(scripts.seen_page("row", "", "", 10), wire)[0][-1] == b"0"
    assert stage.row(scripts.row_try("job", MINUTE), mine)[0]
    stage.sql("ROLLBACK")


def test_only_who_holds_the_lock_now_is_ended(stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    mine, other = wires
    locked_within(stage, mine)
    stage.rows(scripts.end_holder("row", "job", "another owner"))
    assert is_there(stage, mine)
    stage.sql("COMMIT", mine)
    stage.rows(scripts.end_holder("row", "job", "a"))
    assert is_there(stage, mine)
    granted(stage, other, name="lease")
    stage.rows(scripts.end_holder("row", "lease", "a"))
    until(lambda: not is_there(stage, other))
    locked_within(stage, mine)
    stage.rows(scripts.end_holder("row", "job", "a"))
    until(lambda: not is_there(stage, mine))


@modes
def test_pages_of_sessions_tell_one_mode_in_the_order_of_bytes(
    mode: str, stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    mine, other = wires
    granted(stage, mine, mode, name="ab")
    granted(stage, other, {"row": "advisory", "advisory": "row"}[mode], name="a other mode")
    for name in ("a", "a ", "b", "aé", "A"):
        stage.rows(scripts.grant(mode, name, "x", 1, "none", MINUTE, CARD))
    told = stage.rows(scripts.seen_page(mode, "a", "a", 2))
    assert [row[0] for row in told] == [b"a ", b"ab"]
    assert [row[-1] for row in told] == [b"0", b"1"]
    assert [row[0] for row in stage.rows(scripts.seen_page(mode, "ab", "a", 2))] == ["aé".encode()]


@modes
def test_ending_a_session_frees_what_it_had(mode: str, stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    mine, other = wires
    granted(stage, mine, mode)
    last(ask(stage.shared, scripts.end_session(mine.session, mine.birth)))
    until(lambda: stage.row(scripts.seen(mode, "job"))[-1] == b"0")
    until(lambda: not is_there(stage, mine))
    assert granted(stage, other, mode, owner="b")
    assert stage.row(scripts.seen(mode, "job"))[-1] == b"1"
    last(ask(stage.shared, scripts.end_session(mine.session, mine.birth)))  # there is none such any more


def test_a_session_that_has_only_the_same_number_is_left_alone(
    stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    """Numbers start again when the server does."""
    mine, _ = wires
    assert stage.rows(scripts.has_session(mine.session, mine.birth))
    for birth in ("192.0.2.1:80", scripts.new_birth()):
        assert not stage.rows(scripts.has_session(mine.session, birth))
        last(ask(stage.shared, scripts.end_session(mine.session, birth)))
        assert is_there(stage, mine)


@pytest.mark.parametrize("by_socket", [False, True], ids=["TCP", "unix socket"])
def test_no_two_sessions_are_born_alike(stage: Stage, by_socket: bool) -> None:
    """By a unix socket all come from localhost. Nor is it forgotten when a lock is freed."""
    server = mariadb_server()
    options = {"unix_socket": server.folder / "socket"} if by_socket else {}
    reached = dialect(server.url_with(database=stage.dialect.database, **options))
    with contextlib.closing(reached.dial(10.0, False)) as mine, contextlib.closing(reached.dial(10.0, True)) as other:
        for mode in ("row", "advisory"):
            granted(stage, mine, mode)
            freed(stage, mine, mode)
        assert stage.rows(scripts.has_session(mine.session, mine.birth))
        assert not stage.rows(scripts.has_session(mine.session, other.birth))
        last(ask(stage.shared, scripts.end_session(mine.session, other.birth)))
        assert is_there(stage, mine)


def is_there(stage: Stage, wire: MysqlWire) -> bool:
    return bool(stage.sql("SELECT 1 FROM information_schema.processlist WHERE id = :id", id=wire.session))


@modes
def test_a_sweep_of_sessions_leaves_what_is_held(mode: str, stage: Stage, wires: tuple[MysqlWire, MysqlWire]) -> None:
    mine, other = wires
    granted(stage, mine, mode, name="held")
    for name in ("idle", "later", "never"):
        granted(stage, other, mode, name=name)
        freed(stage, other, mode, name)
    stage.age(MINUTE, "gripfast_grant")
    granted(stage, other, mode, name="later")
    freed(stage, other, mode, "later")
    started = time.monotonic()
    assert stage.rows(scripts.sweep_sessions(mode, 4, MINUTE // 2)) == [(b"4",)]
    assert time.monotonic() - started < 5.0, "it waited for a row that is locked"
    left = [(b"held",), (b"later",)]
    assert stage.sql("SELECT name FROM gripfast_grant ORDER BY name") == left
    assert stage.sql("SELECT name FROM gripfast_row ORDER BY name") == (left if mode == "row" else [])
    assert stage.rows(scripts.sweep_sessions(mode, 4, MINUTE // 2)) == [(b"0",)]


def test_a_sweep_of_rows_passes_over_what_a_callers_own_transaction_has_locked(
    stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    """It has no mark: the sweep waited for its end, with the names that it had found locked."""
    mine, other = wires
    stage.rows(scripts.row_make("within"))
    stage.sql("START TRANSACTION", mine)
    stage.sql("SELECT name FROM gripfast_row WHERE name = 'within' FOR UPDATE", mine)
    stage.rows(scripts.grant_within("row", "within", "a", mine.session, "", CARD))
    granted(stage, other, "row", name="idle")
    freed(stage, other, "row", "idle")
    stage.age(MINUTE, "gripfast_grant")
    assert stage.rows(scripts.sweep_sessions("row", 4, MINUTE // 2)) == [(b"2",)]
    assert stage.sql("SELECT name FROM gripfast_grant") == [(b"within",)]
    assert stage.rows(scripts.sweep_sessions("row", 4, MINUTE // 2)) == [(b"0",)]
    stage.sql("ROLLBACK", mine)
    stage.age(MINUTE, "gripfast_grant")
    assert stage.rows(scripts.sweep_sessions("row", 4, MINUTE // 2)) == [(b"1",)]
    assert stage.sql("SELECT name FROM gripfast_row") == []


def test_a_name_whose_row_was_swept_while_it_was_waited_for_has_no_row(
    stage: Stage, wires: tuple[MysqlWire, MysqlWire]
) -> None:
    mine, other = wires
    stage.rows(scripts.row_make("job"))
    ask(mine, [Query(Statement("START TRANSACTION")), Query(Statement("DELETE FROM gripfast_row"))])
    other.send(scripts.row_wait("job", MINUTE, MINUTE))
    until(lambda: is_waiting(stage, other))
    stage.sql("COMMIT", mine)
    assert last(answer(other)).rows == []
