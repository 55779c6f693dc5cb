"""Every SQL text for MariaDB and MySQL, against a real server: what it answers in each state of a lock."""

import concurrent.futures
import contextlib
import itertools
import re
import time
from collections.abc import Iterator

import pytest

from gripfast.stores.mysql import scripts
from gripfast.stores.mysql.wire import MysqlWire
from gripfast.stores.sql.statement import Query, Statement
from stores.mysql_stage import CARD, MINUTE, SECOND, SHORT, Row, Stage, ask, last, number, staged
from support.sql_servers import mariadb_server
from support.waiting import until

THREADS = 8

NOTE = '"deploy of v2"'


@pytest.fixture(scope="module")
def database() -> Iterator[Stage]:
    with staged(mariadb_server()) as stage:
        yield stage


@pytest.fixture
def stage(database: Stage) -> Stage:
    """With nothing in the tables."""
    database.empty()
    return database


def claimed(stage: Stage, name: str = "job", owner: str = "a", ttl_us: int = MINUTE) -> Row:
    return stage.row(scripts.claim(name, owner, ttl_us, CARD))


def token_of(row: Row) -> int:
    return number(row[1])


def run_out(stage: Stage, name: str = "job") -> None:
    until(lambda: not stage.rows(scripts.look(name)))


def test_a_new_name_is_granted_with_the_clock_as_its_token(stage: Stage) -> None:
    before = time.time_ns() // 1000
    owner, token, expires_in, ttl, since, card = claimed(stage)
    assert (owner, number(ttl), card) == (b"a", MINUTE, CARD.encode())
    assert before - SECOND <= number(token) == number(since) <= time.time_ns() // 1000 + SECOND
    assert MINUTE - 5 * SECOND < number(expires_in) <= MINUTE


def test_a_lock_that_is_taken_stays_with_its_owner(stage: Stage) -> None:
    first = claimed(stage)
    second = claimed(stage, owner="b", ttl_us=2 * MINUTE)
    assert second[:2] == first[:2]
    assert second[3:] == first[3:]
    assert number(second[2]) <= number(first[2])


def test_asking_for_a_lock_that_is_taken_writes_nothing(stage: Stage) -> None:
    claimed(stage)
    counted = "SHOW SESSION STATUS LIKE 'Handler_update'"
    (before,) = stage.sql(counted)
    claimed(stage, owner="b")
    assert stage.sql(counted) == [before]


def test_who_has_it_gets_the_full_ttl_and_keeps_token_and_start(stage: Stage) -> None:
    first = claimed(stage, ttl_us=5 * SECOND)
    second = claimed(stage, ttl_us=MINUTE)
    assert (second[0], second[1], second[4]) == (first[0], first[1], first[4])
    assert number(second[2]) > 50 * SECOND


def test_a_claim_never_shortens_what_its_owner_has(stage: Stage) -> None:
    claimed(stage, ttl_us=MINUTE)
    assert number(claimed(stage, ttl_us=SECOND)[2]) > 50 * SECOND


def test_a_lease_that_ran_out_is_taken_over_with_a_larger_token(stage: Stage) -> None:
    first = claimed(stage, ttl_us=SHORT)
    run_out(stage)
    second = claimed(stage, owner="b")
    assert second[0] == b"b"
    assert token_of(second) > token_of(first)
    assert number(second[4]) > number(first[4])


def test_the_owner_of_a_lease_that_ran_out_gets_it_back_if_nobody_took_it(stage: Stage) -> None:
    first = claimed(stage, ttl_us=SHORT)
    run_out(stage)
    second = claimed(stage)
    assert (second[0], second[1]) == (b"a", first[1])
    assert number(second[2]) > 50 * SECOND


def test_tokens_grow_though_the_clock_was_set_back(stage: Stage) -> None:
    ahead = token_of(claimed(stage)) + 10**15
    stage.sql("UPDATE gripfast_lock SET token = :ahead, owner = NULL", ahead=ahead)
    assert token_of(claimed(stage)) == ahead + 1
    stage.rows(scripts.release("job", "a", ""))
    assert token_of(claimed(stage)) == ahead + 2


def test_a_release_frees_it_and_the_next_token_is_larger(stage: Stage) -> None:
    first = claimed(stage)
    assert stage.rows(scripts.release("job", "a", "")) == [(b"1", b"0")]
    assert stage.rows(scripts.look("job")) == []
    assert token_of(claimed(stage)) > token_of(first)


