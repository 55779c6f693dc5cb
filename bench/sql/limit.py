"""The limits: what Gripfast sends for a free lock of each mode, on bare connections, in one thread.

    lease       claim; release
    row         begin, and lock the row; the token, on a second connection; ask the first once more; end
    advisory    take it; the token, on the same connection; give it back

The statements are Gripfast's own, so they say the same about the owner and end a silent session as soon. Around them
there is nothing: no time-out, no renewal, no waiting, nobody who looks whether the session is still there. PostgreSQL's
are prepared, and those of a request leave together. Settings that a session of MariaDB has already are not sent again,
as Gripfast does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import TYPE_CHECKING

from bench.sql.wire import MariaWire, PostgresWire, Row, is_postgres

if TYPE_CHECKING:
    from gripfast.stores.sql.ports import Scripts
    from gripfast.stores.sql.statement import Query

NAME = "bare"
CHANNEL = "bare"
DATABASE = "bench"
TTL_US = 30_000_000
CARD = '{"host": "bench", "pid": 12345, "label": null}'
SESSION = 12345

Pair = Callable[[], None]
"""Takes a lock and gives it back."""

Asking = Callable[[Sequence["Query"]], Sequence[Row]]
"""Sends the statements of a request, and gives the rows of the last one."""

NOT_FREE = "the bare lock was not free"
LOST = "the bare lock was lost"


def had(is_so: object, otherwise: str) -> None:
    if not is_so:
        raise RuntimeError(otherwise)


def owners() -> Iterator[str]:
    return (f"{number:032x}" for number in count(1))


def scripts_for(url: str) -> Scripts:
    # Not at the top: who has no driver shall still see the list of scenarios.
    if is_postgres(url):
        from gripfast.stores.postgres import scripts as postgres_scripts

        return postgres_scripts
    from gripfast.stores.mysql import scripts as maria_scripts

    return maria_scripts


@contextmanager
def connection(url: str) -> Iterator[Asking]:
    """The tables are there."""
    with closing(PostgresWire(url) if is_postgres(url) else MariaWire(url)) as wire:
        if isinstance(wire, PostgresWire):
            wire.ask("SET client_min_messages = warning")
        for statement in scripts_for(url).SCHEMA:
            wire.ask(statement.sql)
        yield on_postgres(wire) if isinstance(wire, PostgresWire) else on_maria(wire)


def on_postgres(wire: PostgresWire) -> Asking:
    connection, rows, names = wire.connection, wire.rows, dict[object, bytes]()

    def send(ask: Query) -> None:
        statement, values = ask
        if not statement.names:  # BEGIN and its like: there is nothing to plan
            connection.send_query_params(statement.numbered, None)
            return
        given = [values[place] for place in statement.names]
        packed = [None if value is None else str(value).encode() for value in given]
        connection.send_query_prepared(names[statement], packed)

    def prepare(queries: Sequence[Query]) -> None:
        for statement, _ in queries:
            if statement not in names:
                names[statement] = b"bare_%d" % len(names)
                wire.prepare(names[statement], statement.numbered.decode())

    def ask(queries: Sequence[Query]) -> Sequence[Row]:
        prepare(queries)
        is_pipeline = len(queries) > 1
        if is_pipeline:
            connection.enter_pipeline_mode()
        for each in queries:
            send(each)
        if is_pipeline:
            connection.pipeline_sync()
        # Each result is followed by an empty one; after the last of a pipeline comes the sync.
        results = [connection.get_result() for _ in range(2 * len(queries) + is_pipeline)]
        if is_pipeline:
            connection.exit_pipeline_mode()
        return [rows(result) for result in results[: 2 * len(queries) : 2]][-1]

    return ask


def on_maria(wire: MariaWire) -> Asking:
    from gripfast.stores.mysql.packets import query as packet_of
    from gripfast.stores.mysql.scripts import Setting

    had_before: set[bytes] = set()

    def ask(queries: Sequence[Query]) -> Sequence[Row]:
        texts = []
        for query in queries:
            text = packet_of([query])[5:]  # behind its length and the command
            if isinstance(query.statement, Setting):
                if text in had_before:
                    continue
                had_before.add(text)
            texts.append(text)
        return wire.ask(b";".join(texts).decode())

    return ask


# -- one for each mode -------------------------------------------------------------------------------------------------


@contextmanager
def lease(url: str) -> Iterator[Pair]:
    scripts, ids = scripts_for(url), owners()
    with connection(url) as ask:

        def pair() -> None:
            owner = next(ids)
            held = ask(scripts.claim(NAME, owner, TTL_US, CARD))
            had(held[0][0] == owner.encode(), NOT_FREE)
            had(ask(scripts.release(NAME, owner, CHANNEL)), LOST)

        yield pair


@contextmanager
def row(url: str) -> Iterator[Pair]:
    scripts, ids = scripts_for(url), owners()
    with connection(url) as ask, connection(url) as ask_other:
        ask_other(scripts.row_make(NAME))

        def pair() -> None:
            locked = ask(scripts.row_try(NAME, TTL_US))
            had(locked, NOT_FREE)
            had(ask_other(scripts.grant("row", NAME, next(ids), SESSION, locked[0][0], TTL_US, CARD)), LOST)
            had(ask(scripts.ping("row", TTL_US)), LOST)
            ask(scripts.row_free())

        yield pair


@contextmanager
def advisory(url: str) -> Iterator[Pair]:
    scripts, ids = scripts_for(url), owners()
    key = scripts.advisory_key(DATABASE, NAME)
    with connection(url) as ask:

        def pair() -> None:
            had(ask(scripts.advisory_try(key, TTL_US))[0][0] == b"1", NOT_FREE)
            had(ask(scripts.grant("advisory", NAME, next(ids), SESSION, key, TTL_US, CARD)), LOST)
            had(ask(scripts.advisory_free(key))[0][0] == b"1", LOST)

        yield pair


@contextmanager
def commit(url: str) -> Iterator[Pair]:
    """Not a lock: a row written and on disk, what every durable change costs at least."""
    from gripfast.stores.sql.statement import Query, Statement

    counted = Statement("UPDATE bare_commit SET number = number + 1 WHERE name = :name")
    with connection(url) as ask:
        ask([Query(Statement("CREATE TABLE IF NOT EXISTS bare_commit (name VARCHAR(64) PRIMARY KEY, number BIGINT)"))])
        ask([Query(Statement("INSERT INTO bare_commit SELECT 'one', 1 WHERE NOT EXISTS (SELECT 1 FROM bare_commit)"))])
        queries = [Query(counted, {"name": "one"})]

        def update() -> None:
            ask(queries)

        yield update
