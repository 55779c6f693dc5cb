"""Every SQL text of the embedded store.

`claim_free` and `release_alone` are the whole uncontended path of a name that was used before: one statement each, in
a transaction of its own. Whatever they do not decide (the lock is taken, someone waits) is decided by `stores.granting`
between `begin` and `commit`.
"""

from __future__ import annotations

schema = (
    """
    CREATE TABLE IF NOT EXISTS gripfast_meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS gripfast_lock (
        name          TEXT PRIMARY KEY,
        token         INTEGER NOT NULL,
        owner         TEXT,               -- NULL: free
        ttl           REAL NOT NULL,
        expires       REAL NOT NULL,      -- on the boot clock of `boot`, or on the wall clock (protocol.WALL)
        since_us      INTEGER NOT NULL,   -- held, or free, since then by the wall clock
        card          TEXT NOT NULL,
        unheard       TEXT NOT NULL,
        broken        TEXT,
        boot          TEXT NOT NULL,
        has_line      INTEGER NOT NULL,   -- whether anyone is in gripfast_waiter for it
        watched_by    TEXT,               -- another boot has seen the row unchanged ...
        watched_since REAL                -- ... since then on its own clock
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS gripfast_waiter (
        ticket  INTEGER PRIMARY KEY AUTOINCREMENT,
        name    TEXT NOT NULL,
        owner   TEXT NOT NULL UNIQUE,
        ttl     REAL NOT NULL,
        seen    REAL NOT NULL,
        boot    TEXT NOT NULL,
        card    TEXT NOT NULL,
        address TEXT NOT NULL,
        muted   INTEGER NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS gripfast_waiter_line ON gripfast_waiter (name, ticket)",
)

has_schema = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'gripfast_meta'"
read_layout = "SELECT value FROM gripfast_meta WHERE key = 'schema'"
write_layout = "INSERT OR IGNORE INTO gripfast_meta VALUES ('schema', ?)"

begin = "BEGIN IMMEDIATE"
commit = "COMMIT"

claim_free = """
    UPDATE gripfast_lock
    SET token = ?, owner = ?, ttl = ?, expires = ?, since_us = ?, card = ?, unheard = '', boot = ?, watched_by = NULL
    WHERE name = ? AND owner IS NULL AND token < ? AND NOT has_line
"""

release_alone = """
    UPDATE gripfast_lock SET owner = NULL, since_us = ? WHERE name = ? AND owner = ? AND NOT has_line
"""

renew = """
    UPDATE gripfast_lock SET ttl = ?, expires = ?, unheard = '', watched_by = NULL
    WHERE name = ? AND owner = ? AND expires > ? AND boot = ?
"""

_row_columns = "token, owner, ttl, expires, since_us, card, unheard, broken, boot, watched_by, watched_since"

read_row = f"SELECT {_row_columns} FROM gripfast_lock WHERE name = ?"

write_row = """
    INSERT OR REPLACE INTO gripfast_lock
        (name, token, owner, ttl, expires, since_us, card, unheard, broken, boot, has_line)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
"""

count_in = """
    UPDATE gripfast_lock SET has_line = EXISTS (SELECT 1 FROM gripfast_waiter w WHERE w.name = gripfast_lock.name)
    WHERE name = ?
"""

watch_row = "UPDATE gripfast_lock SET watched_by = ?, watched_since = ? WHERE name = ?"

write_details = "UPDATE gripfast_lock SET card = ? WHERE name = ?"

_waiter_columns = "ticket, owner, ttl, seen, boot, card, address, muted"

read_queue = f"SELECT {_waiter_columns} FROM gripfast_waiter WHERE name = ? ORDER BY ticket"

is_queued = "SELECT 1 FROM gripfast_waiter WHERE owner = ?"

details_ahead = """
    SELECT DISTINCT card FROM gripfast_waiter
    WHERE name = ? AND ticket < (SELECT ticket FROM gripfast_waiter WHERE owner = ?)
"""

count_queue = "SELECT count(*) FROM gripfast_waiter WHERE name = ?"

enqueue = """
    INSERT INTO gripfast_waiter (name, owner, ttl, seen, boot, card, address, muted)
    VALUES (?, ?, ?, ?, ?, ?, ?, 0)
    ON CONFLICT (owner) DO UPDATE SET ttl = excluded.ttl, seen = excluded.seen, address = excluded.address, muted = 0
"""

return_muted = """
    INSERT OR IGNORE INTO gripfast_waiter (ticket, name, owner, ttl, seen, boot, card, address, muted)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)
"""

dequeue = "DELETE FROM gripfast_waiter WHERE owner = ?"

page = f"""
    SELECT name, {_row_columns}, (SELECT count(*) FROM gripfast_waiter w WHERE w.name = l.name)
    FROM gripfast_lock l WHERE name > ? AND name >= ? ORDER BY name LIMIT ?
"""

write_note = "INSERT OR REPLACE INTO gripfast_meta VALUES ('note ' || ?, ?)"
read_note = "SELECT value FROM gripfast_meta WHERE key = 'note ' || ?"
forget_notes = "DELETE FROM gripfast_meta WHERE key > 'note ' AND key < 'note!' AND value < ?"
"""What an owner is told that was force-released: "<when, in microseconds, 20 digits> <text>"."""

swept_to = "SELECT value FROM gripfast_meta WHERE key = 'swept to'"
note_swept = "INSERT OR REPLACE INTO gripfast_meta VALUES ('swept to', ?)"

stretch_end = "SELECT name FROM gripfast_lock WHERE name > ? ORDER BY name LIMIT 1 OFFSET ?"

forget_absent = "DELETE FROM gripfast_waiter WHERE boot <> ? OR seen < ?"

forget_idle = """
    DELETE FROM gripfast_lock WHERE name > ? AND name <= ? AND max(since_us, token) < ?
        AND (owner IS NULL OR (boot = ? AND expires < ?) OR (boot = ? AND expires < ?))
        AND NOT EXISTS (SELECT 1 FROM gripfast_waiter w WHERE w.name = gripfast_lock.name)
"""
