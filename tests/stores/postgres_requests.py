"""Asking a real PostgreSQL, through the wire and the scripts of the store and nothing else."""

import select
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlsplit

from gripfast.stores.postgres import scripts
from gripfast.stores.postgres.dial import PostgresDialect
from gripfast.stores.postgres.factory import dialect
from gripfast.stores.postgres.wire import PostgresWire
from gripfast.stores.sql.ports import Answer, Refusal, Rows
from gripfast.stores.sql.protocol import Held, Row, read_held
from gripfast.stores.sql.statement import Query, Statement
from support.proxy import Proxy
from support.sql_servers import postgres_server

TTL = 30_000_000
CARD = '{"host": "there", "pid": 1, "label": null}'


def dialect_of(url: str) -> PostgresDialect:
    split = urlsplit(url)
    return dialect(split, dict(parse_qsl(split.query)))


def new_name(text: str = "job") -> str:
    return f"{uuid.uuid4().hex}:{text}"


@contextmanager
def wire_to(url: str = "", *, is_shared: bool = True, timeout: float = 10.0) -> Iterator[PostgresWire]:
    wire = dialect_of(url or postgres_server().url).dial(timeout, is_shared)
    try:
        yield wire
    finally:
        wire.close()


@contextmanager
def wire_through(proxy: Proxy, *, is_shared: bool = True) -> Iterator[PostgresWire]:
    url = postgres_server().url.replace(f":{postgres_server().port}/", f":{proxy.port}/")
    with wire_to(url, is_shared=is_shared) as wire:
        yield wire


def make_tables(wire: PostgresWire) -> None:
    """Another test's worker may be doing the same."""
    while isinstance(answer := ask(wire, [Query(each) for each in scripts.SCHEMA]), Refusal):
        assert answer.kind == "retry", answer


def drop_tables(wire: PostgresWire) -> None:
    """They were made when the connection was."""
    answered(wire, sql("DROP TABLE gripfast_lock, gripfast_row, gripfast_grant"))


def ask(wire: PostgresWire, queries: Sequence[Query], within: float = 20.0) -> Answer:
    wire.send(queries)
    return answer_of(wire, within)


def answer_of(wire: PostgresWire, within: float = 20.0) -> Answer:
    deadline = time.monotonic() + within
    while (answer := has_answered(wire, deadline)) is None:
        assert time.monotonic() < deadline, "no answer"
    return answer


def has_answered(wire: PostgresWire, until: float = 0.0) -> Answer | None:
    wanted = select.POLLIN if wire.flush() else select.POLLIN | select.POLLOUT
    poll = select.poll()
    poll.register(wire.fileno(), wanted)
    poll.poll(max(0.0, until - time.monotonic()) * 1000)
    return wire.receive()


def told(wire: PostgresWire, queries: Sequence[Query]) -> list[Row]:
    """The rows of the last statement, which must not be refused."""
    return answered(wire, queries).rows


def answered(wire: PostgresWire, queries: Sequence[Query]) -> Rows:
    answer = ask(wire, queries)
    assert not isinstance(answer, Refusal), answer
    return answer[-1]


def refused(wire: PostgresWire, queries: Sequence[Query]) -> Refusal:
    answer = ask(wire, queries)
    assert isinstance(answer, Refusal), answer
    return answer


def claimed(wire: PostgresWire, name: str, owner: str, ttl_us: int = TTL, card: str = CARD) -> Held:
    (row,) = told(wire, scripts.claim(name, owner, ttl_us, card))
    return read_held(row)


def looked(wire: PostgresWire, name: str) -> Held | None:
    rows = told(wire, scripts.look(name))
    return read_held(rows[0]) if rows else None


def sql(text: str) -> list[Query]:
    """Of a test's own, without values from anywhere else."""
    return [Query(Statement(text))]


def setting(wire: PostgresWire, name: str) -> str:
    ((value,),) = told(wire, sql(f"SHOW {name}"))
    return (value or b"").decode()


def clock_us(wire: PostgresWire) -> int:
    ((value,),) = told(wire, sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"))
    return int(value or 0)


def prepared(wire: PostgresWire) -> int:
    """How many statements the server has prepared for it."""
    ((count,),) = told(wire, sql("SELECT count(*) FROM pg_prepared_statements"))
    return int(count or 0)


def alter(wire: PostgresWire, name: str, assignment: str) -> None:
    """A lease, as if time had passed or another had written."""
    statement = Statement(f"UPDATE gripfast_lock SET {assignment} WHERE name = :name")
    assert answered(wire, [Query(statement, {"name": name})]).affected == 1


def waits_for_lock(session: int, of: int | None = None) -> bool:
    """`of`: the session that has it. A statement may wait for a moment for another one, before it sees anything."""
    rows = postgres_server().execute(
        "SELECT wait_event_type = 'Lock', pg_blocking_pids(pid) FROM pg_stat_activity WHERE pid = %s", session
    )
    return rows[0][0] is True and (of is None or of in rows[0][1])
