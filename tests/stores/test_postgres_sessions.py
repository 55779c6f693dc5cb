"""What each request of locks that live in sessions is answered by a real PostgreSQL."""

from collections.abc import Iterator

import pytest

from gripfast.stores.postgres import scripts
from gripfast.stores.postgres.wire import PostgresWire
from gripfast.stores.sql.ports import Refusal
from gripfast.stores.sql.protocol import read_seen
from gripfast.stores.sql.statement import Query, Statement
from stores.postgres_requests import (
    CARD,
    TTL,
    answer_of,
    answered,
    ask,
    clock_us,
    make_tables,
    new_name,
    refused,
    setting,
    sql,
    told,
    waits_for_lock,
    wire_to,
)
from support.sql_servers import postgres_server
from support.waiting import until

DAY = 24 * 3600 * 1_000_000
SHORT = 100_000
OF_A_SESSION = ("idle_in_transaction_session_timeout", "idle_session_timeout", "lock_timeout", "statement_timeout")


@pytest.fixture
def wire() -> Iterator[PostgresWire]:
    with wire_to() as wire:
        make_tables(wire)
        yield wire


@pytest.fixture
def mine() -> Iterator[PostgresWire]:
    with wire_to(is_shared=False) as mine:
        yield mine


@pytest.fixture
def other() -> Iterator[PostgresWire]:
    with wire_to(is_shared=False) as other:
        yield other


@pytest.fixture
def name(wire: PostgresWire) -> str:
    """Of a row that is there to be locked."""
    name = new_name()
    told(wire, scripts.row_make(name))
    return name


def is_clean(wire: PostgresWire) -> bool:
    """As it was when it was dialled."""
    return [setting(wire, each) for each in OF_A_SESSION] == ["0"] * 4


def has_ended(wire: PostgresWire) -> bool:
    try:
        return wire.receive() is not None
    except OSError:
        return True


def granted(wire: PostgresWire, mode: str, name: str, owner: str, session: int, mark: object) -> int:
    value = mark if isinstance(mark, int | bytes) else str(mark)
    ((token,),) = told(wire, scripts.grant(mode, name, owner, session, value, TTL, CARD))
    return int(token or 0)


def is_held(wire: PostgresWire, mode: str, name: str) -> bool:
    (row,) = told(wire, scripts.seen(mode, name))
    return read_seen(row)[2]


# Rows -----------------------------------------------------------------------------------------------------------------


def test_a_row_is_made_once(wire: PostgresWire, name: str) -> None:
    assert answered(wire, scripts.row_make(name)).affected == 0


def test_a_row_that_is_not_there_is_not_locked(mine: PostgresWire) -> None:
    assert told(mine, scripts.row_try(new_name(), TTL)) == []
    answered(mine, scripts.row_free())
    assert told(mine, scripts.row_wait(new_name(), TTL, TTL)) == []


def test_a_row_is_locked_by_one_until_it_is_freed(mine: PostgresWire, other: PostgresWire, name: str) -> None:
    ((mark,),) = told(mine, scripts.row_try(name, TTL))
    assert (mark or b"").isdigit()
    assert refused(other, scripts.row_try(name, TTL)).kind == "busy"
    answered(other, scripts.row_free())
    answered(mine, scripts.row_free())
    ((next_mark,),) = told(other, scripts.row_try(name, TTL))
    assert int(next_mark or 0) > int(mark or 0)


def test_who_waits_for_a_row_has_it_when_it_is_freed(mine: PostgresWire, other: PostgresWire, name: str) -> None:
    told(mine, scripts.row_try(name, TTL))
    other.send(scripts.row_wait(name, TTL, TTL))
    until(lambda: waits_for_lock(other.session))
    answered(mine, scripts.row_free())
    answer = answer_of(other)
    assert not isinstance(answer, Refusal)
    assert len(answer[-1].rows) == 1
    assert refused(mine, scripts.row_try(name, TTL)).kind == "busy"


def test_who_waits_for_a_row_has_the_limit_taken_off_by_the_first_ping(mine: PostgresWire, name: str) -> None:
    told(mine, scripts.row_wait(name, TTL, TTL))
    told(mine, scripts.ping("row", TTL))
    assert [setting(mine, each) for each in OF_A_SESSION] == ["30s", "0", "0", "0"]


def test_who_has_waited_long_enough_for_a_row_is_refused(mine: PostgresWire, other: PostgresWire, name: str) -> None:
    told(mine, scripts.row_try(name, TTL))
    assert refused(other, scripts.row_wait(name, TTL, SHORT)).kind == "busy"
    answered(other, scripts.row_free())
    assert is_clean(other)


