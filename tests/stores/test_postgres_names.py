"""Names in PostgreSQL: which are the same, in what order they come, when they are forgotten; and their tables."""

import threading
from collections.abc import Iterator

import pytest

from gripfast.stores.postgres import scripts
from gripfast.stores.postgres.wire import PostgresWire
from gripfast.stores.sql.protocol import beginning_with, read_held
from gripfast.stores.sql.statement import Query, Statement
from stores.postgres_requests import (
    CARD,
    TTL,
    alter,
    answered,
    ask,
    claimed,
    clock_us,
    drop_tables,
    looked,
    make_tables,
    new_name,
    refused,
    sql,
    told,
    wire_to,
)
from support.sql_servers import postgres_server

DAY = 24 * 3600 * 1_000_000


@pytest.fixture
def wire() -> Iterator[PostgresWire]:
    with wire_to() as wire:
        make_tables(wire)
        yield wire


@pytest.fixture
def other() -> Iterator[PostgresWire]:
    with wire_to(is_shared=False) as other:
        yield other


# Names ----------------------------------------------------------------------------------------------------------------


def test_names_are_compared_byte_by_byte(wire: PostgresWire) -> None:
    base = new_name("")
    names = ["Job", "job", "job ", " job", "jöb", "jo\u0308b", "job\u200b", "job\n", "j%b", "j_b", "'", '"', "\\"]
    names += ["🔒" * 128, "🔒" * 127 + "🔑"]
    for name in names:
        assert claimed(wire, base + name, name).owner == name
    rows = told(wire, scripts.page("", base, 100))
    assert [row[0] for row in rows] == sorted((base + name).encode() for name in names)


def test_the_longest_prefix_and_the_longest_name_fit(wire: PostgresWire) -> None:
    name = new_name("")[:33].ljust(512, "p") + "🔒" * 128
    assert len(name.encode()) == 1024
    assert claimed(wire, name, "a").owner == "a"
    assert looked(wire, name) is not None


LAST = "\U0010ffff"
BOUNDARIES = [
    "a",
    "a\ud7ff",
    "a\ud7ffz",
    "a\ue000",
    "ab",
    f"a{LAST}",
    f"a{LAST}{LAST}b",
    "b",
    LAST,
    f"{LAST}{LAST}",
    "\x7f",
    "\x80",
]


@pytest.fixture(scope="module")
def boundaries() -> Iterator[PostgresWire]:
    """A database with these names, and no others."""
    with postgres_server().fresh_database() as url, wire_to(url) as wire:
        make_tables(wire)
        answered(wire, sql("DELETE FROM gripfast_lock"))
        for name in BOUNDARIES:
            claimed(wire, name, "a")
        yield wire


@pytest.mark.parametrize(
    "prefix", ["", "a", "a\ud7ff", f"a{LAST}", f"a{LAST}{LAST}", LAST, f"{LAST}{LAST}", "\x7f", "c"]
)
def test_a_page_has_the_names_with_the_prefix_and_no_others(boundaries: PostgresWire, prefix: str) -> None:
    expected = sorted(name.encode() for name in BOUNDARIES if name.startswith(prefix))
    found: list[bytes] = []
    while rows := told(boundaries, scripts.page(found[-1].decode() if found else "", prefix, 2)):
        assert len(rows) <= 2
        found += [row[0] or b"" for row in beginning_with(prefix, rows)]
        if len(beginning_with(prefix, rows)) < 2:
            break
    assert found == expected


def test_a_page_includes_names_that_nobody_has(wire: PostgresWire) -> None:
    base = new_name("")
    claimed(wire, base + "free", "a")
    told(wire, scripts.release(base + "free", "a", "c"))
    claimed(wire, base + "held", "a")
    claimed(wire, base + "over", "a", ttl_us=1)
    rows = told(wire, scripts.page("", base, 10))
    owners = {(row[0] or b"").decode().removeprefix(base): read_held(row[1:]).owner for row in rows}
    assert owners == {"free": None, "held": "a", "over": None}


