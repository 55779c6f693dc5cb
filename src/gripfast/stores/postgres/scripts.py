"""Every SQL text for PostgreSQL, and what fills its places. See `sql.ports.Scripts` for what each one answers.

Time is clock_timestamp(), read where a row lock has been waited for already; now() is when the transaction began. Each
lease request is a single statement, so none depends on the isolation level: under a stricter one than READ COMMITTED
a race ends with a serialisation error instead, and a retry is right.

A claim looks first: one that finds the name held writes nothing, locks nothing and waits for no disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from gripfast.stores.postgres.permit_tables import TABLES as PERMIT_TABLES
from gripfast.stores.sql import kept_texts
from gripfast.stores.sql.layout_texts import layout_scripts
from gripfast.stores.sql.statement import ByMode, Query, Statement, takes

SCHEMA: tuple[Statement, ...] = (
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_lock (
    name            text COLLATE "C" PRIMARY KEY,
    token           bigint NOT NULL,            -- of the last grant
    owner           text,                       -- NULL if the lock is free
    expires_us      bigint NOT NULL,            -- times are microseconds since 1970, by this server's clock
    ttl_us          bigint NOT NULL,
    since_us        bigint NOT NULL,            -- held since then, or free since then
    card            text NOT NULL,              -- who the owner is, as JSON
    broken          text,                       -- the last owner whose lock was released by force
    waited_until_us bigint NOT NULL DEFAULT 0,  -- until then, a release notifies waiters
    checked_us      bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                                                -- when the row was made, or last checked for use
) WITH (fillfactor = 50)"""),
    Statement("CREATE INDEX IF NOT EXISTS gripfast_lock_checked ON gripfast_lock (checked_us)"),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_row (
    name       text COLLATE "C" PRIMARY KEY,    -- locked by mode=row, in a transaction
    checked_us bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
) WITH (fillfactor = 50)"""),
    Statement("CREATE INDEX IF NOT EXISTS gripfast_row_checked ON gripfast_row (checked_us)"),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_grant (
    mode     text COLLATE "C" NOT NULL,         -- row or advisory
    name     text COLLATE "C" NOT NULL,
    token    bigint NOT NULL,                   -- of the last grant
    owner    text NOT NULL,                     -- of the last grant
    session  integer NOT NULL,                  -- process number of the session that took the lock
    mark     text NOT NULL,                     -- the transaction's number, or the advisory key
    ttl_us   bigint NOT NULL,
    since_us bigint NOT NULL,
    card     text NOT NULL,                     -- who the owner is, as JSON
    checked_us bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    PRIMARY KEY (mode, name)
) WITH (fillfactor = 50)"""),
    Statement("CREATE INDEX IF NOT EXISTS gripfast_grant_checked ON gripfast_grant (mode, checked_us)"),
    *PERMIT_TABLES,
)

_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

_TTL_MS, _WAIT_MS = (
    f"least(greatest((:{us}::bigint + 999) / 1000, 1), 2147483647)::text" for us in ("ttl_us", "wait_us")
)
"""Never 0, which is no limit; never more than a setting can hold."""

_HELD = f"""
    CASE WHEN expires_us > {_CLOCK} THEN owner END, token, expires_us - {_CLOCK}, ttl_us, since_us, card
"""

# A name longer than any lock's, as `_NOTE_OF` has.
layout_read, layout_write = layout_scripts("rpad('gripfast layout', 1100, '.')", "INSERT", "ON CONFLICT DO NOTHING")

# -- leases --------------------------------------------------------------------------------------------------------

