"""A worked example: a writer is paused between reading and writing for longer than its lease lasts.

The lock did nothing wrong: the lease was over, the next one in line got it. The paused writer can't know, and its write
arrives late. Unfenced it undoes what was written meanwhile. Fenced it is refused, and nothing is lost.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

import gripfast
from gripfast.fencing import Gate, guard, schema

Check = Callable[[int], None]


class Counter:
    """A row in a database; `check` is what its guard says to a token."""

    def __init__(self, connection: sqlite3.Connection, check: Check) -> None:
        self._connection, self._check = connection, check
        connection.execute("CREATE TABLE counter AS SELECT 0 AS value")
        connection.commit()

    def read(self) -> int:
        return int(self._connection.execute("SELECT value FROM counter").fetchone()[0])

    def write(self, value: int, token: int) -> None:
        with self._connection:
            self._check(token)
            self._connection.execute("UPDATE counter SET value = ?", (value,))


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(schema("sqlite"))
        yield connection


def increment(client: gripfast.Client, counter: Counter) -> Iterator[None]:
    """Read, be paused for as long as the caller likes, write."""
    with suppress(gripfast.LeaseLost), client.lock("counter", ttl=0.05, renew=False).acquire(wait=10) as lease:
        value = counter.read()
        yield
        counter.write(value + 1, lease.token)


def run_past_a_paused_writer(counter: Counter) -> int:
    """How many increments were acknowledged. The second writer gets the lock because the first one's lease runs out."""
    with gripfast.connect("memory://") as client:
        paused = increment(client, counter)
        next(paused)
        acknowledged = finish(increment(client, counter))
        return acknowledged + finish(paused)


def finish(writer: Iterator[None]) -> int:
    try:
        for _ in writer:
            pass
    except gripfast.StaleToken:
        return 0
    return 1


def test_without_a_fence_the_update_is_lost(connection: sqlite3.Connection) -> None:
    counter = Counter(connection, check=lambda token: None)
    assert run_past_a_paused_writer(counter) == 2
    assert counter.read() == 1


def test_with_a_guard_in_the_database_nothing_is_lost(connection: sqlite3.Connection) -> None:
    counter = Counter(connection, check=lambda token: guard(connection, "counter", token))
    assert run_past_a_paused_writer(counter) == counter.read() == 1


def test_with_a_gate_in_the_service_nothing_is_lost(connection: sqlite3.Connection) -> None:
    gate = Gate()
    counter = Counter(connection, check=lambda token: gate.guard("counter", token))
    assert run_past_a_paused_writer(counter) == counter.read() == 1


def test_the_refused_writer_may_start_over(connection: sqlite3.Connection) -> None:
    counter = Counter(connection, check=lambda token: guard(connection, "counter", token))
    run_past_a_paused_writer(counter)
    with gripfast.connect("memory://") as client:
        assert finish(increment(client, counter)) == 1
    assert counter.read() == 2
