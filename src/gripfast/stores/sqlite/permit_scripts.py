"""Every SQL text of the embedded store that is about permits.

The tables are made when they are first used: no program that has only locks needs them, and files of earlier versions
do not have them.
"""

from __future__ import annotations

schema = (
    """
    CREATE TABLE IF NOT EXISTS gripfast_pool (
        kind     TEXT NOT NULL,
        name     TEXT NOT NULL,
        token    INTEGER NOT NULL,
        permits  INTEGER NOT NULL,   -- the limit in force
        since_us INTEGER NOT NULL,   -- last used, by the wall clock
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS gripfast_permit (
        owner         TEXT PRIMARY KEY,
        kind          TEXT NOT NULL,
        name          TEXT NOT NULL,
        n             INTEGER NOT NULL,
        slots         TEXT NOT NULL,      -- numbers, separated by commas
        token         INTEGER NOT NULL,
        ttl           REAL NOT NULL,
        expires       REAL NOT NULL,      -- on the boot clock of `boot`
        since_us      INTEGER NOT NULL,
        card          TEXT NOT NULL,
        unheard       TEXT NOT NULL,
        boot          TEXT NOT NULL,
        watched_by    TEXT,               -- another boot has seen the row unchanged ...
        watched_since REAL                -- ... since then on its own clock
    ) WITHOUT ROWID
    """,
    "CREATE INDEX IF NOT EXISTS gripfast_permit_name ON gripfast_permit (kind, name)",
    """
    CREATE TABLE IF NOT EXISTS gripfast_permit_waiter (
        ticket  INTEGER PRIMARY KEY AUTOINCREMENT,
        kind    TEXT NOT NULL,
        name    TEXT NOT NULL,
        owner   TEXT NOT NULL UNIQUE,
        n       INTEGER NOT NULL,
        ttl     REAL NOT NULL,
        seen    REAL NOT NULL,
        boot    TEXT NOT NULL,
        card    TEXT NOT NULL,
        address TEXT NOT NULL,
        muted   INTEGER NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS gripfast_permit_line ON gripfast_permit_waiter (kind, name, ticket)",
)

read_pool = "SELECT token, permits, since_us FROM gripfast_pool WHERE kind = ? AND name = ?"
write_pool = "INSERT OR REPLACE INTO gripfast_pool (kind, name, token, permits, since_us) VALUES (?, ?, ?, ?, ?)"

read_holders = """
    SELECT owner, n, slots, token, ttl, expires, since_us, card, unheard, boot, watched_by, watched_since
    FROM gripfast_permit WHERE kind = ? AND name = ?
"""
write_holder = """
    INSERT OR REPLACE INTO gripfast_permit
        (owner, kind, name, n, slots, token, ttl, expires, since_us, card, unheard, boot)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
delete_holder = "DELETE FROM gripfast_permit WHERE owner = ?"
watch_holder = "UPDATE gripfast_permit SET watched_by = ?, watched_since = ? WHERE owner = ?"
write_details = "UPDATE gripfast_permit SET card = ? WHERE owner = ?"
read_details = "SELECT card FROM gripfast_permit WHERE owner = ?"

renew = """
    UPDATE gripfast_permit SET ttl = ?, expires = ?, unheard = '', watched_by = NULL
    WHERE owner = ? AND expires > ? AND boot = ?
"""

read_queue = """
    SELECT ticket, owner, n, ttl, seen, boot, card, address, muted
    FROM gripfast_permit_waiter WHERE kind = ? AND name = ? ORDER BY ticket
"""
enqueue = """
    INSERT INTO gripfast_permit_waiter (kind, name, owner, n, ttl, seen, boot, card, address, muted)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
    ON CONFLICT (owner) DO UPDATE SET ttl = excluded.ttl, seen = excluded.seen, address = excluded.address, muted = 0
"""
return_muted = """
    INSERT OR IGNORE INTO gripfast_permit_waiter
        (ticket, kind, name, owner, n, ttl, seen, boot, card, address, muted)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
"""
dequeue = "DELETE FROM gripfast_permit_waiter WHERE owner = ?"

page = "SELECT name FROM gripfast_pool WHERE kind = ? AND name > ? AND name >= ? ORDER BY name LIMIT ?"

forget_expired = "DELETE FROM gripfast_permit WHERE boot = ? AND expires < ?"
forget_absent = "DELETE FROM gripfast_permit_waiter WHERE boot <> ? OR seen < ?"
forget_idle = """
    DELETE FROM gripfast_pool AS l WHERE max(since_us, token) < ?
        AND NOT EXISTS (SELECT 1 FROM gripfast_permit p WHERE p.kind = l.kind AND p.name = l.name)
        AND NOT EXISTS (SELECT 1 FROM gripfast_permit_waiter w WHERE w.kind = l.kind AND w.name = l.name)
"""