@pytest.mark.parametrize("prefix", ["", "5"])
def test_a_page_is_read_from_the_index_and_no_further_than_the_prefix(prefix: str) -> None:
    with postgres_server().fresh_database() as url, wire_to(url) as wire:
        make_tables(wire)
        columns = "name, token, expires_us, ttl_us, since_us, card"
        numbers = "SELECT n::text, 1, 1, 1, 1, '' FROM generate_series(1, 5000) AS n"
        answered(wire, sql(f"INSERT INTO gripfast_lock ({columns}) {numbers}"))
        answered(wire, sql("ANALYZE gripfast_lock"))
        answered(wire, sql("SET plan_cache_mode = force_generic_plan"))
        ((statement, values),) = scripts.page("", prefix, 100)
        plan = told(wire, [Query(Statement(f"EXPLAIN {statement.sql}"), values)])
        text = b"\n".join(line or b"" for (line,) in plan)
        assert b"Index Scan" in text
        assert b"Filter" not in text
        assert (b"name < " in text) == bool(prefix)


# Sweeping -------------------------------------------------------------------------------------------------------------


def test_idle_names_are_swept_and_those_that_are_used_come_again_later(wire: PostgresWire) -> None:
    with postgres_server().fresh_database() as url, wire_to(url) as wire:
        make_tables(wire)
        for name in ("a-free", "b-held", "c-over", "d-ahead", "e-young", "f-free"):
            claimed(wire, name, "x")
            alter(wire, name, "token = 1, since_us = 1")
        for name in ("a-free", "d-ahead", "e-young", "f-free"):
            alter(wire, name, "owner = NULL")
        alter(wire, "c-over", "expires_us = 1")
        alter(wire, "d-ahead", f"token = {clock_us(wire) + DAY}")
        alter(wire, "e-young", f"since_us = {clock_us(wire)}")
        answered(wire, sql("UPDATE gripfast_lock SET checked_us = 1"))
        assert [told(wire, scripts.sweep(4, DAY)) for _ in range(3)] == [[(b"4",)], [(b"3",)], [(b"0",)]]
        left = [(row[0] or b"").rstrip(b".") for row in told(wire, scripts.page("", "", 100))]
        assert left == [b"b-held", b"d-ahead", b"e-young", b"gripfast layout"]


def test_the_reason_of_a_force_release_is_no_lock_and_is_swept_with_the_idle_names(wire: PostgresWire) -> None:
    with postgres_server().fresh_database() as url, wire_to(url) as wire:
        make_tables(wire)
        claimed(wire, "job", "a")
        answered(wire, scripts.force_release_noted("job", "c", "why"))
        rows = told(wire, scripts.page("", "", 100))
        long = [(len(name or b"") > 1024, owner) for name, owner, *_ in rows]
        assert long == [(True, None), (True, None), (False, None)]  # the number of the layout, and the reason
        answered(wire, sql("UPDATE gripfast_lock SET checked_us = 1, token = 1, since_us = 1"))
        assert told(wire, scripts.sweep(100, DAY)) == [(b"3",)]
        assert told(wire, scripts.page("", "", 100)) == []


def test_a_name_that_somebody_is_working_on_is_not_waited_for_by_the_sweep(
    wire: PostgresWire, other: PostgresWire
) -> None:
    name = new_name()
    claimed(wire, name, "a")
    alter(wire, name, "token = 1, since_us = 1, owner = NULL, checked_us = 1")
    ask(other, sql("BEGIN"))
    claimed(other, name, "b")
    answered(wire, scripts.sweep(100, DAY))
    ask(other, sql("COMMIT"))
    assert looked(wire, name) is not None