def test_a_freed_session_is_as_it_was(mine: PostgresWire, other: PostgresWire, name: str) -> None:
    told(mine, scripts.row_try(name, TTL))
    assert setting(mine, "idle_in_transaction_session_timeout") == "30s"
    answered(mine, scripts.row_free())
    assert is_clean(mine)
    told(mine, scripts.row_wait(name, TTL, TTL))
    answered(mine, scripts.row_free())
    assert is_clean(mine)
    ((status,),) = told(mine, sql("SELECT pg_current_xact_id_if_assigned() IS NULL"))
    assert status == b"t"


def test_the_server_ends_a_session_that_has_been_silent_for_a_ttl_and_frees_its_row(
    mine: PostgresWire, other: PostgresWire, name: str
) -> None:
    told(mine, scripts.row_try(name, SHORT))
    other.send(scripts.row_wait(name, TTL, TTL))
    until(lambda: has_ended(mine))
    assert not isinstance(answer_of(other), Refusal)


def test_a_ping_sets_the_time_for_silence_anew(mine: PostgresWire, name: str) -> None:
    told(mine, scripts.row_try(name, TTL))
    told(mine, scripts.ping("row", 60_000_000))
    assert setting(mine, "idle_in_transaction_session_timeout") == "1min"


def test_a_waiter_whose_client_is_gone_leaves(mine: PostgresWire, other: PostgresWire, name: str) -> None:
    """Otherwise it would be granted the row, and keep it for a ttl."""
    told(mine, scripts.row_try(name, TTL))
    other.send(scripts.row_wait(name, TTL, 60_000_000))
    until(lambda: waits_for_lock(other.session))
    session = other.session
    other.cut()
    until(lambda: not postgres_server().execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", session))


# Advisory locks -------------------------------------------------------------------------------------------------------


def test_an_advisory_lock_is_had_by_one_until_it_is_freed(mine: PostgresWire, other: PostgresWire) -> None:
    key = scripts.advisory_key("", new_name())
    assert told(mine, scripts.advisory_try(key, TTL)) == [(b"1",)]
    assert told(other, scripts.advisory_try(key, TTL)) == [(b"0",)]
    assert is_clean(other)
    assert told(mine, scripts.advisory_free(key)) == [(b"1",)]
    assert told(other, scripts.advisory_try(key, TTL)) == [(b"1",)]


def test_who_waits_for_an_advisory_lock_has_it_when_it_is_freed(mine: PostgresWire, other: PostgresWire) -> None:
    key = scripts.advisory_key("", new_name())
    told(mine, scripts.advisory_try(key, TTL))
    other.send(scripts.advisory_wait(key, TTL, TTL))
    until(lambda: waits_for_lock(other.session))
    told(mine, scripts.advisory_free(key))
    answer = answer_of(other)
    assert not isinstance(answer, Refusal)
    assert answer[-1].rows == [(b"1",)]
    assert [setting(other, each) for each in OF_A_SESSION] == ["0", "30s", "0", "0"]
    assert told(mine, scripts.advisory_try(key, TTL)) == [(b"0",)]


def test_who_has_waited_long_enough_for_an_advisory_lock_is_refused_and_has_nothing(
    mine: PostgresWire, other: PostgresWire
) -> None:
    key = scripts.advisory_key("", new_name())
    told(mine, scripts.advisory_try(key, TTL))
    assert refused(other, scripts.advisory_wait(key, TTL, SHORT)).kind == "busy"
    assert is_clean(other)
    told(mine, scripts.advisory_free(key))
    assert told(mine, scripts.advisory_try(key, TTL)) == [(b"1",)]


def test_who_is_refused_in_the_moment_in_which_the_lock_is_freed_has_nothing(
    mine: PostgresWire, other: PostgresWire
) -> None:
    key, answers = scripts.advisory_key("", new_name()), set()
    for turn in range(300):
        assert told(mine, scripts.advisory_try(key, TTL)) == [(b"1",)], f"nobody has it, at turn {turn}"
        other.send(scripts.advisory_wait(key, TTL, 1_000))
        for _ in range(turn % 20):  # some time, more or less what the other has
            told(mine, sql("SELECT 1"))
        told(mine, scripts.advisory_free(key))
        answer = answer_of(other)
        answers.add(isinstance(answer, Refusal))
        if not isinstance(answer, Refusal):
            assert told(other, scripts.advisory_free(key)) == [(b"1",)]
    assert answers == {True, False}


def test_an_advisory_lock_that_a_session_has_twice_is_freed_at_once(mine: PostgresWire, other: PostgresWire) -> None:
    key = scripts.advisory_key("", new_name())
    told(mine, scripts.advisory_try(key, TTL))
    told(mine, scripts.advisory_wait(key, TTL, TTL))
    assert told(mine, scripts.advisory_free(key)) == [(b"1",)]
    assert told(other, scripts.advisory_try(key, TTL)) == [(b"1",)]


def test_a_session_without_its_advisory_lock_is_as_it_was(mine: PostgresWire) -> None:
    key = scripts.advisory_key("", new_name())
    told(mine, scripts.advisory_try(key, TTL))
    assert setting(mine, "idle_session_timeout") == "30s"
    told(mine, scripts.ping("advisory", 60_000_000))
    assert setting(mine, "idle_session_timeout") == "1min"
    told(mine, scripts.advisory_free(key))
    assert is_clean(mine)


def test_the_server_ends_a_session_that_has_been_silent_for_a_ttl_and_frees_its_advisory_lock(
    mine: PostgresWire, other: PostgresWire
) -> None:
    key = scripts.advisory_key("", new_name())
    told(mine, scripts.advisory_try(key, SHORT))
    other.send(scripts.advisory_wait(key, TTL, TTL))
    until(lambda: has_ended(mine))
    assert not isinstance(answer_of(other), Refusal)


def test_advisory_keys_have_64_bits_and_do_not_collide() -> None:
    keys = {scripts.advisory_key("", f"job-{number}") for number in range(20_000)}
    assert len(keys) == 20_000
    assert min(keys) < -(2**62)
    assert max(keys) > 2**62
    assert all(-(2**63) <= key < 2**63 for key in keys)


# Grants ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["row", "advisory"])
def test_tokens_of_sessions_grow_by_the_clock_and_past_it(wire: PostgresWire, mode: str) -> None:
    name, before = new_name(), clock_us(wire)
    first = granted(wire, mode, name, "a", 1, "1")
    assert first >= before
    assert granted(wire, mode, name, "b", 1, "1") > first
    ahead = clock_us(wire) + DAY
    statement = Statement("UPDATE gripfast_grant SET token = :token::bigint WHERE name = :name")
    answered(wire, [Query(statement, {"token": ahead, "name": name})])
    assert granted(wire, mode, name, "c", 1, "1") == ahead + 1


def test_the_two_modes_are_lock_spaces_of_their_own(wire: PostgresWire) -> None:
    name = new_name()
    granted(wire, "row", name, "a", 1, "1")
    assert told(wire, scripts.seen("advisory", name)) == []


def test_a_row_lock_is_seen_while_its_transaction_lasts(wire: PostgresWire, mine: PostgresWire, name: str) -> None:
    assert told(wire, scripts.seen("row", name)) == []
    ((mark,),) = told(mine, scripts.row_try(name, TTL))
    token = granted(wire, "row", name, "a", mine.session, mark)
    (row,) = told(wire, scripts.seen("row", name))
    held, session, is_held_now = read_seen(row)
    assert (held.owner, held.token, held.ttl, held.details) == ("a", token, 30.0, CARD)
    assert (session, is_held_now) == (mine.session, True)
    answered(mine, scripts.row_free())
    assert not is_held(wire, "row", name)


def test_a_row_lock_of_another_server_whose_tables_were_brought_here_is_not_held(wire: PostgresWire) -> None:
    name = new_name()
    granted(wire, "row", name, "a", 1, "999999999999")
    assert not is_held(wire, "row", name)
    assert told(wire, scripts.seen_page("row", "", name, 1)) != []


def test_an_advisory_lock_is_seen_while_its_session_has_it(wire: PostgresWire, mine: PostgresWire) -> None:
    for name in (new_name(), new_name(), new_name()):  # keys of either sign
        key = scripts.advisory_key("", name)
        told(mine, scripts.advisory_try(key, TTL))
        granted(mine, "advisory", name, "a", mine.session, key)
        assert is_held(wire, "advisory", name)
        told(mine, scripts.advisory_free(key))
        assert not is_held(wire, "advisory", name)


def test_a_grant_is_not_held_by_the_next_one_who_has_the_lock(
    wire: PostgresWire, mine: PostgresWire, other: PostgresWire
) -> None:
    name = new_name()
    key = scripts.advisory_key("", name)
    granted(wire, "advisory", name, "a", mine.session, key)
    told(other, scripts.advisory_try(key, TTL))
    assert not is_held(wire, "advisory", name)


@pytest.mark.parametrize("mode", ["row", "advisory"])
def test_pages_of_sessions(wire: PostgresWire, mine: PostgresWire, mode: str) -> None:
    base = new_name("")
    names = [base + each for each in ("B", "a", "a ", "\U0010ffff")]
    held = names[1]
    if mode == "row":
        told(wire, scripts.row_make(held))
        ((mark,),) = told(mine, scripts.row_try(held, TTL))
    else:
        mark = str(scripts.advisory_key("", held)).encode()
        told(mine, scripts.advisory_try(int(mark), TTL))
    for name in names:
        granted(wire, mode, name, "a", mine.session, mark if name == held else b"1")
    rows = told(wire, scripts.seen_page(mode, "", base, 3))
    rows += told(wire, scripts.seen_page(mode, names[2], base, 3))
    assert [((row[0] or b"").decode(), read_seen(row[1:])[2]) for row in rows] == [
        (each, each == held) for each in names
    ]


def test_a_session_is_ended_and_its_locks_are_free(wire: PostgresWire, mine: PostgresWire, name: str) -> None:
    told(mine, scripts.row_try(name, TTL))
    assert told(wire, scripts.end_session(mine.session, mine.birth)) == [(b"1",)]
    until(lambda: has_ended(mine))
    until(lambda: told(wire, scripts.end_session(mine.session, mine.birth)) == [])


def test_a_session_that_has_only_the_same_number_is_left_alone(wire: PostgresWire, mine: PostgresWire) -> None:
    """Numbers come again, after a restart or on another server."""
    assert told(wire, scripts.has_session(mine.session, mine.birth)) == [(b"1",)]
    assert told(wire, scripts.has_session(mine.session, "1.5")) == []
    assert told(wire, scripts.end_session(mine.session, "1.5")) == []
    assert told(wire, scripts.has_session(mine.session, mine.birth)) == [(b"1",)]


def test_somebody_elses_session_can_not_be_ended(wire: PostgresWire) -> None:
    ((pid,),) = postgres_server().execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
    assert told(wire, scripts.end_session(pid, "")) == []


# Sweeping -------------------------------------------------------------------------------------------------------------


def test_idle_rows_are_swept_and_those_that_are_locked_or_young_are_not() -> None:
    with postgres_server().fresh_database() as url, wire_to(url) as wire, wire_to(url, is_shared=False) as mine:
        make_tables(wire)
        for name in ("a-old", "b-locked", "c-young", "d-never", "e-old"):
            told(wire, scripts.row_make(name))
            if name != "d-never":
                granted(wire, "row", name, "a", 1, "1")
        answered(wire, sql("UPDATE gripfast_grant SET token = 1, since_us = 1 WHERE name <> 'c-young'"))
        answered(wire, sql("UPDATE gripfast_row SET checked_us = 1"))
        told(mine, scripts.row_try("b-locked", TTL))
        assert [told(wire, scripts.sweep_sessions("row", 3, DAY)) for _ in range(3)] == [
            [(b"3",)],
            [(b"1",)],
            [(b"0",)],
        ]
        assert told(wire, sql("SELECT name FROM gripfast_row ORDER BY 1")) == [(b"b-locked",), (b"c-young",)]
        assert told(wire, sql("SELECT name FROM gripfast_grant ORDER BY 1")) == [(b"b-locked",), (b"c-young",)]


def test_idle_advisory_grants_are_swept_and_those_that_are_held_or_young_are_not() -> None:
    with postgres_server().fresh_database() as url, wire_to(url) as wire, wire_to(url, is_shared=False) as mine:
        make_tables(wire)
        for name in ("a-old", "b-held", "c-young", "d-old"):
            granted(wire, "advisory", name, "a", 1, scripts.advisory_key("", name))
        granted(wire, "row", "a-old", "a", 1, "1")
        answered(wire, sql("UPDATE gripfast_grant SET token = 1, since_us = 1 WHERE name <> 'c-young'"))
        answered(wire, sql("UPDATE gripfast_grant SET checked_us = 1"))
        told(mine, scripts.advisory_try(scripts.advisory_key("", "b-held"), TTL))
        assert told(wire, scripts.sweep_sessions("advisory", 10, DAY)) == [(b"4",)]
        assert told(wire, scripts.sweep_sessions("advisory", 10, DAY)) == [(b"0",)]
        left = told(wire, sql("SELECT mode, name FROM gripfast_grant ORDER BY 1, 2"))
        assert left == [(b"advisory", b"b-held"), (b"advisory", b"c-young"), (b"row", b"a-old")]


def test_a_row_that_was_swept_under_a_try_is_not_locked(wire: PostgresWire, mine: PostgresWire, name: str) -> None:
    ask(wire, sql("BEGIN"))
    answered(wire, [Query(Statement("DELETE FROM gripfast_row WHERE name = :name"), {"name": name})])
    mine.send(scripts.row_wait(name, TTL, TTL))
    until(lambda: waits_for_lock(mine.session))
    ask(wire, sql("COMMIT"))
    answer = answer_of(mine)
    assert not isinstance(answer, Refusal)
    assert answer[-1].rows == []
