"""The tables of semaphores and read/write locks. `permit_scripts.py` has what is done with those of `mode=lease`, and
`rw_scripts.py` with those of the other modes."""

from __future__ import annotations

from gripfast.stores.sql.statement import Statement

TABLES: tuple[Statement, ...] = (
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_permit (
    kind       text COLLATE "C" NOT NULL,       -- semaphore or rwlock
    name       text COLLATE "C" NOT NULL,
    token      bigint NOT NULL,                 -- of the last grant
    permits    bigint NOT NULL,                 -- the limit in force, 0 if nobody has set one yet
    since_us   bigint NOT NULL,                 -- when somebody last got or released permits
    checked_us bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
                                                -- when the row was made, or last checked for use
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 50)"""),
    Statement("CREATE INDEX IF NOT EXISTS gripfast_permit_checked ON gripfast_permit (checked_us)"),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_permit_holder (
    kind       text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    n          bigint NOT NULL,                 -- how many permits it has
    slots      text NOT NULL,                   -- their numbers, if it is a semaphore
    token      bigint NOT NULL,
    expires_us bigint NOT NULL,
    ttl_us     bigint NOT NULL,
    since_us   bigint NOT NULL,
    card       text NOT NULL,                   -- who the owner is, as JSON
    broken     text,                            -- not NULL: released by force; what the owner is to be told, as JSON
    PRIMARY KEY (kind, name, owner)
) WITH (fillfactor = 50)"""),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_permit_waiter (
    kind       text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    ticket     bigint NOT NULL,                 -- the position in the queue
    n          bigint NOT NULL,
    ttl_us     bigint NOT NULL,
    seen_us    bigint NOT NULL,                 -- when it last claimed
    card       text NOT NULL,
    channel    text NOT NULL,                   -- where it is notified; '' if it claims again by itself
    session    integer NOT NULL,                -- process number of the session that listens there, or claims
    PRIMARY KEY (kind, name, owner)
) WITH (fillfactor = 50)"""),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_rw (
    name       text COLLATE "C" PRIMARY KEY,    -- locked by mode=row, in a transaction, for reading or writing
    checked_us bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
) WITH (fillfactor = 50)"""),
    Statement("CREATE INDEX IF NOT EXISTS gripfast_rw_checked ON gripfast_rw (checked_us)"),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_rw_holder (
    mode       text COLLATE "C" NOT NULL,       -- row or advisory
    name       text COLLATE "C" NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    n          bigint NOT NULL,                 -- 1 for a reader
    token      bigint NOT NULL,
    session    integer NOT NULL,                -- process number of the session that took the lock
    mark       text NOT NULL,                   -- the transaction's number, or the advisory key
    ttl_us     bigint NOT NULL,
    since_us   bigint NOT NULL,
    card       text NOT NULL,                   -- who the owner is, as JSON
    PRIMARY KEY (mode, name, owner)
) WITH (fillfactor = 50)"""),
)