def test_nobody_else_can_release_it(stage: Stage) -> None:
    claimed(stage)
    assert stage.rows(scripts.release("job", "b", "")) == []
    assert stage.rows(scripts.release("other", "a", "")) == []
    assert stage.row(scripts.look("job"))[0] == b"a"


def test_a_release_after_the_end_frees_it_and_says_so(stage: Stage) -> None:
    claimed(stage, ttl_us=SHORT)
    run_out(stage)
    assert stage.rows(scripts.release("job", "a", "")) == [(b"0", b"0")]
    assert stage.rows(scripts.release("job", "a", "")) == []


def test_whoever_registers_is_told_of_at_the_release_until_the_window_ends(stage: Stage) -> None:
    claimed(stage)
    assert stage.row(scripts.register("job", MINUTE))[0] == b"a"
    stage.rows(scripts.register("job", SHORT))  # does not lower it
    until(lambda: stage.sql(f"SELECT 1 FROM gripfast_lock WHERE since_us + {SHORT} < {scripts.NOW}"))
    assert stage.rows(scripts.release("job", "a", "")) == [(b"1", b"1")]
    claimed(stage, name="short")
    stage.rows(scripts.register("short", 1))
    assert stage.rows(scripts.release("short", "a", "")) == [(b"1", b"0")]


def test_nobody_can_wait_for_a_name_that_was_swept(stage: Stage) -> None:
    assert stage.rows(scripts.register("job", MINUTE)) == []


def test_a_renewal_gives_the_full_ttl(stage: Stage) -> None:
    first = claimed(stage, ttl_us=10 * SECOND)
    assert last(ask(stage.shared, scripts.renew("job", "a", MINUTE, False))).affected == 1
    held = stage.row(scripts.look("job"))
    assert number(held[2]) > 50 * SECOND
    assert (held[1], number(held[3])) == (first[1], MINUTE)


def test_a_renewal_shortens_only_if_told_to(stage: Stage) -> None:
    claimed(stage, ttl_us=MINUTE)
    assert last(ask(stage.shared, scripts.renew("job", "a", SECOND, False))).affected == 1
    assert number(stage.row(scripts.look("job"))[2]) > 50 * SECOND
    assert last(ask(stage.shared, scripts.renew("job", "a", SECOND, True))).affected == 1
    assert number(stage.row(scripts.look("job"))[2]) <= SECOND


def test_a_renewal_that_changes_nothing_is_one_too(stage: Stage) -> None:
    claimed(stage, ttl_us=MINUTE)
    stage.rows(scripts.renew("job", "a", SECOND, False))
    assert last(ask(stage.shared, scripts.renew("job", "a", SECOND, False))).affected == 1


def test_nobody_renews_what_is_not_theirs_or_has_run_out(stage: Stage) -> None:
    claimed(stage, ttl_us=SHORT)
    assert last(ask(stage.shared, scripts.renew("job", "b", MINUTE, False))).affected == 0
    run_out(stage)
    assert last(ask(stage.shared, scripts.renew("job", "a", MINUTE, True))).affected == 0
    assert last(ask(stage.shared, scripts.renew("none", "a", MINUTE, True))).affected == 0


def test_why_a_lease_is_gone(stage: Stage) -> None:
    assert stage.rows(scripts.why("job", "a")) == []
    claimed(stage, ttl_us=SHORT)
    run_out(stage)
    assert stage.rows(scripts.why("job", "a")) == [(b"expired", None)]
    claimed(stage, owner="b")
    assert stage.rows(scripts.why("job", "a")) == [(b"taken", None)]
    stage.rows(scripts.force_release("job", ""))
    assert stage.rows(scripts.why("job", "b")) == [(b"broken", None)]
    claimed(stage, owner="c")
    assert stage.rows(scripts.why("job", "b")) == [(b"broken", None)]