claim = claim_taken = takes("name owner ttl_us holder")(f"""
    WITH taken AS MATERIALIZED (
        SELECT owner, token, expires_us - {_CLOCK}, ttl_us, since_us, card FROM gripfast_lock
        WHERE name = :name AND owner <> :owner AND expires_us > {_CLOCK}
    ), claimed AS (
        INSERT INTO gripfast_lock AS l (name, token, owner, expires_us, ttl_us, since_us, card)
        SELECT :name::text, now_us, :owner::text, now_us + :ttl_us::bigint, :ttl_us::bigint, now_us, :holder::text
        FROM (SELECT {_CLOCK} AS now_us) AS clock
        WHERE NOT EXISTS (SELECT FROM taken)
        ON CONFLICT (name) DO UPDATE SET
            token = CASE WHEN l.owner = :owner THEN l.token ELSE greatest(l.token + 1, {_CLOCK}) END,
            owner = :owner,
            expires_us = CASE WHEN l.owner = :owner THEN greatest(l.expires_us, {_CLOCK} + :ttl_us)
                              ELSE {_CLOCK} + :ttl_us END,
            ttl_us = :ttl_us,
            since_us = CASE WHEN l.owner = :owner THEN l.since_us ELSE {_CLOCK} END,
            card = :holder
        WHERE l.owner IS NULL OR l.owner = :owner OR l.expires_us <= {_CLOCK}
        RETURNING l.owner, l.token, l.expires_us - {_CLOCK}, l.ttl_us, l.since_us, l.card
    )
    SELECT held.* FROM (SELECT) AS always
    LEFT JOIN (SELECT * FROM taken UNION ALL SELECT * FROM claimed) AS held ON true
""")
"""It looks first in any case. One who meets another between the look and the lock gets a row of NULLs: nobody,
though it is somebody's by now."""

register = takes("name window_us")(f"""
    UPDATE gripfast_lock SET waited_until_us = greatest(waited_until_us, {_CLOCK} + :window_us::bigint)
    WHERE name = :name RETURNING {_HELD}
""")

_RENEWED = f"""
    UPDATE gripfast_lock SET
        ttl_us = :ttl_us::bigint,
        expires_us = CASE WHEN :shortens::boolean THEN {_CLOCK} + :ttl_us
                          ELSE greatest(expires_us, {_CLOCK} + :ttl_us) END
    WHERE owner = :owner AND expires_us > {_CLOCK}
"""
renew = takes("name owner ttl_us shortens")(f"""{_RENEWED} AND name = (
    SELECT name FROM gripfast_lock WHERE name = :name AND owner = :owner FOR NO KEY UPDATE SKIP LOCKED
)""")

_WAIT_AT_MOST = f"SELECT set_config('statement_timeout', {_WAIT_MS}, true)"
"""In the transaction of what is sent with it."""

renew_waiting = takes("name owner ttl_us shortens wait_us")(_WAIT_AT_MOST, f"{_RENEWED} AND name = :name")

_NOTE_OF = "rpad('gripfast note ' || {owner}, 1100, '.')"
"""The name of a row whose `card` is a note. It is longer than any lock's name with its prefix (1024 bytes), so it is
none. Nobody owns the row: the sweep forgets it a day later, and no list shows it."""

why = takes("name owner")(f"""
    SELECT CASE WHEN owner = :owner AND expires_us > {_CLOCK} THEN 'held' WHEN broken = :owner THEN 'broken'
                WHEN owner <> :owner THEN 'taken' ELSE 'expired' END,
        (SELECT card FROM gripfast_lock AS note WHERE note.name = {_NOTE_OF.format(owner=":owner::text")})
    FROM gripfast_lock WHERE name = :name
""")

_FREED = f"""
    RETURNING (expires_us > {_CLOCK})::int,
        CASE WHEN waited_until_us > {_CLOCK} THEN (pg_notify(:channel, '')::text = '')::int ELSE 0 END
"""
"""waited_until_us stays: more may wait than the one who will be next."""

_RELEASE = f"""
    UPDATE gripfast_lock SET owner = NULL, since_us = {_CLOCK} WHERE name = :name AND owner = :owner {_FREED}
"""
release = takes("name owner channel")(_RELEASE)
release_waiting = takes("name owner channel wait_us")(_WAIT_AT_MOST, _RELEASE)

