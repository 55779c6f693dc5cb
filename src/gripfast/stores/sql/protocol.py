"""Between rows and our values: all pure."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
from typing import NamedTuple

from gripfast.core.kept import kept
from gripfast.core.ports import Label, LockInfo
from gripfast.stores import holder
from gripfast.stores.sql.ports import Rows

Row = tuple[bytes | None, ...]

CHANNEL_BYTES = 16


class Held(NamedTuple):
    """What the engine knows about a name."""

    owner: str | None
    token: int
    expires_in: float
    ttl: float
    since_us: int
    details: str
    """Of the holder."""

    @property
    def is_free(self) -> bool:
        return self.owner is None or self.expires_in <= 0.0


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


@functools.lru_cache(maxsize=1024)
def channel_of(name: str) -> str:
    """Where releases of a name are notified; an identifier in every engine."""
    return "gripfast_" + hashlib.blake2b(name.encode(), digest_size=CHANNEL_BYTES).hexdigest()


def write_details(label: Label, host: str, pid: int) -> str:
    return json.dumps({"host": host, "pid": pid, **holder.told(label)}, ensure_ascii=False)


def write_note(note: str | None) -> str:
    """In ASCII, without control characters: no encoding of a database lacks any of it."""
    return json.dumps(note)


def read_note(column: bytes | None) -> str | None:
    try:
        note = None if column is None else json.loads(column)
    except ValueError:
        return None
    return note if isinstance(note, str) else None


def read_held(row: Row) -> Held:
    owner, token, expires_in_us, ttl_us, since_us, details = row
    return Held(
        None if owner is None else owner.decode(),
        number(token),
        number(expires_in_us) / 1_000_000,
        number(ttl_us) / 1_000_000,
        number(since_us),
        text(details),
    )


def read_seen(row: Row) -> tuple[Held, int, bool]:
    """Of a lock that lives in a session: with its session, and whether that has it now."""
    owner, token, ttl_us, since_us, details, session, is_held = row
    ttl = number(ttl_us) / 1_000_000 or math.inf  # as long as somebody's transaction
    held = Held(None if owner is None else owner.decode(), number(token), ttl, ttl, number(since_us), text(details))
    return held, number(session), flag(is_held)


def lock_info(name: str, held: Held) -> LockInfo | None:
    if held.owner is None or held.is_free:
        return None
    details = holder.read_details(held.details) or holder.Details()
    if kept(held.owner):
        details = details._replace(pid=0)  # no process has to live for it
    return holder.lock_info(name, held.owner, held.token, details, held.since_us, held.expires_in, waiters=0)


def beginning_with(prefix: str, rows: list[Row]) -> list[Row]:
    """Those of a page that do; all others are behind them."""
    return list(itertools.takewhile(lambda row: text(row[0]).startswith(prefix), rows))


def only(answer: list[Rows]) -> Row | None:
    """The row of the last statement, if it has one."""
    rows = answer[-1].rows
    return rows[0] if rows else None


def number(column: bytes | None) -> int:
    return int(column or 0)


def flag(column: bytes | None) -> bool:
    return column not in (None, b"0", b"f")


def text(column: bytes | None) -> str:
    return "" if column is None else column.decode()
