"""What the doctors of all databases have in common: how facts are gathered, and the checks about tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from gripfast.machine import boottime
from gripfast.stores.doctor import Finding, advice
from gripfast.stores.sql.descriptors import await_answer
from gripfast.stores.sql.ports import Dialect, LinkDown, Refusal
from gripfast.stores.sql.statement import Query, Statement

CROWDED = 0.8
"""Of the connections that a server may have."""
MANY_NAMES = 1_000_000

NAMES = advice(
    "sql-many-names",
    "the table {table} has about {rows} rows",
    why="Gripfast deletes a name when it was free for a day. So either programs make that many names in a day, or "
    "Gripfast can't delete them. That costs space, and makes listing slow.",
    todo="Use fewer names (a name for each kind of work, not for each piece), and GRANT DELETE ON {table} to "
    "Gripfast's user if it has no such right",
)


class Table(NamedTuple):
    name: str
    rows: int


def judge_tables(tables: Sequence[Table]) -> Iterator[Finding]:
    for table in tables:
        if table.rows > MANY_NAMES:
            yield NAMES(table=table.name, rows=f"{table.rows:,}")


Row = tuple[str | None, ...]


class Asking:
    """A connection for questions. Raises LinkDown when it can't be made, or breaks."""

    def __init__(self, dialect: Dialect, timeout: float) -> None:
        self._dialect = dialect
        self._timeout = timeout
        self.wire = dialect.dial(timeout, is_shared=True)

    def rows(self, sql: str) -> list[Row]:
        """None at all if this user may not know."""
        try:
            sent = self.wire.send([Query(Statement(sql))])
            answer = await_answer(self.wire, sent, boottime() + self._timeout)
        except OSError as error:
            raise self._broken(str(error)) from None
        if answer is None:
            raise self._broken("no answer in time")
        if isinstance(answer, Refusal):
            return []
        return [
            tuple(None if cell is None else cell.decode(errors="replace") for cell in row) for row in answer[-1].rows
        ]

    def value(self, sql: str) -> str | None:
        """The first of the first row; None if it is not known."""
        found = self.rows(sql)
        return found[0][0] if found else None

    def pairs(self, sql: str) -> dict[str, str]:
        return {name or "": value or "" for name, value in self.rows(sql)}

    def _broken(self, why: str) -> LinkDown:
        return LinkDown(self._dialect.refused(Refusal("other", "0", why)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.wire.close()
