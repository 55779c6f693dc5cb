"""The fencing guard for MariaDB and MySQL: one upsert in the caller's own transaction.

Why one statement is enough. ON DUPLICATE KEY UPDATE locks the row and works on it as it is now, whatever the isolation
level and however old the transaction's snapshot: the comparison sees every committed token. The row stays locked until
the caller's transaction ends: nobody else commits a token for this resource in between.

Whether the token was refused is told by the number of rows affected. A token that is let in always changes the row,
because its `writes` are counted; one that is refused never does:

- 2: an existing row was changed: let in.
- 0: an existing row was left as it is: refused.
- 1: the row is new; or, on connections that count rows found instead of changed (CLIENT_FOUND_ROWS, which SQLAlchemy
  sets), it was left as it is. Only then, and for the message of a refusal, the row is read, FOR UPDATE: that is the
  locked row, not the snapshot's.

- REPEATABLE READ on MariaDB with innodb_snapshot_isolation (the default from 11.6.2 on): a row that was written since
  the snapshot is refused (1020, "Record has changed since last read"). Roll back and start over.
- Deadlocks (1213) are possible, as with any write, if one transaction guards several resources in another order than
  the others do, or when a resource is guarded for the first time by several at once. Roll back and start over.
- No transaction at all: refused, since the token would be committed before the write it is to protect.

Guard first, then read and write: under REPEATABLE READ everything is read as it was at the first plain read, and the
guard does not make that newer. A rollback forgets the token together with the writes it stood for.

Resources are compared byte by byte, whatever the connection's character set: they travel as hexadecimal digits.
"""

from __future__ import annotations

from gripfast.drivers import CallerConnection, code_of
from gripfast.errors import StaleToken
from gripfast.fencing import shared
from gripfast.fencing.checks import SHARED
from gripfast.fencing.dialect import Dialect, missing_table

DDL = """\
CREATE TABLE IF NOT EXISTS gripfast_fence (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    writes BIGINT NOT NULL
) ENGINE = InnoDB;
"""

# Assignments are made in this order: the writes are counted by the token that was there before.
_RAISE_TO = """\
INSERT INTO gripfast_fence (resource, token, writes) VALUES (UNHEX(:resource), :token, 1)
ON DUPLICATE KEY UPDATE writes = writes + (token <= :token), token = GREATEST(token, :token)
"""
_SEEN = "SELECT token FROM gripfast_fence WHERE resource = UNHEX(:resource) FOR UPDATE"
CHANGED = 2
NO_TABLE = "1146"

TEXTS = shared.Texts(
    ddl="""\
CREATE TABLE IF NOT EXISTS gripfast_fence_shared (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    seen BIGINT NOT NULL,
    exclusive_token BIGINT NOT NULL
) ENGINE = InnoDB;
""",
    first_ddl=DDL,
    lock="""\
INSERT INTO gripfast_fence (resource, token, writes) VALUES (UNHEX(:resource), 0, 0)
ON DUPLICATE KEY UPDATE writes = writes
""",
    read=_SEEN,
    put="UPDATE gripfast_fence SET token = :token, writes = writes + 1 WHERE resource = UNHEX(:resource)",
    recall="SELECT seen, exclusive_token FROM gripfast_fence_shared WHERE resource = UNHEX(:resource) FOR UPDATE",
    note="""\
INSERT INTO gripfast_fence_shared (resource, seen, exclusive_token) VALUES (UNHEX(:resource), :seen, :exclusive)
ON DUPLICATE KEY UPDATE seen = :seen, exclusive_token = :exclusive
""",
    lacks_table=lambda error: code_of(error) == NO_TABLE and "gripfast_fence" in str(error),
    key=lambda resource: resource.encode().hex(),
)


async def guard(caller: CallerConnection, resource: str, token: int) -> None:
    """Raise StaleToken if a larger token was committed for the resource, or seen earlier in this transaction."""
    in_hex = TEXTS.key(resource)
    try:
        _, affected = await caller.run(_RAISE_TO, {"resource": in_hex, "token": token})
    except Exception as error:
        if TEXTS.lacks_table(error):
            raise missing_table(DDL) from error
        raise
    if affected != CHANGED:
        ((seen,),), _ = await caller.run(_SEEN, {"resource": in_hex})
        if seen == SHARED:
            await shared.admit(caller, TEXTS, resource, token, seen)
        elif seen > token:
            raise StaleToken(resource, token, seen)


DIALECT = Dialect(
    name="mysql",
    ddl=DDL,
    guard=guard,
    begin="execute START TRANSACTION",
    other_names=("mariadb",),
    shared=TEXTS,
)
