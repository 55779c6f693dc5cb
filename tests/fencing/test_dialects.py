"""A connection is recognised by its class's full name, so that no driver is imported to be asked."""

import sqlite3
import sys
from contextlib import closing

import pytest

from holdfast.errors import ConfigurationError, StaleToken
from holdfast.fencing import dialects, guard, schema
from holdfast.fencing.dialect import Dialect


class Traced(sqlite3.Connection):
    """What an application may derive for itself."""


def test_a_derived_connection_is_guarded_too() -> None:
    with closing(sqlite3.connect(":memory:", factory=Traced)) as connection:
        connection.execute(schema("sqlite"))
        guard(connection, "stock", 2)
        with pytest.raises(StaleToken):
            guard(connection, "stock", 1)


def test_a_connection_of_an_unknown_kind_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match=r"no fencing guard for a builtins\.object; there is one for: sqlite"):
        guard(object(), "stock", 1)


def test_an_unknown_engine_has_no_schema_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigurationError, match="'oracle'; there is one for: sqlite"):
        schema("oracle")


def test_another_engine_joins_by_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    entry = Dialect(
        name="paper",
        connections=(f"{__name__}.Paper",),
        ddl="draw a table",
        guard=lambda connection, resource, token: calls.append((resource, token)),
    )
    monkeypatch.setattr(dialects, "DIALECTS", (*dialects.DIALECTS, entry))
    guard(Paper(), "stock", 7)
    assert calls == [("stock", 7)]
    assert schema("paper") == "draw a table"


class Paper:
    """A connection of an engine that Holdfast has never heard of."""


def test_the_names_in_the_table_are_those_of_the_drivers() -> None:
    for dialect in dialects.DIALECTS:
        for full_name in dialect.connections:
            module, _, name = full_name.rpartition(".")
            assert module not in sys.modules or isinstance(getattr(sys.modules[module], name), type)
