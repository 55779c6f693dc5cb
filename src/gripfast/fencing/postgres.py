"""The fencing guard for PostgreSQL: one upsert in the caller's own transaction.

Why one statement is enough. It writes the larger of the two tokens and tells what it wrote: more than ours, and ours is
stale. ON CONFLICT DO UPDATE locks the row before it compares, and keeps it locked until the caller's transaction ends:
nobody else commits a token for this resource in between, and whoever tries waits in its own guard.

- READ COMMITTED: the row is compared as it is when the lock is got, however long that took: every committed token
  counts, also one that was committed after the statement began, or whose row is new.
- REPEATABLE READ and SERIALIZABLE: if the row was written since this transaction's snapshot, PostgreSQL refuses the
  upsert (40001, "could not serialize access") instead of comparing with something old. Roll back and start over; an old
  snapshot never gets a write through.
- No transaction at all: refused, since the token would be committed before the write it is to protect.

Guard first, then read and write: what was read before the guard may be older than the last write that it let in (in
READ COMMITTED; the other levels refuse as above). A rollback, also to a savepoint, forgets the token together with the
writes it stood for. After an error of PostgreSQL's the transaction is over; after StaleToken it is as before.
"""

from __future__ import annotations

from gripfast.drivers import CallerConnection, code_of
from gripfast.errors import StaleToken
from gripfast.fencing import shared
from gripfast.fencing.checks import SHARED
from gripfast.fencing.dialect import Dialect, missing_table

# Byte by byte; half of each page is left free, so that a token is replaced in place.
DDL = """\
CREATE TABLE IF NOT EXISTS gripfast_fence (
    resource text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL
) WITH (fillfactor = 50);
"""

_RAISE_TO = """\
INSERT INTO gripfast_fence AS fence (resource, token) VALUES (:resource, :token)
ON CONFLICT (resource) DO UPDATE SET token = GREATEST(fence.token, excluded.token)
RETURNING fence.token
"""
NO_TABLE = "42P01"

TEXTS = shared.Texts(
    ddl="""\
CREATE TABLE IF NOT EXISTS gripfast_fence_shared (
    resource text COLLATE "C" PRIMARY KEY,
    seen bigint NOT NULL,
    exclusive_token bigint NOT NULL
) WITH (fillfactor = 50);
""",
    first_ddl=DDL,
    # An update, although it changes nothing: above READ COMMITTED, an older snapshot is refused by it.
    lock="""\
INSERT INTO gripfast_fence AS fence (resource, token) VALUES (:resource, 0)
ON CONFLICT (resource) DO UPDATE SET token = fence.token
""",
    read="SELECT token FROM gripfast_fence WHERE resource = :resource",
    put="UPDATE gripfast_fence SET token = :token WHERE resource = :resource",
    recall="SELECT seen, exclusive_token FROM gripfast_fence_shared WHERE resource = :resource",
    note="""\
INSERT INTO gripfast_fence_shared (resource, seen, exclusive_token) VALUES (:resource, :seen, :exclusive)
ON CONFLICT (resource) DO UPDATE SET seen = excluded.seen, exclusive_token = excluded.exclusive_token
""",
    lacks_table=lambda error: code_of(error) == NO_TABLE and "gripfast_fence" in str(error),
)


async def guard(caller: CallerConnection, resource: str, token: int) -> None:
    """Raise StaleToken if a larger token was committed for the resource, or seen earlier in this transaction."""
    try:
        ((seen,),), _ = await caller.run(_RAISE_TO, {"resource": resource, "token": token})
    except Exception as error:
        if TEXTS.lacks_table(error):
            raise missing_table(DDL) from error
        raise
    if seen == SHARED:
        await shared.admit(caller, TEXTS, resource, token, seen)
    elif seen > token:
        raise StaleToken(resource, token, seen)


DIALECT = Dialect(
    name="postgresql", ddl=DDL, guard=guard, begin="begin a transaction", other_names=("postgres",), shared=TEXTS
)
