"""Every SQL text for PostgreSQL, and what fills its places. See `sql.ports.Scripts` for what each one answers.

Time is clock_timestamp(), read where a row lock has been waited for already; now() is when the transaction began. Each
lease request is a single statement, so none depends on the isolation level: under a stricter one than READ COMMITTED
a race ends with a serialisation error instead, and asking again is right.

A claim looks first: one that finds the name held writes nothing, locks nothing and waits for no disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from gripfast.stores.postgres.sweeping import ADVISORY_KEY, ADVISORY_KEYS
from gripfast.stores.postgres.sweeping import sweep as sweep
from gripfast.stores.postgres.sweeping import sweep_sessions as sweep_sessions
from gripfast.stores.sql.statement import Query, Statement, Value

SCHEMA: tuple[Statement, ...] = (
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_lock (
    name            text COLLATE "C" PRIMARY KEY,
    token           bigint NOT NULL,            -- the last one that was given for this name
    owner           text,                       -- NULL if it is free
    expires_us      bigint NOT NULL,            -- times are microseconds since 1970, by this server's clock
    ttl_us          bigint NOT NULL,
    since_us        bigint NOT NULL,            -- held since then, or free since then
    card            text NOT NULL,              -- who the owner is, as JSON
    broken          text,                       -- the last owner that was forced out
    waited_until_us bigint NOT NULL DEFAULT 0,  -- until then, a release is told to those who wait
    checked_us      bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                                                -- made then, or looked at whether it is still used
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
    token    bigint NOT NULL,                   -- the last one that was given for this name
    owner    text NOT NULL,                     -- who was given it
    session  integer NOT NULL,                  -- process number of the session that took the lock
    mark     text NOT NULL,                     -- its transaction, or its advisory key
    ttl_us   bigint NOT NULL,
    since_us bigint NOT NULL,
    card     text NOT NULL,                     -- who the owner is, as JSON
    checked_us bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    PRIMARY KEY (mode, name)
) WITH (fillfactor = 50)"""),
    Statement("CREATE INDEX IF NOT EXISTS gripfast_grant_checked ON gripfast_grant (mode, checked_us)"),
)

_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

_HELD = f"""
    CASE WHEN expires_us > {_CLOCK} THEN owner END, token, expires_us - {_CLOCK}, ttl_us, since_us, card
"""

# -- leases --------------------------------------------------------------------------------------------------------

_CLAIM = Statement(f"""
    WITH taken AS MATERIALIZED (
        SELECT owner, token, expires_us - {_CLOCK}, ttl_us, since_us, card FROM gripfast_lock
        WHERE name = :name AND owner <> :owner AND expires_us > {_CLOCK}
    ), claimed AS (
        INSERT INTO gripfast_lock AS l (name, token, owner, expires_us, ttl_us, since_us, card)
        SELECT :name::text, now_us, :owner::text, now_us + :ttl_us::bigint, :ttl_us::bigint, now_us, :card::text
        FROM (SELECT {_CLOCK} AS now_us) AS clock
        WHERE NOT EXISTS (SELECT FROM taken)
        ON CONFLICT (name) DO UPDATE SET
            token = CASE WHEN l.owner = :owner THEN l.token ELSE greatest(l.token + 1, {_CLOCK}) END,
            owner = :owner,
            expires_us = CASE WHEN l.owner = :owner THEN greatest(l.expires_us, {_CLOCK} + :ttl_us)
                              ELSE {_CLOCK} + :ttl_us END,
            ttl_us = :ttl_us,
            since_us = CASE WHEN l.owner = :owner THEN l.since_us ELSE {_CLOCK} END,
            card = :card
        WHERE l.owner IS NULL OR l.owner = :owner OR l.expires_us <= {_CLOCK}
        RETURNING l.owner, l.token, l.expires_us - {_CLOCK}, l.ttl_us, l.since_us, l.card
    )
    SELECT held.* FROM (SELECT) AS always
    LEFT JOIN (SELECT * FROM taken UNION ALL SELECT * FROM claimed) AS held ON true
""")
"""One who meets another between the look and the lock is told nobody, in a row of NULLs: it is somebody's by now."""