@pytest.mark.parametrize("mode", ["lease", "row", "advisory"])
def test_a_sweep_finds_what_is_due_by_an_index(mode: str) -> None:
    with postgres_server().fresh_database() as url, wire_to(url) as wire:
        make_tables(wire)
        for table in ("gripfast_lock", "gripfast_row", "gripfast_grant"):
            filled(wire, table)
        answered(wire, sql("SET plan_cache_mode = force_generic_plan"))
        ((statement, values),) = scripts.sweep(100, DAY) if mode == "lease" else scripts.sweep_sessions(mode, 100, DAY)
        plan = told(wire, [Query(Statement(f"EXPLAIN {statement.sql}"), values)])
        text = b"\n".join(line or b"" for (line,) in plan)
        assert b"_checked on" in text
        assert b"Index Cond: (" in text.partition(b"_checked on")[2].splitlines()[1]
        assert b"Seq Scan on gripfast" not in text


def filled(wire: PostgresWire, table: str) -> None:
    columns, numbers = {
        "gripfast_lock": ("name, token, expires_us, ttl_us, since_us, card", "n::text, 1, 1, 1, 1, ''"),
        "gripfast_row": ("name", "n::text"),
        "gripfast_grant": (
            "mode, name, token, owner, session, mark, ttl_us, since_us, card",
            "'advisory', n::text, 1, 'a', 1, '', 1, 1, ''",
        ),
    }[table]
    answered(wire, sql(f"INSERT INTO {table} ({columns}) SELECT {numbers} FROM generate_series(1, 5000) AS n"))
    answered(wire, sql(f"ANALYZE {table}"))


# Tables ---------------------------------------------------------------------------------------------------------------


def test_tables_may_be_made_again_and_by_several_at_once() -> None:
    with postgres_server().fresh_database() as url:

        def work() -> None:
            with wire_to(url) as wire:
                make_tables(wire)
                make_tables(wire)
                claimed(wire, "job", "a")

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with wire_to(url) as wire:
            assert looked(wire, "job") is not None


def test_without_tables_and_without_rights_it_is_refused_as_such() -> None:
    server = postgres_server()
    with server.fresh_database() as url, wire_to(url) as wire:
        drop_tables(wire)
        assert refused(wire, scripts.claim("job", "a", TTL, CARD)).kind == "no_table"
        make_tables(wire)
        claimed(wire, "job", "a")
        database = url.rpartition("/")[2]
        server.execute("ALTER TABLE gripfast_lock OWNER TO postgres", database=database)
        refusal = refused(wire, scripts.claim("job", "a", TTL, CARD))
        assert refusal.kind == "no_rights"


def test_these_rights_are_enough(wire: PostgresWire) -> None:
    server = postgres_server()
    with server.fresh_database() as url, wire_to(url) as wire:
        make_tables(wire)
        database = url.rpartition("/")[2]
        tables = "gripfast_lock, gripfast_row, gripfast_grant"
        for table in tables.split(", "):
            server.execute(f"ALTER TABLE {table} OWNER TO postgres", database=database)
        server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO gripfast", database=database)
        name, key = "job", scripts.advisory_key("", "job")
        for queries in (
            scripts.claim(name, "a", TTL, CARD), scripts.register(name, 1), scripts.renew(name, "a", TTL, False),
            scripts.why(name, "a"), scripts.release(name, "a", "c"), scripts.force_release(name, "c"),
            scripts.force_release_noted(name, "c", "why"),
            scripts.look(name), scripts.page("", "", 1), scripts.sweep(1, 1), scripts.listen("c"),
            scripts.row_make(name), scripts.row_try(name, TTL), scripts.row_free(),
            scripts.row_wait(name, TTL, TTL), scripts.row_free(), scripts.advisory_try(key, TTL),
            scripts.advisory_wait(key, TTL, TTL), scripts.advisory_free(key), scripts.ping("advisory", TTL),
            scripts.grant("row", name, "a", 1, "1", TTL, CARD), scripts.seen("row", name),
            scripts.seen("advisory", name), scripts.seen_page("row", "", "", 1), scripts.end_session(1, ""),
            scripts.seen_page("advisory", "", "", 1), scripts.sweep_sessions("row", 1, 1),
            scripts.sweep_sessions("advisory", 1, 1),
        ):  # fmt: skip
            answered(wire, queries)
