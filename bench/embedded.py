"""The embedded store beside the least that SQLite could do for the same: two bare transactions, one upsert each.

The bare side uses a database that Gripfast made, so the table has the same shape; it has the same settings.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count

import gripfast
from bench.gripfast_pair import BY_ASYNC_WITH, BY_CALLS, BY_WITH, by_async_with, by_calls, by_with
from bench.promise import at_most
from bench.scenario import Contestant, Place, Sample, Scenario
from bench.timing import per_operation

PAIRS = (500, 10)
"""In a full and in a quick round."""

TABLE = "gripfast_lock"
BARE = "bare transactions"


def url(place: Place) -> str:
    return f"sqlite:///{place.folder}/locks.db"


@contextmanager
def bare(place: Place) -> Iterator[Callable[[], Sample]]:
    """BEGIN IMMEDIATE, upsert, COMMIT: once to take, once to give back.

    Each writes a row that differs from the one before, as the lock's does: SQLite writes nothing for one that is equal.
    """
    with closing(sqlite3.connect(place.folder / "locks.db", isolation_level=None)) as connection:
        columns, row = held_row(place, connection)
        execute, upsert, tokens = connection.execute, upsert_of(columns), count(1)
        token, owner = columns.index("token"), columns.index("owner")
        before, between, after = row[:token], row[token + 1 : owner], row[owner + 1 :]

        def pair() -> None:
            number = next(tokens)
            for who in (row[owner], None):
                execute("BEGIN IMMEDIATE")
                execute(upsert, (*before, number, *between, who, *after))
                execute("COMMIT")

        yield lambda: per_operation(pair, place.size(*PAIRS))


def held_row(place: Place, connection: sqlite3.Connection) -> tuple[list[str], tuple[object, ...]]:
    """What Gripfast writes for a lock that is held; the connection gets the settings that Gripfast's have."""
    with gripfast.connect(url(place)) as client, client.lock("bench"):
        for setting in ("journal_mode = WAL", "synchronous = NORMAL"):
            connection.execute(f"PRAGMA {setting}")
        cursor = connection.execute(f"SELECT * FROM {TABLE}")
        return [column[0] for column in cursor.description], cursor.fetchone()


def upsert_of(columns: list[str]) -> str:
    """A statement that writes every column of one row."""
    values = ", ".join("?" for _ in columns)
    updates = ", ".join(f"{column} = excluded.{column}" for column in columns if column != "name")
    return f"INSERT INTO {TABLE} VALUES ({values}) ON CONFLICT (name) DO UPDATE SET {updates}"


EMBEDDED_PAIR = Scenario(
    name="embedded pair",
    about="acquiring and releasing a free lock in the embedded store, beside two bare transactions",
    contestants=(
        by_calls(BY_CALLS, url, PAIRS),
        by_with(BY_WITH, url, PAIRS),
        Contestant(BARE, bare),
    ),
    figure="µs",
    against=BARE,
    promises=tuple(at_most(who, 2.0, "µs", against=BARE) for who in (BY_CALLS, BY_WITH)),
)

EMBEDDED_PAIR_ASYNC = Scenario(
    name="embedded pair, asyncio",
    about="the same on an event loop, which the database must not block, beside the same bare transactions",
    contestants=(by_async_with(BY_ASYNC_WITH, url, PAIRS), Contestant(BARE, bare)),
    figure="µs",
    against=BARE,
)