def test_an_owner_that_was_forced_out_is_told_the_reason(stage: Stage) -> None:
    claimed(stage)
    stage.rows(scripts.register("job", MINUTE))
    assert stage.rows(scripts.force_release_noted("job", "", NOTE)) == [(b"1", b"1")]
    assert stage.rows(scripts.force_release_noted("job", "", NOTE)) == []
    claimed(stage, owner="b")
    assert stage.rows(scripts.why("job", "a")) == [(b"broken", NOTE.encode())]
    stage.rows(scripts.force_release("job", ""))
    assert stage.rows(scripts.why("job", "b")) == [(b"broken", None)]
    claimed(stage, ttl_us=SHORT)
    run_out(stage)
    assert stage.rows(scripts.force_release_noted("job", "", "late")) == [(b"0", b"1")]


def test_a_reason_is_no_lock_and_is_forgotten_with_the_idle_names(stage: Stage) -> None:
    claimed(stage)
    stage.rows(scripts.force_release_noted("job", "", NOTE))
    assert {row[1] for row in stage.rows(scripts.page("", "", 5))} == {None}
    assert len(stage.rows(scripts.page("", "", 5))) == 2
    stage.age(MINUTE)
    stage.rows(scripts.sweep(5, SECOND))
    assert stage.rows(scripts.page("", "", 5)) == []


def test_an_owner_that_was_forced_out_and_came_back_is_no_longer_broken(stage: Stage) -> None:
    first = claimed(stage, ttl_us=SHORT)
    stage.rows(scripts.force_release("job", ""))
    assert token_of(claimed(stage, ttl_us=SHORT)) > token_of(first)
    run_out(stage)
    assert stage.rows(scripts.why("job", "a")) == [(b"expired", None)]


def test_a_forced_release_is_like_a_release_by_whoever_has_it(stage: Stage) -> None:
    assert stage.rows(scripts.force_release("job", "")) == []
    claimed(stage)
    stage.rows(scripts.register("job", MINUTE))
    assert stage.rows(scripts.force_release("job", "")) == [(b"1", b"1")]
    assert stage.rows(scripts.force_release("job", "")) == []
    assert stage.rows(scripts.look("job")) == []


def test_one_that_had_run_out_was_not_broken_by_a_forced_release(stage: Stage) -> None:
    claimed(stage, ttl_us=SHORT)
    run_out(stage)
    assert stage.rows(scripts.force_release("job", "")) == [(b"0", b"0")]
    assert stage.rows(scripts.why("job", "a")) == [(b"expired", None)]


DIFFERENT = [
    "Job",
    "job",
    "job ",
    "job\t",
    " job",
    "jöb",
    "JÖB",
    "jo\u0308b",
    "job'; DROP TABLE x; --",
    "\\'",
    "%",
    "_",
]
LONG = "\N{OCTOPUS}" * 128  # 512 bytes


def test_names_are_compared_byte_by_byte(stage: Stage) -> None:
    for place, name in enumerate(DIFFERENT):
        assert claimed(stage, name=name, owner=str(place))[0] == str(place).encode()
    for place, name in enumerate(DIFFERENT):
        assert stage.row(scripts.look(name))[0] == str(place).encode()
    told = [row[0] for row in stage.rows(scripts.page("", "", 100))]
    assert told == sorted(name.encode() for name in DIFFERENT)


def test_a_name_of_512_bytes_with_a_prefix_of_as_many(stage: Stage) -> None:
    name = LONG + LONG
    assert claimed(stage, name=name)[0] == b"a"
    assert claimed(stage, name=name[:-1] + "x", owner="b")[0] == b"b"
    assert stage.row(scripts.look(name))[0] == b"a"
    assert [row[0] for row in stage.rows(scripts.page("", LONG, 10))] == [name[:-1].encode() + b"x", name.encode()]


def test_owners_are_compared_byte_by_byte(stage: Stage) -> None:
    claimed(stage, owner="a")
    for other in ("A", "a ", "a\0"):
        assert claimed(stage, owner=other)[0] == b"a"
        assert stage.rows(scripts.release("job", other, "")) == []


def test_pages_tell_names_with_a_prefix_in_the_order_of_their_bytes(stage: Stage) -> None:
    names = ["a", "ab", "a\x01", "a\x7f", "aé", "a\U0010ffff", "b", "", "A", "á"]
    for name in names:
        claimed(stage, name=name)
    under_a = sorted(name.encode() for name in names if name.startswith("a"))
    told: list[bytes] = []
    after = ""
    while page := stage.rows(scripts.page(after, "a", 2)):
        assert len(page) <= 2
        told += [row[0] for row in page if row[0] is not None]
        after = told[-1].decode()
    assert told == under_a


