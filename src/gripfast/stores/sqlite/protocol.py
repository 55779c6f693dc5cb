"""Between SQLite's tuples and the rows of `granting`, and from SQLite's errors to ours: all pure.

A row whose boot is not ours carries a time on a clock we can't read. It counts as held until it was watched,
unchanged, for its whole ttl: `needs_watch` tells when a watch must be written down. A waiter of another boot has left.

The row of a marker (`core/kept.py`) has the wall clock instead of a boot: nobody renews it, and it may outlive many
boots. Versions that do not know this take it for a row of another boot, and wait at least as long.
"""

from __future__ import annotations

import math
import sqlite3
from typing import Any

from gripfast.core.kept import kept
from gripfast.errors import ConfigurationError, GripfastError, StoreUnavailable
from gripfast.stores.granting import Now, Row, Waiter

WALL = "wall clock"
"""Instead of a boot."""


def wall_seconds(wall_us: int) -> float:
    return wall_us / 1_000_000


def read_row(columns: tuple[Any, ...] | None, boot: str, now: Now) -> Row:
    if columns is None:
        return Row()
    token, owner, ttl, expires, since_us, details, unconfirmed, broken, row_boot, watched_by, watched_since = columns
    if row_boot == WALL:
        expires = now.clock + expires - wall_seconds(now.wall_us)
    elif row_boot != boot:
        expires = (watched_since if watched_by == boot else now.clock) + ttl
    return Row(token, owner, ttl, expires, since_us, details, unconfirmed, broken)


def needs_watch(columns: tuple[Any, ...] | None, boot: str) -> bool:
    """A held row of another boot that this boot does not watch yet."""
    if columns is None or columns[1] is None:
        return False
    return columns[8] not in (boot, WALL) and columns[9] != boot


def write_row(name: str, row: Row, boot: str, now: Now) -> tuple[Any, ...]:
    expires = row.expires
    if row.owner is not None and kept(row.owner):
        boot, expires = WALL, wall_seconds(now.wall_us) + expires - now.clock
    return (
        name, row.token, row.owner, row.ttl, expires, row.since_us, row.details, row.unconfirmed, row.broken, boot,
    )  # fmt: skip


def note_moment(wall_us: int) -> str:
    """Compares like the number, as text."""
    return f"{wall_us:020d}"


def write_note(note: str, wall_us: int) -> str:
    return f"{note_moment(wall_us)} {note}"


def read_note(columns: tuple[Any, ...] | None) -> str | None:
    return None if columns is None else str(columns[0]).partition(" ")[2]


def read_waiter(columns: tuple[Any, ...], boot: str) -> Waiter:
    ticket, owner, ttl, seen, waiter_boot, details, address, muted = columns
    return Waiter(ticket, owner, ttl, seen if waiter_boot == boot else -math.inf, details, address, bool(muted))


_ADVICE = {
    "SQLITE_BUSY": "another program keeps the database locked: end it, or give Gripfast a file of its own",
    "SQLITE_LOCKED": "another program keeps the database locked: end it, or give Gripfast a file of its own",
    "SQLITE_READONLY": "the file or its folder can't be written; check its owner and mode",
    "SQLITE_CANTOPEN": "the file can't be opened; check that its folder exists and can be written",
    "SQLITE_PERM": "the file can't be opened; check its owner and mode",
    "SQLITE_FULL": "the disk is full: free some space. Nothing was lost",
    "SQLITE_IOERR": "the disk failed or is full: check it. Nothing was changed",
    "SQLITE_CORRUPT": "the file is damaged: stop all programs that use it, and move it away. Gripfast then creates a "
    "new one, without the locks that are held now",
}

_NOT_A_DATABASE = "SQLITE_NOTADB"


def is_busy(error: sqlite3.Error) -> bool:
    return _kind(error) in ("SQLITE_BUSY", "SQLITE_LOCKED")


def explain(error: sqlite3.Error, path: str) -> GripfastError:
    """What went wrong, in which file, and what to do about it."""
    kind = _kind(error)
    if kind == _NOT_A_DATABASE:
        return ConfigurationError(f"{path} is not a SQLite database: name another file, or move this one away")
    advice = _ADVICE.get(kind, "SQLite's documentation explains this code")
    return StoreUnavailable(f"embedded store {path}: {error} ({kind}): {advice}", {path: str(error)})


def _kind(error: sqlite3.Error) -> str:
    """The primary code: SQLITE_READONLY_DIRECTORY is a SQLITE_READONLY."""
    name = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
    return "_".join(name.split("_")[:2])
