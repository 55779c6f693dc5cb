"""SQL text with named places for values. Values never become text of ours: each engine has its own safe way."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

Value = int | float | str | bytes | None

_PLACE = re.compile(r"(?<!:):([a-z_]+)\b")
"""`:name`; `::` is a cast."""


class Statement:
    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.names = tuple(dict.fromkeys(_PLACE.findall(sql)))
        """Each once, in the order in which they first occur."""
        self.numbered = _PLACE.sub(lambda found: f"${self.names.index(found[1]) + 1}", sql).encode()
        self.template = _PLACE.sub(r"%(\1)b", sql.replace("%", "%%")).encode()
        """For `%` and a dict of bytes."""

    def __repr__(self) -> str:
        return f"Statement({self.sql!r})"


class Query(NamedTuple):
    statement: Statement
    values: Mapping[str, Value] = {}


class Script:
    """A request: statements that leave together. Its values are given in the order of `names`, and each statement takes
    those that it has places for."""

    def __init__(self, names: str, *statements: str | Statement) -> None:
        self._names = names.split()
        self.statements = tuple(Statement(each) if isinstance(each, str) else each for each in statements)

    def __call__(self, *values: Value) -> list[Query]:
        assert len(values) == len(self._names), self._names
        given = dict(zip(self._names, values))  # noqa: B905 # `strict` costs more than the assertion
        return [Query(statement, given) for statement in self.statements]


def takes(names: str) -> Callable[..., Script]:
    """takes("name owner")(text, …): a script of these texts, with these values."""
    return functools.partial(Script, names)


class ByMode(dict[str, Callable[..., list[Query]]]):
    """A script for each mode of locks in sessions."""

    def __call__(self, mode: str, *values: Value) -> list[Query]:
        return self[mode](*values)
