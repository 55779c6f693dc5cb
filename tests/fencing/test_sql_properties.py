"""Any sequence of writers and transactions: a server lets in exactly the tokens that nobody has overtaken."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from fencing.sql_databases import connect, fenced_database
from fencing.test_properties import admitted, expected, transactions
from gripfast.fencing import guard

pytestmark = pytest.mark.in_turn(2)

at_a_server = settings(
    max_examples=40,
    # The connection is the same for all examples: each begins with an empty table.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module", params=["postgresql", "mysql"])
def connection(request: pytest.FixtureRequest) -> Iterator[Any]:
    with fenced_database(request.param) as url, closing(connect(request.param, url)) as connection:
        yield connection


@at_a_server
@given(transactions)
def test_the_guard_follows_the_rule_and_what_is_rolled_back_was_never_seen(
    connection: Any, parts: list[tuple[bool, list[tuple[str, int]]]]
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM gripfast_fence")
    connection.commit()
    committed: list[tuple[str, int]] = []
    for commits, sequence in parts:
        answers = admitted(lambda *write: guard(connection, *write), sequence)
        assert answers == expected(committed + sequence)[len(committed) :]
        committed += sequence if commits else []
        connection.commit() if commits else connection.rollback()