def test_a_prefix_that_ends_in_the_last_character_has_an_end(stage: Stage) -> None:
    for name in ("\U0010ffff", "\U0010ffffx", "\U0010fffe"):
        claimed(stage, name=name)
    assert [row[0] for row in stage.rows(scripts.page("", "\U0010ffff", 10))] == [
        "\U0010ffff".encode(),
        "\U0010ffffx".encode(),
    ]


def test_pages_tell_free_names_too_without_an_owner(stage: Stage) -> None:
    claimed(stage, name="held")
    claimed(stage, name="free")
    claimed(stage, name="over", ttl_us=SHORT)
    stage.rows(scripts.release("free", "a", ""))
    run_out(stage, "over")
    told = {row[0]: row[1] for row in stage.rows(scripts.page("", "", 10))}
    assert told == {b"held": b"a", b"free": None, b"over": None}


def test_pages_are_read_from_the_primary_key(stage: Stage) -> None:
    for each in range(20):
        claimed(stage, name=f"name {each:02}")
    (page,) = scripts.page("name 03", "name", 5)
    (plan,) = stage.rows([Query(Statement(f"EXPLAIN {page.statement.sql}"), page.values)])
    assert b"PRIMARY" in plan
    assert b"range" in plan
    assert b"Using where" in plan[-1:] or plan[-1] == b"Using where"


def test_a_sweep_forgets_names_that_are_free_and_idle(stage: Stage) -> None:
    for name in ("a", "b", "c", "d"):
        claimed(stage, name=name, ttl_us=2 * MINUTE)
    for name in ("a", "b"):
        stage.rows(scripts.release(name, "a", ""))
    stage.age(MINUTE)
    claimed(stage, name="b")
    stage.rows(scripts.release("b", "a", ""))  # idle for a moment only
    stage.age(SECOND)
    assert stage.rows(scripts.sweep(100, MINUTE)) == [(b"4",)]
    assert stage.sql("SELECT name FROM gripfast_lock ORDER BY name") == [(b"b",), (b"c",), (b"d",)]
    stage.age(2 * MINUTE)  # now those that nobody released have run out
    stage.rows(scripts.sweep(100, MINUTE))
    assert stage.sql("SELECT name FROM gripfast_lock") == []


def test_a_sweep_takes_the_oldest_first_and_says_how_many_they_were(stage: Stage) -> None:
    for name in "edcba":
        claimed(stage, name=name)
        stage.rows(scripts.release(name, "a", ""))
    stage.age(MINUTE)
    assert stage.rows(scripts.sweep(2, SECOND)) == [(b"2",)]
    assert stage.sql("SELECT name FROM gripfast_lock ORDER BY name") == [(b"a",), (b"b",), (b"c",)]
    assert [stage.rows(scripts.sweep(2, SECOND)) for _ in range(3)] == [[(b"2",)], [(b"1",)], [(b"0",)]]


def test_names_that_are_still_used_are_not_looked_at_again_before_they_may_be_idle(stage: Stage) -> None:
    for name in "abc":
        claimed(stage, name=name)
        stage.rows(scripts.release(name, "a", ""))
    stage.age(MINUTE)
    for name in "ab":
        claimed(stage, name=name)
        stage.rows(scripts.release(name, "a", ""))
    stage.rows(scripts.sweep(2, SECOND))
    assert stage.rows(scripts.sweep(2, SECOND)) == [(b"1",)]
    assert stage.rows(scripts.sweep(2, SECOND)) == [(b"0",)]
    assert stage.sql("SELECT name FROM gripfast_lock ORDER BY name") == [(b"a",), (b"b",)]


def test_a_name_that_somebody_has_locked_is_passed_over_by_the_sweep(stage: Stage) -> None:
    for name in "ab":
        claimed(stage, name=name)
        stage.rows(scripts.release(name, "a", ""))
    stage.age(MINUTE)
    own = stage.dial()
    locking = Statement("SELECT name FROM gripfast_lock WHERE name = 'a' FOR UPDATE")
    try:
        assert last(ask(own, [Query(Statement("START TRANSACTION")), Query(locking)])).rows == [(b"a",)]
        assert stage.rows(scripts.sweep(9, SECOND)) == [(b"1",)]
        assert stage.sql("SELECT name FROM gripfast_lock WHERE name NOT LIKE '%layout'") == [(b"a",)]
    finally:
        own.close()


