"""SQL text with named places for values. Values never become text of ours: each engine has its own safe way."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
