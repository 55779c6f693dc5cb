"""Bare connections: the benchmarks' own questions to a server, and what the limits are made of."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

from bench.scenario import Sample

Row = tuple[bytes | None, ...]


class Wire(Protocol):
    """One connection on which every statement commits by itself."""

    def ask(self, sql: str) -> list[Row]: ...

    def close(self) -> None: ...


class PostgresWire:
    """libpq, as psycopg brings it, with no cursor around it."""

    def __init__(self, url: str) -> None:
        pq = importlib.import_module("psycopg.pq")
        self._good = {int(pq.ExecStatus.TUPLES_OK), int(pq.ExecStatus.COMMAND_OK)}
        self.connection = pq.PGconn.connect(url.encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise ConnectionError(self.connection.get_error_message())

    def ask(self, sql: str) -> list[Row]:
        return self.rows(self.connection.exec_(sql.encode()))

    def prepare(self, name: bytes, sql: str) -> None:
        self.rows(self.connection.prepare(name, sql.encode()))

    def rows(self, result: Any) -> list[Row]:
        if result.status not in self._good:
            raise RuntimeError(result.get_error_message())
        columns = range(result.nfields)
        return [tuple(result.get_value(row, column) for column in columns) for row in range(result.ntuples)]

    def close(self) -> None:
        self.connection.finish()


class MariaWire:
    """PyMySQL's connection, with no cursor around it; several statements, with ; between them, are one request."""

    def __init__(self, url: str) -> None:
        pymysql = importlib.import_module("pymysql")
        parts = urlsplit(url)
        self.connection = pymysql.connect(
            host=parts.hostname,
            port=parts.port,
            user=parts.username,
            database=parts.path.removeprefix("/"),
            autocommit=True,
            client_flag=importlib.import_module("pymysql.constants.CLIENT").MULTI_STATEMENTS,
        )
        # Columns as the server wrote them.
        self.connection.decoders = {}

    def ask(self, sql: str) -> list[Row]:
        """What the last of the statements tells: its rows, or the number that it handed on."""
        connection = self.connection
        connection.query(sql)
        while connection._result.has_next:
            connection.next_result()
        result = connection._result
        if result.rows is None and result.insert_id:
            return [(b"%d" % result.insert_id,)]
        return [tuple(_as_bytes(value) for value in row) for row in result.rows or ()]

    def close(self) -> None:
        self.connection.close()


def _as_bytes(value: object) -> bytes | None:
    return None if value is None else value if isinstance(value, bytes) else str(value).encode()


def is_postgres(url: str) -> bool:
    return url.startswith("postgresql")


def wire_to(url: str) -> Wire:
    """The URL's options are Gripfast's."""
    bare = url.partition("?")[0]
    return PostgresWire(bare) if is_postgres(url) else MariaWire(bare)


def number(rows: Sequence[Row]) -> float:
    """Of an answer that is a single number."""
    ((value,),) = rows
    return float(value or 0)


COUNTED = "statements"

POSTGRES_COUNT = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'"
MARIA_COUNT = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'"


@contextmanager
def counters(url: str) -> Iterator[Callable[[], Sample]]:
    """How many statements the server has carried out so far, those of this connection left out.

    PostgreSQL must have been started with COUNTING; BEGIN and the like, once prepared, are not counted by it again.
    """
    with closing(wire_to(url)) as wire:
        if is_postgres(url):
            wire.ask("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            yield lambda: {COUNTED: number(wire.ask(POSTGRES_COUNT))}
            return
        own = 0

        def counted() -> Sample:
            nonlocal own
            own += 1
            return {COUNTED: number(wire.ask(MARIA_COUNT)) - own}

        yield counted


def sessions(wire: Wire) -> set[bytes | None]:
    """Whom the server serves, this connection included, by the numbers that it gave them."""
    if isinstance(wire, PostgresWire):
        told = wire.ask("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")
    else:
        # Its own threads belong to the system user.
        told = wire.ask("SELECT id FROM information_schema.processlist WHERE user <> 'system user'")
    return {row[0] for row in told}