def test_a_sweep_finds_what_is_due_by_an_index(stage: Stage) -> None:
    for each in range(200):
        claimed(stage, name=f"name {each:03}")
    statement, values = scripts.sweep(5, MINUTE)[0]
    (derived,) = re.findall(r"FROM \((SELECT name FROM .*)\) AS due", statement.sql)
    (plan,) = stage.rows([Query(Statement(f"EXPLAIN {derived}"), values)])
    assert b"gripfast_lock_checked" in plan
    assert b"range" in plan


def test_a_lease_that_was_held_for_long_is_idle_only_since_its_end(stage: Stage) -> None:
    claimed(stage)
    stage.age(5 * MINUTE)  # it has run out four minutes ago
    stage.rows(scripts.sweep(10, 4 * MINUTE + 30 * SECOND))
    assert stage.sql("SELECT name FROM gripfast_lock") == [(b"job",)]
    stage.rows(scripts.sweep(10, 3 * MINUTE))
    assert stage.sql("SELECT name FROM gripfast_lock") == []


def test_a_name_whose_token_is_ahead_of_the_clock_is_not_forgotten(stage: Stage) -> None:
    token = token_of(claimed(stage))
    stage.rows(scripts.release("job", "a", ""))
    stage.age(5 * MINUTE)
    stage.sql("UPDATE gripfast_lock SET token = :token", token=token + MINUTE)
    stage.rows(scripts.sweep(10, MINUTE))
    assert stage.sql("SELECT 1 FROM gripfast_lock") == [(b"1",)]


def test_of_many_who_claim_at_once_one_gets_it_and_tokens_grow(stage: Stage) -> None:
    """And a new name each time: what is inserted at once must not deadlock for ever."""
    with contextlib.ExitStack() as ends, concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        wires = [stage.dialect.dial(10.0, is_shared=True) for _ in range(THREADS)]
        for wire in wires:
            ends.callback(wire.close)
        for turn in range(30):
            name = f"race {turn % 10}"
            told = list(pool.map(ask_again, wires, [name] * THREADS))
            assert len({(row[0], row[1]) for row in told}) == 1, told
            winner = (told[0][0] or b"").decode()
            assert stage.rows(scripts.release(name, winner, "")) == [(b"1", b"0")]


def ask_again(wire: MysqlWire, name: str) -> Row:
    """A deadlock is told as one that may be asked again."""
    while True:
        told = ask(wire, scripts.claim(name, str(wire.session), MINUTE, CARD))
        if isinstance(told, list):
            return told[-1].rows[0]
        assert told.kind == "retry"


def test_leases_that_run_out_go_from_one_to_the_next_and_never_to_two(stage: Stage) -> None:
    """Expiry by the server's clock, under everybody's claims: an interval of one owner begins after the last ended."""
    with contextlib.ExitStack() as ends, concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        wires = [stage.dialect.dial(10.0, is_shared=True) for _ in range(THREADS)]
        for wire in wires:
            ends.callback(wire.close)
        told = [row for rows in pool.map(claim_for_a_while, wires) for row in rows]
    grants = {(number(row[1]), row[0]): row for row in told if row[0] is not None}
    assert len(grants) == len({token for token, _ in grants}), "two owners had the same token"
    starts = sorted(number(row[4]) for row in grants.values())
    assert len(starts) > 3
    assert all(later - earlier >= SHORT for earlier, later in itertools.pairwise(starts))


def claim_for_a_while(wire: MysqlWire) -> list[Row]:
    told = []
    until_then = time.monotonic() + 0.5
    turn = 0
    while time.monotonic() < until_then:
        turn += 1
        answered = ask(wire, scripts.claim("race", f"{wire.session}.{turn // 20}", SHORT, CARD))
        if isinstance(answered, list):
            told += answered[-1].rows
    return told


def test_the_tables_can_be_made_again(stage: Stage) -> None:
    claimed(stage)
    for statement in scripts.SCHEMA:
        ask(stage.shared, [Query(statement)])
        assert not statement.names, "what an operator is to run has places for values in it"
    assert stage.row(scripts.look("job"))[0] == b"a"
