"""The fencing guard for a sqlite3.Connection: one upsert in the caller's own transaction.

Why one statement is enough. The upsert is a write, so SQLite takes the database's only write lock before it compares,
also when it then refuses; the comparison sees every committed token, and nobody else commits until the caller does.

- BEGIN IMMEDIATE: the write lock was there already; nothing can fail but the token.
- Deferred, the guard first (what the sqlite3 module does by itself): the upsert takes the write lock, and waits for it
  as long as the connection's busy timeout says.
- Deferred, a read first: if someone has committed since that read, SQLite refuses to write on top of the old snapshot
  (SQLITE_BUSY_SNAPSHOT: OperationalError "database is locked", at once). Roll back and start over; an old read never
  gets a write through.
- No transaction at all: refused, since the token would be committed before the write it is to protect.

A rollback forgets the token together with the writes it stood for.
"""

from __future__ import annotations

import sqlite3

from holdfast.errors import ConfigurationError, StaleToken
from holdfast.fencing.dialect import Dialect

DDL = """\
CREATE TABLE IF NOT EXISTS holdfast_fence (
    resource TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL
) WITHOUT ROWID;
"""

# Starts with INSERT: by its first word the sqlite3 module knows that a transaction must be opened.
_RAISE_TO = """\
INSERT INTO holdfast_fence (resource, token) VALUES (?, ?)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE excluded.token >= holdfast_fence.token
"""


def guard(connection: sqlite3.Connection, resource: str, token: int) -> None:
    """Raise StaleToken if a larger token was committed for the resource, or seen earlier in this transaction."""
    if not _writes_in_transaction(connection):
        raise ConfigurationError(
            "fencing needs the guard and the write in one transaction, and this sqlite3 connection commits every "
            'statement by itself: execute "BEGIN IMMEDIATE" before guard()'
        )
    if _upsert(connection, resource, token) == 0:
        raise StaleToken(resource, token, _seen(connection, resource))


def _writes_in_transaction(connection: sqlite3.Connection) -> bool:
    """Whether a transaction is open, or the sqlite3 module will open one before the first write."""
    if connection.in_transaction:
        return True
    legacy = getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL", -1)  # 3.12 and later
    return getattr(connection, "autocommit", legacy) == legacy and connection.isolation_level is not None


def _upsert(connection: sqlite3.Connection, resource: str, token: int) -> int:
    """How many rows were written: none if the token is stale."""
    try:
        return connection.execute(_RAISE_TO, (resource, token)).rowcount
    except sqlite3.OperationalError as error:
        if "no such table" in str(error) and "holdfast_fence" in str(error):
            raise ConfigurationError(f"this database has no fencing table yet; create it with\n{DDL}") from error
        raise


def _seen(connection: sqlite3.Connection, resource: str) -> int:
    """Only asked on refusal. The transaction holds the write lock by now, so the answer is still what decided."""
    cursor = connection.cursor()
    cursor.row_factory = None  # the caller's may be anything
    row: tuple[int] = cursor.execute("SELECT token FROM holdfast_fence WHERE resource = ?", (resource,)).fetchone()
    return row[0]


DIALECT = Dialect(name="sqlite", connections=("sqlite3.Connection",), ddl=DDL, guard=guard)