abandon = takes("name owner channel")(f"""
    WITH mine AS MATERIALIZED (
        SELECT name FROM gripfast_lock WHERE name = :name AND owner = :owner FOR NO KEY UPDATE SKIP LOCKED
    ), freed AS (
        UPDATE gripfast_lock SET owner = NULL, since_us = {_CLOCK} WHERE name = (SELECT name FROM mine) {_FREED}
    )
    SELECT 1 FROM gripfast_lock WHERE name = :name AND owner = :owner AND (SELECT count(*) FROM freed) = 0
""")

_FORCE_RELEASE = f"""
    UPDATE gripfast_lock SET owner = NULL, since_us = {_CLOCK}, broken = owner
    WHERE name = :name AND owner IS NOT NULL AND {kept_texts.NOT_DONE} {_FREED}
"""
force_release = takes("name channel")(_FORCE_RELEASE)
force_release_noted = takes("name channel note")(f"""
    WITH freed (was_held, is_waited_for, victim) AS ({_FORCE_RELEASE}, broken), noted AS (
        INSERT INTO gripfast_lock (name, token, expires_us, ttl_us, since_us, card)
        SELECT {_NOTE_OF.format(owner="victim")}, {_CLOCK}, 0, 0, {_CLOCK}, :note::text FROM freed
        ON CONFLICT (name) DO UPDATE SET card = excluded.card
    )
    SELECT was_held, is_waited_for FROM freed
""")

keep = takes("name owner marker keep_us")(kept_texts.KEEP_POSTGRES.replace("{now}", _CLOCK))
adopt = takes("name former owner ttl_us holder")(kept_texts.ADOPT_POSTGRES.replace("{now}", _CLOCK))

look = takes("name")(f"""
    SELECT {_HELD} FROM gripfast_lock WHERE name = :name AND owner IS NOT NULL AND expires_us > {_CLOCK}
""")


def listen(channel: str) -> list[Query]:
    return [Query(Statement(f'LISTEN "{channel}"'))]


def unlisten(channel: str) -> list[Query]:
    return [Query(Statement(f'UNLISTEN "{channel}"'))]


def _paged(selected: str) -> Callable[[str, str, int], list[Query]]:
    begun, rest = f"SELECT name, {selected} AND name > :after AND name >= :prefix", "ORDER BY name LIMIT :count::int"
    to_the_end = takes("after prefix count")(f"{begun} {rest}")
    within = takes("after prefix count prefix_end")(f"{begun} AND name < :prefix_end {rest}")

    def page(after: str, prefix: str, count: int) -> list[Query]:
        """With an end, the index is not read past it."""
        end = _prefix_end(prefix)
        return to_the_end(after, prefix, count) if end is None else within(after, prefix, count, end)

    return page


def _prefix_end(prefix: str) -> str | None:
    """A text above all that start so, and nearly the smallest: of what comes after its last ASCII character nothing is
    known, because encodings of databases sort differently, and lack characters. So a page may end with others."""
    kept = prefix
    while kept and ord(kept[-1]) >= 0x7F:
        kept = kept[:-1]
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else None


page = _paged(f"{_HELD} FROM gripfast_lock WHERE true")


# -- sessions ------------------------------------------------------------------------------------------------------

row_make = takes("name")("INSERT INTO gripfast_row (name) VALUES (:name) ON CONFLICT DO NOTHING")

row_exists = takes("name")("SELECT FROM gripfast_row WHERE name = :name")

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"

row_try = takes("name ttl_us")(
    _BEGIN,
    f"""
    SELECT CASE WHEN set_config('idle_in_transaction_session_timeout', {_TTL_MS}, true) <> ''
                THEN pg_current_xact_id()::text END
    FROM gripfast_row WHERE name = :name FOR UPDATE NOWAIT
""",
)