_REGISTER = Statement(f"""
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
_RENEW = Statement(f"""{_RENEWED} AND name = (
    SELECT name FROM gripfast_lock WHERE name = :name AND owner = :owner FOR NO KEY UPDATE SKIP LOCKED
)""")

_RENEW_WAITING = Statement(f"{_RENEWED} AND name = :name")
_WAIT_AT_MOST = Statement("SELECT set_config('statement_timeout', :wait_ms, true)")
"""In the transaction of what is sent with it."""

_WHY = Statement(f"""
    SELECT CASE WHEN owner = :owner AND expires_us > {_CLOCK} THEN 'held' WHEN broken = :owner THEN 'broken'
                WHEN owner <> :owner THEN 'taken' ELSE 'expired' END
    FROM gripfast_lock WHERE name = :name
""")

_FREED = f"""
    RETURNING (expires_us > {_CLOCK})::int,
        CASE WHEN waited_until_us > {_CLOCK} THEN (pg_notify(:channel, '')::text = '')::int ELSE 0 END
"""
"""waited_until_us stays: more may wait than the one who will be next."""

_RELEASE = Statement(f"""
    UPDATE gripfast_lock SET owner = NULL, since_us = {_CLOCK} WHERE name = :name AND owner = :owner {_FREED}
""")

_ABANDON = Statement(f"""
    WITH mine AS MATERIALIZED (
        SELECT name FROM gripfast_lock WHERE name = :name AND owner = :owner FOR NO KEY UPDATE SKIP LOCKED
    ), freed AS (
        UPDATE gripfast_lock SET owner = NULL, since_us = {_CLOCK} WHERE name = (SELECT name FROM mine) {_FREED}
    )
    SELECT 1 FROM gripfast_lock WHERE name = :name AND owner = :owner AND (SELECT count(*) FROM freed) = 0
""")

_FORCE_RELEASE = Statement(f"""
    UPDATE gripfast_lock SET owner = NULL, since_us = {_CLOCK}, broken = owner
    WHERE name = :name AND owner IS NOT NULL {_FREED}
""")

_LOOK = Statement(f"""
    SELECT {_HELD} FROM gripfast_lock WHERE name = :name AND owner IS NOT NULL AND expires_us > {_CLOCK}
""")

_PAGE = Statement(f"""
    SELECT name, {_HELD} FROM gripfast_lock
    WHERE name > :after AND name >= :prefix AND name < :prefix_end ORDER BY name LIMIT :count::int
""")

_LAST_PAGE = Statement(f"""
    SELECT name, {_HELD} FROM gripfast_lock WHERE name > :after AND name >= :prefix ORDER BY name LIMIT :count::int
""")


def claim(name: str, owner: str, ttl_us: int, card: str, seems_taken: bool = False) -> list[Query]:
    """It looks first in any case."""
    return [Query(_CLAIM, {"name": name, "owner": owner, "ttl_us": ttl_us, "card": card})]


def register(name: str, window_us: int) -> list[Query]:
    return [Query(_REGISTER, {"name": name, "window_us": window_us})]


def renew(name: str, owner: str, ttl_us: int, shortens: bool) -> list[Query]:
    return [Query(_RENEW, {"name": name, "owner": owner, "ttl_us": ttl_us, "shortens": int(shortens)})]


def renew_waiting(name: str, owner: str, ttl_us: int, shortens: bool, wait_us: int) -> list[Query]:
    values: dict[str, Value] = {"name": name, "owner": owner, "ttl_us": ttl_us, "shortens": int(shortens)}
    return [_at_most(wait_us), Query(_RENEW_WAITING, values)]


def why(name: str, owner: str) -> list[Query]:
    return [Query(_WHY, {"name": name, "owner": owner})]


def release(name: str, owner: str, channel: str) -> list[Query]:
    return [Query(_RELEASE, {"name": name, "owner": owner, "channel": channel})]


def abandon(name: str, owner: str, channel: str) -> list[Query]:
    return [Query(_ABANDON, {"name": name, "owner": owner, "channel": channel})]


def release_waiting(name: str, owner: str, channel: str, wait_us: int) -> list[Query]:
    return [_at_most(wait_us), *release(name, owner, channel)]


def _at_most(wait_us: int) -> Query:
    return Query(_WAIT_AT_MOST, {"wait_ms": str(max(1, wait_us // 1000))})


def force_release(name: str, channel: str) -> list[Query]:
    return [Query(_FORCE_RELEASE, {"name": name, "channel": channel})]


def look(name: str) -> list[Query]:
    return [Query(_LOOK, {"name": name})]


def page(after: str, prefix: str, count: int) -> list[Query]:
    return [_paged(_PAGE, _LAST_PAGE, after, prefix, count)]


def listen(channel: str) -> list[Query]:
    return [Query(Statement(f'LISTEN "{channel}"'))]


def unlisten(channel: str) -> list[Query]:
    return [Query(Statement(f'UNLISTEN "{channel}"'))]


def _paged(within: Statement, to_the_end: Statement, after: str, prefix: str, count: int) -> Query:
    """With an end, the index is not read past it."""
    values: dict[str, Value] = {"after": after, "prefix": prefix, "count": count}
    end = _prefix_end(prefix)
    return Query(to_the_end, values) if end is None else Query(within, values | {"prefix_end": end})


def _prefix_end(prefix: str) -> str | None:
    """A text above all that start so, and nearly the smallest: of what comes after its last ASCII character nothing is
    known, because encodings of databases sort differently, and lack characters. So a page may end with others."""
    kept = prefix
    while kept and ord(kept[-1]) >= 0x7F:
        kept = kept[:-1]
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else None


# -- sessions ------------------------------------------------------------------------------------------------------

_ROW_MAKE = Statement("INSERT INTO gripfast_row (name) VALUES (:name) ON CONFLICT DO NOTHING")

_ROW_EXISTS = Statement("SELECT FROM gripfast_row WHERE name = :name")

_BEGIN = Statement("BEGIN ISOLATION LEVEL READ COMMITTED")

_ROW_TRY = Statement("""
    SELECT CASE WHEN set_config('idle_in_transaction_session_timeout', :ttl_ms, true) <> ''
                THEN pg_current_xact_id()::text END
    FROM gripfast_row WHERE name = :name FOR UPDATE NOWAIT
""")

_ROW_TIMES = Statement("""
    SELECT set_config('idle_in_transaction_session_timeout', :ttl_ms, true),
        set_config('statement_timeout', :wait_ms, true)
""")
"""A time-out of the statement, not of a lock: a row may have to wait for several, one after the other."""

_ROW_WAIT = Statement("SELECT pg_current_xact_id()::text FROM gripfast_row WHERE name = :name FOR UPDATE")

_ROW_FREE = Statement("ROLLBACK")

_ADVISORY_TRY = Statement("""
    SELECT CASE WHEN current_setting('idle_session_timeout') IS NULL THEN NULL
                WHEN pg_try_advisory_lock(:key) THEN (set_config('idle_session_timeout', :ttl_ms, false) <> '')::int
                ELSE 0 END
""")
"""A server that does not know the setting says so before anything is locked."""

_ADVISORY_TIMES = Statement("""
    SELECT set_config('idle_session_timeout', :ttl_ms, false), set_config('lock_timeout', :wait_ms, true)
""")
"""Both are undone if the lock, in the same transaction, is not had in time."""

_ADVISORY_WAIT = Statement("SELECT pg_advisory_xact_lock(:key)")
_ADVISORY_KEEP = Statement("SELECT (pg_advisory_lock(:key)::text = '')::int")
"""The time may be over in the moment in which the lock is had. One for the transaction is then undone with it; one for
the session would stay, with nobody who knows of it. So that is taken second, when there is nothing to wait for."""

_ADVISORY_FREE = Statement("""
    SELECT CASE WHEN set_config('idle_session_timeout', '0', false) <> ''
                THEN pg_advisory_unlock(:key)::int + length(pg_advisory_unlock_all()::text) END
""")
"""All, whose text is empty: if a wait was cancelled by hand in the wrong moment, the session has the lock twice."""

_PING: Mapping[str, Statement] = {
    "row": Statement("""
        SELECT (set_config('idle_in_transaction_session_timeout', :ttl_ms, true) <> ''
            AND set_config('statement_timeout', '0', true) <> '' AND NOT pg_is_in_recovery())::int
    """),
    "advisory": Statement("""
        SELECT (set_config('idle_session_timeout', :ttl_ms, false) <> '' AND NOT pg_is_in_recovery())::int
    """),
}

_GRANT = Statement(f"""
    INSERT INTO gripfast_grant AS g (mode, name, token, owner, session, mark, ttl_us, since_us, card)
    VALUES (:mode, :name, {_CLOCK}, :owner, :session, :mark::text, :ttl_us, {_CLOCK}, :card)
    ON CONFLICT (mode, name) DO UPDATE SET
        token = greatest(g.token + 1, {_CLOCK}), owner = excluded.owner, session = excluded.session,
        mark = excluded.mark, ttl_us = excluded.ttl_us, since_us = {_CLOCK}, card = excluded.card
    RETURNING CASE WHEN set_config('synchronous_commit', 'off', true) <> '' THEN token END
""")
"""Does not wait for the disk: a crash ends the session, too, and the next token comes from the clock."""

_LOCKER = """
    SELECT (next - (next & 4294967295) + locker - CASE WHEN locker > next & 4294967295 THEN 4294967296 ELSE 0 END)::text
    FROM (SELECT xmax::text::bigint AS locker, pg_current_xact_id()::text::bigint AS next
        FROM gripfast_row WHERE name = :name) AS row
"""
"""Who has the row locked, with the epoch that a row does not keep. Behind a savepoint this is not the number of the
transaction but of its part, and a rollback to the savepoint ends that part, and the lock, while the transaction goes
on. The mark is both numbers then: by the first one sees whether it is held, by the last in which session."""

_GRANT_WITHIN: Mapping[str, Statement] = {
    "row": Statement(
        _GRANT.sql.replace(":mark::text", f"({_LOCKER}) || ' ' || :mark::text").replace("END\n", "END, token\n")
    ),
    "advisory": Statement(_GRANT.sql.replace("END\n", "END, token\n")),
}

_SET_TTL = Statement("""
    UPDATE gripfast_grant SET ttl_us = :ttl_us WHERE mode = :mode AND name = :name AND owner = :owner
""")

_IS_HELD: Mapping[str, str] = {
    # A number that this server has not reached is of another one, whose tables were brought here.
    "row": """(CASE WHEN split_part(mark, ' ', 1)::xid8 < pg_snapshot_xmax(pg_current_snapshot())
        THEN coalesce(pg_xact_status(split_part(mark, ' ', 1)::xid8) = 'in progress', false) ELSE false END)::int""",
    # A prepared transaction is of no session.
    "advisory": f"""EXISTS (SELECT FROM ({ADVISORY_KEYS}) AS locked (key, pid)
        WHERE key = mark AND coalesce(pid, session) = session)::int""",
}

_SEEN, _SEEN_PAGE, _SEEN_LAST_PAGE = (
    {
        mode: Statement(f"""
            SELECT {columns} owner, token, ttl_us, since_us, card, session, {is_held} FROM gripfast_grant
            WHERE mode = '{mode}' AND {rest}
        """)
        for mode, is_held in _IS_HELD.items()
    }
    for columns, rest in (
        ("", "name = :name"),
        ("name,", "name > :after AND name >= :prefix AND name < :prefix_end ORDER BY name LIMIT :count::int"),
        ("name,", "name > :after AND name >= :prefix ORDER BY name LIMIT :count::int"),
    )
)

_END_SESSION = Statement("""
    SELECT pg_terminate_backend(pid)::int FROM pg_stat_activity
    WHERE pid = :session::int AND datname = current_database()
        AND :birth::text IN ('', extract(epoch FROM backend_start)::text)
""")

_END_WAIT = Statement("""
    SELECT pg_cancel_backend(pid)::int FROM pg_stat_activity
    WHERE pid = :session::int AND datname = current_database() AND state = 'active'
        AND :birth::text IN ('', extract(epoch FROM backend_start)::text)
""")

_LEAVE_WAIT = Statement("SELECT pg_advisory_unlock_all(), set_config('idle_session_timeout', '0', false)")
"""All, without a word if there is none: a warning would be written to the server's log."""

_ITS_LOCK: Mapping[str, str] = {
    "row": """lock.locktype = 'transactionid' AND lock.mode = 'ExclusiveLock'
        AND lock.transactionid::text = (regexp_replace(held.mark, '.* ', '')::bigint & 4294967295)::text""",
    "advisory": f"""lock.locktype = 'advisory' AND lock.objsubid = 1 AND {ADVISORY_KEY} = held.mark
        AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())""",
}
"""A transaction has a lock on its own number."""

_END_HOLDER = {
    mode: Statement(f"""
        SELECT gid, CASE WHEN lock.pid = held.session THEN pg_terminate_backend(lock.pid)::int END
        FROM gripfast_grant AS held JOIN pg_locks AS lock ON lock.granted AND {its_lock}
        LEFT JOIN pg_locks AS own ON lock.pid IS NULL AND own.pid IS NULL AND own.locktype = 'transactionid'
            AND own.virtualtransaction = lock.virtualtransaction
        LEFT JOIN pg_prepared_xacts AS prepared ON prepared.transaction::text = own.transactionid::text
        WHERE held.mode = '{mode}' AND held.name = :name AND held.owner = :owner
    """)
    for mode, its_lock in _ITS_LOCK.items()
}
"""A prepared transaction is of no process, and all its locks have one virtual number."""

_HAS_SESSION = Statement("""
    SELECT 1 FROM pg_stat_activity
    WHERE pid = :session::int AND datname = current_database()
        AND :birth::text IN ('', extract(epoch FROM backend_start)::text)
""")


def advisory_key(database: str, name: str) -> int:
    """PostgreSQL keeps databases apart itself."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)


def row_make(name: str) -> list[Query]:
    return [Query(_ROW_MAKE, {"name": name})]


def row_exists(name: str) -> list[Query]:
    return [Query(_ROW_EXISTS, {"name": name})]


def row_try(name: str, ttl_us: int) -> list[Query]:
    return [Query(_BEGIN), Query(_ROW_TRY, {"name": name, "ttl_ms": _milliseconds(ttl_us)})]


def row_wait(name: str, ttl_us: int, wait_us: int) -> list[Query]:
    times = {"ttl_ms": _milliseconds(ttl_us), "wait_ms": _milliseconds(wait_us)}
    return [Query(_BEGIN), Query(_ROW_TIMES, times), Query(_ROW_WAIT, {"name": name})]


def row_free() -> list[Query]:
    """Nothing was written: no commit is needed, and this one works after an error, too."""
    return [Query(_ROW_FREE)]


def advisory_try(key: Value, ttl_us: int) -> list[Query]:
    return [Query(_ADVISORY_TRY, {"key": key, "ttl_ms": _milliseconds(ttl_us)})]


def advisory_wait(key: Value, ttl_us: int, wait_us: int) -> list[Query]:
    times = {"ttl_ms": _milliseconds(ttl_us), "wait_ms": _milliseconds(wait_us)}
    return [Query(_ADVISORY_TIMES, times), Query(_ADVISORY_WAIT, {"key": key}), Query(_ADVISORY_KEEP, {"key": key})]


def advisory_free(key: Value) -> list[Query]:
    return [Query(_ADVISORY_FREE, {"key": key})]


def ping(mode: str, ttl_us: int) -> list[Query]:
    return [Query(_PING[mode], {"ttl_ms": _milliseconds(ttl_us)})]


def grant(mode: str, name: str, owner: str, session: int, mark: Value, ttl_us: int, card: str) -> list[Query]:
    what: dict[str, Value] = {"mode": mode, "name": name, "session": session, "mark": mark}
    return [Query(_GRANT, what | {"owner": owner, "ttl_us": ttl_us, "card": card})]


def grant_within(mode: str, name: str, owner: str, session: int, mark: Value, card: str) -> list[Query]:
    what: dict[str, Value] = {"mode": mode, "name": name, "session": session, "mark": mark}
    return [Query(_GRANT_WITHIN[mode], what | {"owner": owner, "ttl_us": 0, "card": card})]


def seen(mode: str, name: str) -> list[Query]:
    return [Query(_SEEN[mode], {"name": name})]


def seen_page(mode: str, after: str, prefix: str, count: int) -> list[Query]:
    return [_paged(_SEEN_PAGE[mode], _SEEN_LAST_PAGE[mode], after, prefix, count)]


def end_session(session: int, birth: str) -> list[Query]:
    return [Query(_END_SESSION, {"session": session, "birth": birth})]


def end_wait(session: int, birth: str) -> list[Query]:
    return [Query(_END_WAIT, {"session": session, "birth": birth})]


def leave_wait(mode: str, key: Value) -> list[Query]:
    return row_free() if mode == "row" else [Query(_LEAVE_WAIT)]


def end_holder(mode: str, name: str, owner: str) -> list[Query]:
    return [Query(_END_HOLDER[mode], {"name": name, "owner": owner})]


def has_session(session: int, birth: str) -> list[Query]:
    return [Query(_HAS_SESSION, {"session": session, "birth": birth})]


def _milliseconds(microseconds: int) -> str:
    """Never 0, which is no limit; never more than a setting can hold."""
    return str(min(max(1, -(-microseconds // 1000)), 2**31 - 1))


def set_ttl(mode: str, name: str, owner: str, ttl_us: int) -> list[Query]:
    return [Query(_SET_TTL, {"mode": mode, "name": name, "owner": owner, "ttl_us": ttl_us})]
