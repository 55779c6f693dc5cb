"""The tables of semaphores and read/write locks. `permit_scripts.py` has what is done with those of `mode=lease`, and
`rw_scripts.py` with those of `mode=row`."""

from __future__ import annotations

from gripfast.stores.sql.statement import Statement

TABLES: tuple[Statement, ...] = (
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_permit (
    kind            VARBINARY(16) NOT NULL,     -- semaphore or rwlock
    name            VARBINARY(1024) NOT NULL,
    token           BIGINT NOT NULL,            -- of the last grant
    permits         BIGINT NOT NULL,            -- the limit in force, 0 if nobody has set one yet
    since_us        BIGINT NOT NULL,            -- when somebody last got or released permits
    checked_us      BIGINT NOT NULL,            -- when the row was made, or last checked for use
    PRIMARY KEY (kind, name),
    KEY gripfast_permit_checked (checked_us)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_permit_holder (
    kind            VARBINARY(16) NOT NULL,
    name            VARBINARY(1024) NOT NULL,
    owner           VARBINARY(255) NOT NULL,
    n               BIGINT NOT NULL,            -- how many permits it has
    slots           MEDIUMBLOB NOT NULL,        -- their numbers, if it is a semaphore
    token           BIGINT NOT NULL,
    expires_us      BIGINT NOT NULL,
    ttl_us          BIGINT NOT NULL,
    since_us        BIGINT NOT NULL,
    card            MEDIUMBLOB NOT NULL,        -- who the owner is, as JSON
    broken          MEDIUMBLOB NULL,            -- not NULL: released by force; what the owner is to be told, as JSON
    PRIMARY KEY (kind, name, owner)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_permit_waiter (
    kind            VARBINARY(16) NOT NULL,
    name            VARBINARY(1024) NOT NULL,
    owner           VARBINARY(255) NOT NULL,
    ticket          BIGINT NOT NULL,            -- the position in the queue
    n               BIGINT NOT NULL,
    ttl_us          BIGINT NOT NULL,
    seen_us         BIGINT NOT NULL,            -- when it last claimed
    card            MEDIUMBLOB NOT NULL,
    session         BIGINT NOT NULL,            -- that claimed last
    PRIMARY KEY (kind, name, owner)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_rw (
    name            VARBINARY(1024) NOT NULL PRIMARY KEY  -- mode=row locks these rows, for reading or writing
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_rw_holder (
    mode            VARBINARY(16) NOT NULL,     -- row
    name            VARBINARY(1024) NOT NULL,
    owner           VARBINARY(255) NOT NULL,
    n               BIGINT NOT NULL,            -- 1 for a reader
    token           BIGINT NOT NULL,
    session         BIGINT UNSIGNED NOT NULL,   -- the connection id of the owner's session
    mark            VARBINARY(64) NOT NULL,     -- a user-level lock that the session keeps while it holds the lock
    ttl_us          BIGINT NOT NULL,
    since_us        BIGINT NOT NULL,
    card            MEDIUMBLOB NOT NULL,        -- who the owner is, as JSON
    PRIMARY KEY (mode, name, owner)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC /*M! ENGINE=Aria TRANSACTIONAL=0 */"""),
)
