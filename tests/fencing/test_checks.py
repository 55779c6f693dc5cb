"""Bad tokens and bad resource names are refused alike by every guard, before anything is compared or written."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from gripfast.errors import ConfigurationError
from gripfast.fencing import Gate, guard, schema

Guard = Callable[[object, object], None]


@pytest.fixture(params=["gate", "writing", "sqlite"])
def check(request: pytest.FixtureRequest) -> Iterator[Guard]:
    gate = Gate()
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(schema("sqlite"))
        guards = {
            "gate": gate.guard,
            "writing": lambda resource, token: gate.writing(resource, token).__enter__(),
            "sqlite": lambda resource, token: guard(connection, resource, token),
        }
        yield guards[request.param]


@pytest.mark.parametrize("token", [True, False, -1, 2**63 - 1, 2**63, 1.0, "7", None])
def test_a_token_that_no_lease_can_have_is_refused(check: Guard, token: object) -> None:
    with pytest.raises(ConfigurationError, match="fencing token"):
        check("stock", token)


@pytest.mark.parametrize("resource", ["", "a\0b", "x" * 513, "é" * 257, "\ud800", 7, None, b"stock"])
def test_a_resource_name_that_some_engine_could_not_keep_is_refused(check: Guard, resource: object) -> None:
    with pytest.raises(ConfigurationError, match="resource"):
        check(resource, 1)


@pytest.mark.parametrize("token", [0, 2**53, 2**63 - 2])
def test_the_outermost_tokens_are_taken(check: Guard, token: int) -> None:
    check("stock", token)


@pytest.mark.parametrize("resource", ["x" * 512, "a b", "a'b", "库存", "\U0001f512"])
def test_any_other_name_is_taken(check: Guard, resource: str) -> None:
    check(resource, 1)
