"""The fencing guard for SQLite: one upsert in the caller's own transaction.

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

from gripfast.drivers import CallerConnection
from gripfast.errors import StaleToken
from gripfast.fencing import shared
from gripfast.fencing.checks import SHARED
from gripfast.fencing.dialect import Dialect, missing_table

DDL = """\
CREATE TABLE IF NOT EXISTS gripfast_fence (
    resource TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL
) WITHOUT ROWID;
"""

# Starts with INSERT: by its first word the sqlite3 module knows that a transaction must be opened.
_RAISE_TO = """\
INSERT INTO gripfast_fence (resource, token) VALUES (:resource, :token)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE excluded.token >= gripfast_fence.token
"""
# Only asked on refusal. The transaction holds the write lock by now, so the answer is still what decided.
_SEEN = "SELECT token FROM gripfast_fence WHERE resource = :resource"

TEXTS = shared.Texts(
    ddl="""\
CREATE TABLE IF NOT EXISTS gripfast_fence_shared (
    resource TEXT NOT NULL PRIMARY KEY,
    seen INTEGER NOT NULL,
    exclusive_token INTEGER NOT NULL
) WITHOUT ROWID;
""",
    first_ddl=DDL,
    lock="""\
INSERT INTO gripfast_fence (resource, token) VALUES (:resource, 0)
ON CONFLICT (resource) DO UPDATE SET token = gripfast_fence.token
""",
    read=_SEEN,
    put="UPDATE gripfast_fence SET token = :token WHERE resource = :resource",
    recall="SELECT seen, exclusive_token FROM gripfast_fence_shared WHERE resource = :resource",
    note="""\
INSERT INTO gripfast_fence_shared (resource, seen, exclusive_token) VALUES (:resource, :seen, :exclusive)
ON CONFLICT (resource) DO UPDATE SET seen = excluded.seen, exclusive_token = excluded.exclusive_token
""",
    lacks_table=lambda error: "no such table" in str(error) and "gripfast_fence" in str(error),
)


async def guard(caller: CallerConnection, resource: str, token: int) -> None:
    """Raise StaleToken if a larger token was committed for the resource, or seen earlier in this transaction."""
    try:
        _, affected = await caller.run(_RAISE_TO, {"resource": resource, "token": token})
    except Exception as error:
        if TEXTS.lacks_table(error):
            raise missing_table(DDL) from error
        raise
    if affected == 0:
        ((seen,),), _ = await caller.run(_SEEN, {"resource": resource})
        if seen != SHARED:
            raise StaleToken(resource, token, seen)
        await shared.admit(caller, TEXTS, resource, token, seen)


DIALECT = Dialect(name="sqlite", ddl=DDL, guard=guard, begin='execute "BEGIN IMMEDIATE"', shared=TEXTS)
