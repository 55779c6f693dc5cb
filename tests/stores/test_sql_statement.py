"""Texts with places for values: what stands in a value is never read as text of ours."""

import binascii
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripfast.stores.mysql.packets import filled, literal
from gripfast.stores.sql.statement import Statement

NAMES = ("name", "owner", "ttl_us", "a", "prefix_end")
PLAIN = st.text("abz019 ,()=<>*\n'%$é", max_size=8)
"""Between places; a colon in it would have to be a cast."""
VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"])), st.binary()
)
PIECES = st.lists(st.tuples(PLAIN, st.sampled_from(NAMES)), max_size=6)


def written(pieces: list[tuple[str, str]]) -> str:
    """A space before and behind each place, as in every text of ours."""
    return "".join(f"{text} :{name} " for text, name in pieces)


@given(PIECES, st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES)))
def test_each_place_is_filled_with_its_value_and_nothing_else_is_changed(
    pieces: list[tuple[str, str]], values: dict[str, Any]
) -> None:
    text = filled(Statement(written(pieces)), values)
    assert text == b"".join(f"{text} ".encode() + literal(values[name]) + b" " for text, name in pieces)


@given(PIECES)
def test_places_are_numbered_by_name_in_the_order_of_their_first_use(pieces: list[tuple[str, str]]) -> None:
    statement = Statement(written(pieces))
    assert statement.names == tuple(dict.fromkeys(name for _, name in pieces))
    numbers = [f"{text} ${statement.names.index(name) + 1} " for text, name in pieces]
    assert statement.numbered.decode() == "".join(numbers)


@pytest.mark.parametrize("sql", ["SELECT 1::bigint", "SET time_zone = '+00:00'", "SELECT x::text = ''", "a :: int"])
def test_a_cast_and_a_time_zone_are_no_places(sql: str) -> None:
    statement = Statement(sql)
    assert statement.names == ()
    assert statement.numbered == filled(statement, {}) == sql.encode()


def test_a_place_can_be_cast() -> None:
    statement = Statement("SELECT :ttl_us::bigint + :ttl_us")
    assert statement.numbered == b"SELECT $1::bigint + $1"


@given(st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.binary()))
def test_text_is_written_in_characters_that_end_no_literal(value: str | bytes) -> None:
    text = literal(value)
    assert re.fullmatch(rb"x'[0-9a-f]*'", text)
    assert binascii.unhexlify(text[2:-1]) == (value.encode() if isinstance(value, str) else value)


def test_a_value_that_is_missing_is_no_null() -> None:
    with pytest.raises(KeyError):
        filled(Statement("SELECT :name"), {})