row_wait = takes("name ttl_us wait_us")(
    _BEGIN,
    f"""SELECT set_config('idle_in_transaction_session_timeout', {_TTL_MS}, true),
        set_config('statement_timeout', {_WAIT_MS}, true)""",
    "SELECT pg_current_xact_id()::text FROM gripfast_row WHERE name = :name FOR UPDATE",
)
"""A time-out of the statement, not of a lock: a row may have to wait for several, one after the other."""

row_free = takes("")("ROLLBACK")
"""Nothing was written: no commit is needed, and this one works after an error, too."""

advisory_try = takes("key ttl_us")(f"""
    SELECT CASE WHEN current_setting('idle_session_timeout') IS NULL THEN NULL
                WHEN pg_try_advisory_lock(:key) THEN (set_config('idle_session_timeout', {_TTL_MS}, false) <> '')::int
                ELSE 0 END
""")
"""A server that does not know the setting says so before anything is locked."""

advisory_wait = takes("key ttl_us wait_us")(
    f"SELECT set_config('idle_session_timeout', {_TTL_MS}, false), set_config('lock_timeout', {_WAIT_MS}, true)",
    "SELECT pg_advisory_xact_lock(:key)",
    "SELECT (pg_advisory_lock(:key)::text = '')::int",
)
"""The settings are undone if the lock, in the same transaction, is not had in time. The time may be over in the moment
in which the lock is had. One for the transaction is then undone with it; one for the session would stay, with nobody
who knows of it. So that is taken second, when there is nothing to wait for."""

advisory_free = takes("key")("""
    SELECT CASE WHEN set_config('idle_session_timeout', '0', false) <> ''
                THEN pg_advisory_unlock(:key)::int + length(pg_advisory_unlock_all()::text) END
""")
"""All, whose text is empty: if a wait was cancelled by hand in the wrong moment, the session has the lock twice."""

ping = ByMode(
    row=takes("ttl_us")(f"""
        SELECT (set_config('idle_in_transaction_session_timeout', {_TTL_MS}, true) <> ''
            AND set_config('statement_timeout', '0', true) <> '' AND NOT pg_is_in_recovery())::int
    """),
    advisory=takes("ttl_us")(f"""
        SELECT (set_config('idle_session_timeout', {_TTL_MS}, false) <> '' AND NOT pg_is_in_recovery())::int
    """),
)

_GRANT = f"""
    INSERT INTO gripfast_grant AS g (mode, name, token, owner, session, mark, ttl_us, since_us, card)
    VALUES (:mode, :name, {_CLOCK}, :owner, :session, :mark::text, :ttl_us, {_CLOCK}, :holder)
    ON CONFLICT (mode, name) DO UPDATE SET
        token = greatest(g.token + 1, {_CLOCK}), owner = excluded.owner, session = excluded.session,
        mark = excluded.mark, ttl_us = excluded.ttl_us, since_us = {_CLOCK}, card = excluded.card
    RETURNING CASE WHEN set_config('synchronous_commit', 'off', true) <> '' THEN token END
"""
grant = takes("mode name owner session mark ttl_us holder")(_GRANT)
"""Does not wait for the disk: a crash ends the session, too, and the next token comes from the clock."""

_LOCKER = """
    SELECT (next - (next & 4294967295) + locker - CASE WHEN locker > next & 4294967295 THEN 4294967296 ELSE 0 END)::text
    FROM (SELECT xmax::text::bigint AS locker, pg_current_xact_id()::text::bigint AS next
        FROM gripfast_row WHERE name = :name) AS row
"""
"""Who has the row locked, with the epoch that a row does not keep. Behind a savepoint this is not the number of the
transaction but of its part, and a rollback to the savepoint ends that part, and the lock, while the transaction goes
on. The mark is both numbers then: by the first one sees whether it is held, by the last in which session."""

