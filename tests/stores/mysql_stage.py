"""Wires to a real MariaDB, asked by hand."""

import contextlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from gripfast.stores.mysql import factory, scripts
from gripfast.stores.mysql.wire import MysqlWire
from gripfast.stores.sql.descriptors import is_ready
from gripfast.stores.sql.ports import Answer, Refusal, Rows
from gripfast.stores.sql.statement import Query, Statement
from support.sql_servers import MariaServer

PATIENCE = 10.0
SECOND = 1_000_000
MINUTE = 60 * SECOND
SHORT = 20_000
"""A lease that a test waits for, in microseconds like the others."""
CARD = '{"host": "here", "pid": 1, "label": "größe"}'
Row = tuple[bytes | None, ...]


def dialect(url: str) -> factory.MysqlDialect:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    options.pop("prefix", None)
    made = factory.dialect(parts, options)
    assert not options
    return made


def answer(wire: MysqlWire, within: float = PATIENCE) -> Answer:
    """To what was sent before."""
    while True:
        assert is_ready(wire.fileno(), within, not wire.flush()), "no answer"
        told = wire.receive()
        if told is not None:
            return told


def ask(wire: MysqlWire, queries: Sequence[Query], within: float = PATIENCE) -> Answer:
    wire.send(queries)
    return answer(wire, within)


def last(told: Answer) -> Rows:
    """What the last statement did."""
    assert isinstance(told, list), told
    return told[-1]


def number(column: bytes | None) -> int:
    assert column is not None
    return int(column)


class Stage:
    """A database with the tables in it, a shared wire, and as many others as a test wants."""

    def __init__(self, url: str) -> None:
        self.dialect = dialect(url)
        self._open = contextlib.ExitStack()
        self.shared = self.dial(is_shared=True)
        ask(self.shared, [Query(each) for each in scripts.SCHEMA])

    def dial(self, is_shared: bool = False, timeout: float = PATIENCE) -> MysqlWire:
        wire = self.dialect.dial(timeout, is_shared)
        self._open.callback(wire.close)
        return wire

    def rows(self, queries: Sequence[Query], wire: MysqlWire | None = None) -> list[Row]:
        return last(ask(wire or self.shared, queries)).rows

    def row(self, queries: Sequence[Query], wire: MysqlWire | None = None) -> Row:
        (row,) = self.rows(queries, wire)
        return row

    def refusal(self, queries: Sequence[Query], wire: MysqlWire | None = None) -> Refusal:
        told = ask(wire or self.shared, queries)
        assert isinstance(told, Refusal)
        return told

    def sql(self, text: str, wire: MysqlWire | None = None, **values: Any) -> list[Row]:
        return self.rows([Query(Statement(text), values)], wire)

    def age(self, microseconds: int, table: str = "gripfast_lock") -> None:
        """As if all of it had happened that much earlier."""
        ends = ", expires_us = expires_us - :us" if table == "gripfast_lock" else ""
        used = "since_us = since_us - :us, token = token - :us, checked_us = checked_us - :us"
        self.sql(f"UPDATE {table} SET {used}{ends}", us=microseconds)

    def empty(self) -> None:
        ask(self.shared, [Query(Statement(f"DELETE FROM gripfast_{each}")) for each in ("lock", "row", "grant")])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()


@contextlib.contextmanager
def staged(server: MariaServer) -> Iterator[Stage]:
    with server.fresh_database() as url, Stage(url) as stage:
        yield stage
