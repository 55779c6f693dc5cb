"""What is held, of all kinds, in one shape: one line for each holder. For `gripfast ls` and `manage.py locks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import gripfast
from gripfast.api.rows import Row, listed
from gripfast.cli import text
from gripfast.cli.failure import say
from gripfast.cli.kinds import NAMES, kinds_of
from gripfast.errors import StoreUnavailable, visible

HEADINGS = ("NAME", "KIND", "LABEL", "HOST", "PID", "HELD FOR", "EXPIRES IN", "WAITERS", "TOKEN")


def rows_in(client: gripfast.Client, prefix: str) -> list[Row]:
    """By name. Semaphores and read/write locks need rights of their own on some stores: who lacks them sees the locks,
    and is told what is missing."""
    rows = list(listed(client, prefix, "lock"))
    for kind in kinds_of(client):
        if kind == "lock":
            continue
        try:
            rows += listed(client, prefix, kind)
        except StoreUnavailable as error:
            say(f"can't list {NAMES[kind]}s: {error}")
    return sorted({row.key: row for row in rows}.values(), key=lambda row: (row.name, row.kind))


def human_table(rows: Iterable[Row]) -> str:
    return text.fitted([HEADINGS, *(line for row in rows for line in _lines(row))])


def _lines(row: Row) -> list[Sequence[str]]:
    first = visible(row.name), row.mode or row.kind
    return [(*first, *text.holder_row(each), row.waiting, str(each.token)) for each in row.holders]


def plain_table(rows: Iterable[Row]) -> str:
    return text.aligned([line for row in rows for line in text.plain_rows(row)])


def as_dicts(rows: Iterable[Row]) -> list[dict[str, object]]:
    """Flat, as for a lock, whatever the kind is."""
    return [
        {"name": row.name, "kind": row.kind, **each, "waiters": row.waiters}
        for row in rows
        for each in row.holders_as_json()
    ]