_GRANT_WITHIN = _GRANT.replace(":ttl_us", "0").replace("END\n", "END, token\n")
_MARKS = {"row": f"({_LOCKER}) || ' ' || :mark::text", "advisory": ":mark::text"}
grant_within = ByMode(
    {
        mode: takes("name owner session mark holder")(
            _GRANT_WITHIN.replace(":mode", f"'{mode}'").replace(":mark::text", mark)
        )
        for mode, mark in _MARKS.items()
    }
)

set_ttl = takes("mode name owner ttl_us")("""
    UPDATE gripfast_grant SET ttl_us = :ttl_us WHERE mode = :mode AND name = :name AND owner = :owner
""")

_ADVISORY_KEY = "(classid::bigint << 32 | objid::bigint)::text"
_ADVISORY_KEYS = f"""
    SELECT {_ADVISORY_KEY}, pid FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

_IS_HELD: Mapping[str, str] = {
    # A number that this server has not reached is of another one, whose tables were brought here.
    "row": """(CASE WHEN split_part(mark, ' ', 1)::xid8 < pg_snapshot_xmax(pg_current_snapshot())
        THEN coalesce(pg_xact_status(split_part(mark, ' ', 1)::xid8) = 'in progress', false) ELSE false END)::int""",
    # A prepared transaction is of no session.
    "advisory": f"""EXISTS (SELECT FROM ({_ADVISORY_KEYS}) AS locked (key, pid)
        WHERE key = mark AND coalesce(pid, session) = session)::int""",
}

_SEEN = {
    mode: f"owner, token, ttl_us, since_us, card, session, {is_held} FROM gripfast_grant WHERE mode = '{mode}'"
    for mode, is_held in _IS_HELD.items()
}
seen = ByMode({mode: takes("name")(f"SELECT {columns} AND name = :name") for mode, columns in _SEEN.items()})
seen_page = ByMode({mode: _paged(columns) for mode, columns in _SEEN.items()})

_ITS_SESSION = """
    FROM pg_stat_activity WHERE pid = :session::int AND datname = current_database()
    AND :birth::text IN ('', extract(epoch FROM backend_start)::text)
"""
has_session = takes("session birth")(f"SELECT 1 {_ITS_SESSION}")
end_session = takes("session birth")(f"SELECT pg_terminate_backend(pid)::int {_ITS_SESSION}")
end_wait = takes("session birth")(f"SELECT pg_cancel_backend(pid)::int {_ITS_SESSION} AND state = 'active'")

leave_wait = ByMode(
    row=takes("key")("ROLLBACK"),
    advisory=takes("key")("SELECT pg_advisory_unlock_all(), set_config('idle_session_timeout', '0', false)"),
)
"""All, without a word if there is none: a warning would be written to the server's log."""

_ITS_LOCK: Mapping[str, str] = {
    "row": """lock.locktype = 'transactionid' AND lock.mode = 'ExclusiveLock'
        AND lock.transactionid::text = (regexp_replace(held.mark, '.* ', '')::bigint & 4294967295)::text""",
    "advisory": f"""lock.locktype = 'advisory' AND lock.objsubid = 1 AND {_ADVISORY_KEY} = held.mark
        AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())""",
}
"""A transaction has a lock on its own number."""

end_holder = ByMode(
    {
        mode: takes("name owner")(f"""
        SELECT gid, CASE WHEN lock.pid = held.session THEN pg_terminate_backend(lock.pid)::int END
        FROM gripfast_grant AS held JOIN pg_locks AS lock ON lock.granted AND {its_lock}
        LEFT JOIN pg_locks AS own ON lock.pid IS NULL AND own.pid IS NULL AND own.locktype = 'transactionid'
            AND own.virtualtransaction = lock.virtualtransaction
        LEFT JOIN pg_prepared_xacts AS prepared ON prepared.transaction::text = own.transactionid::text
        WHERE held.mode = '{mode}' AND held.name = :name AND held.owner = :owner
    """)
        for mode, its_lock in _ITS_LOCK.items()
    }
)
"""A prepared transaction is of no process, and all its locks have one virtual number."""


