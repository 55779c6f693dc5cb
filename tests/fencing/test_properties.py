"""Any sequence of writers: both guards let in exactly the tokens that nobody has overtaken."""

import sqlite3
from collections.abc import Callable
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from gripfast.errors import StaleToken
from gripfast.fencing import Gate, guard, schema

resources = st.sampled_from(["stock", "prices", "STOCK"])
tokens = st.integers(0, 5) | st.integers(2**53 - 2, 2**53 + 2) | st.integers(2**63 - 4, 2**63 - 2)
writes = st.lists(st.tuples(resources, tokens), max_size=30)


def admitted(check: Callable[[str, int], None], sequence: list[tuple[str, int]]) -> list[bool]:
    return [admits(check, resource, token) for resource, token in sequence]


def admits(check: Callable[[str, int], None], resource: str, token: int) -> bool:
    try:
        check(resource, token)
    except StaleToken as refusal:
        return refusal.seen <= token  # a refusal that names no larger token counts as let in
    return True


def expected(sequence: list[tuple[str, int]]) -> list[bool]:
    """The rule itself: no earlier write of this resource had a larger token."""
    return [
        all(token >= earlier for name, earlier in sequence[:at] if name == resource)
        for at, (resource, token) in enumerate(sequence)
    ]


@given(writes)
def test_the_gate_follows_the_rule(sequence: list[tuple[str, int]]) -> None:
    assert admitted(Gate().guard, sequence) == expected(sequence)


@given(writes)
def test_the_sqlite_guard_follows_the_rule(sequence: list[tuple[str, int]]) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(schema("sqlite"))
        assert admitted(lambda *write: guard(connection, *write), sequence) == expected(sequence)


transactions = st.lists(st.tuples(st.booleans(), writes), max_size=8)


@given(transactions)
def test_what_is_rolled_back_was_never_seen(parts: list[tuple[bool, list[tuple[str, int]]]]) -> None:
    committed: list[tuple[str, int]] = []
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(schema("sqlite"))
        for commits, sequence in parts:
            answers = admitted(lambda *write: guard(connection, *write), sequence)
            assert answers == expected(committed + sequence)[len(committed) :]
            committed += sequence if commits else []
            connection.commit() if commits else connection.rollback()