def advisory_key(database: str, name: str) -> int:
    """PostgreSQL keeps databases apart itself."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)


# -- forgetting names that nobody uses any more --------------------------------------------------------------------

# An index shows which of them are due. The moment is the statement's: an index can't be searched for a clock that goes
# on. It is old, if anything, so nothing is forgotten too early. What was used since comes again when it may be idle;
# what is held now, after as long. Rows that somebody has locked are passed over.
_MOMENT = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
_LAST_USE = "greatest(token, CASE WHEN owner IS NULL THEN since_us ELSE expires_us END)"

sweep = takes("count idle_us")(f"""
    WITH due AS MATERIALIZED (
        SELECT name, coalesce((owner IS NULL OR expires_us <= {_MOMENT}) AND {_LAST_USE} < {_MOMENT} - :idle_us, false)
            AS is_idle
        FROM gripfast_lock WHERE checked_us < {_MOMENT} - :idle_us::bigint ORDER BY checked_us LIMIT :count::int
        FOR UPDATE SKIP LOCKED
    ), forgotten AS (
        DELETE FROM gripfast_lock WHERE name IN (SELECT name FROM due WHERE is_idle)
    ), used AS (
        UPDATE gripfast_lock SET checked_us = {_LAST_USE} WHERE name IN (SELECT name FROM due WHERE NOT is_idle)
    )
    SELECT count(*) FROM due
""")

_LAST_GRANT = "greatest(since_us, token)"

# A row that somebody has locked is passed over. One without a grant was made by somebody who did not come to lock it.
SWEEP_ROWS = f"""
    WITH due AS MATERIALIZED (
        SELECT name FROM gripfast_row WHERE checked_us < {_MOMENT} - :idle_us::bigint
        ORDER BY checked_us LIMIT :count::int FOR UPDATE SKIP LOCKED
    ), used AS MATERIALIZED (
        SELECT name, {_LAST_GRANT} AS used_us FROM gripfast_grant JOIN due USING (name)
        WHERE mode = 'row' AND {_LAST_GRANT} >= {_MOMENT} - :idle_us
    ), forgotten_rows AS (
        DELETE FROM gripfast_row WHERE name IN (SELECT name FROM due EXCEPT SELECT name FROM used)
    ), forgotten AS (
        DELETE FROM gripfast_grant
        WHERE mode = 'row' AND name IN (SELECT name FROM due EXCEPT SELECT name FROM used)
            AND {_LAST_GRANT} < {_MOMENT} - :idle_us
    ), checked AS (
        UPDATE gripfast_row SET checked_us = used_us FROM used WHERE gripfast_row.name = used.name
    )
    SELECT count(*) FROM due
"""
SWEEP_ADVISORY = f"""
    WITH due AS MATERIALIZED (
        SELECT name, {_LAST_GRANT} < {_MOMENT} - :idle_us AND mark NOT IN (
            SELECT key FROM ({_ADVISORY_KEYS}) AS locked (key, pid)
        ) AS is_idle
        FROM gripfast_grant WHERE mode = 'advisory' AND checked_us < {_MOMENT} - :idle_us::bigint
        ORDER BY checked_us LIMIT :count::int FOR UPDATE SKIP LOCKED
    ), forgotten AS (
        DELETE FROM gripfast_grant WHERE mode = 'advisory' AND name IN (SELECT name FROM due WHERE is_idle)
    ), checked AS (
        UPDATE gripfast_grant
        SET checked_us = CASE WHEN {_LAST_GRANT} < {_MOMENT} - :idle_us THEN {_MOMENT} ELSE {_LAST_GRANT} END
        WHERE mode = 'advisory' AND name IN (SELECT name FROM due WHERE NOT is_idle)
    )
    SELECT count(*) FROM due
"""
sweep_sessions = ByMode(row=takes("count idle_us")(SWEEP_ROWS), advisory=takes("count idle_us")(SWEEP_ADVISORY))
