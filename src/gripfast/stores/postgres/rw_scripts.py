"""Every SQL text for read/write locks in sessions on PostgreSQL. `sql.rw_ports.RWScripts` says what each one answers.

*Advisory.* A reader has the advisory lock shared, a writer has it alone. *Row.* A reader has the row FOR SHARE, a
writer FOR UPDATE. A row that is locked FOR SHARE is given to every other reader that comes, and a writer waits for as
long as there is one. So the turnstile is needed. It is an advisory lock in both modes: of its session if a writer has
it, and only for a moment, of a transaction, if a reader does.

A writer tries the lock first and then the turnstile: one that tries in vain is in nobody's way. Who tries waits for the
turnstile for a millisecond in mode *row*: there is no other way to have the statements behind it left out.
"""

from __future__ import annotations

import hashlib

from gripfast.stores.postgres import scripts
from gripfast.stores.sql.statement import ByMode, Script, takes

_CLOCK, _TTL_MS, _WAIT_MS = scripts._CLOCK, scripts._TTL_MS, scripts._WAIT_MS
_BEGIN = scripts._BEGIN
_PLACES = "name key turn ttl_us"


def key(mode: str, database: str, name: str) -> int:
    """64 bits, and not those that a lock of this name has."""
    return _hash(b"rw", name)


def turnstile(mode: str, database: str, name: str) -> int:
    return _hash(b"rw-turn-" + mode.encode(), name)


def _hash(person: bytes, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, person=person).digest(), signed=True)


make = takes("name")("INSERT INTO gripfast_rw (name) VALUES (:name) ON CONFLICT DO NOTHING")

# -- getting the lock ------------------------------------------------------------------------------------------------

_IDLE_SESSION = f"set_config('idle_session_timeout', {_TTL_MS}, false)"
_IDLE_TRANSACTION = f"set_config('idle_in_transaction_session_timeout', {_TTL_MS}, {{is_local}})"
_IN_TRANSACTION = _IDLE_TRANSACTION.format(is_local="true")
_WAITS = f"set_config('lock_timeout', {_WAIT_MS}, true)"
_HARDLY_WAITS = "set_config('lock_timeout', '1', true)"
_MARK = "SELECT pg_current_xact_id()::text FROM gripfast_rw WHERE name = :name"


def _passed(waits: str) -> tuple[str, ...]:
    """By a reader, in a transaction of its own."""
    return _BEGIN, f"SELECT {waits}", "SELECT pg_advisory_xact_lock_shared(:turn)", "COMMIT"


try_read = ByMode(
    row=takes(_PLACES)(*_passed(_HARDLY_WAITS), _BEGIN, f"SELECT {_IN_TRANSACTION}", f"{_MARK} FOR SHARE NOWAIT"),
    advisory=takes(_PLACES)(f"""
        SELECT CASE WHEN current_setting('idle_session_timeout') IS NULL THEN NULL
                    WHEN pg_try_advisory_xact_lock_shared(:turn) AND pg_try_advisory_lock_shared(:key)
                    THEN ({_IDLE_SESSION} <> '')::int ELSE 0 END
    """),
)
try_write = ByMode(
    row=takes(_PLACES)(
        _BEGIN,
        f"SELECT {_IN_TRANSACTION}, {_HARDLY_WAITS}",
        "SELECT FROM gripfast_rw WHERE name = :name FOR UPDATE NOWAIT",
        "SELECT pg_advisory_xact_lock(:turn)",
        "SELECT pg_advisory_lock(:turn)",
        "SELECT set_config('lock_timeout', '0', true)",
        _MARK,
    ),
    advisory=takes(_PLACES)(f"""
        SELECT CASE WHEN current_setting('idle_session_timeout') IS NULL THEN NULL
                    WHEN NOT pg_try_advisory_lock(:key) THEN 0
                    WHEN pg_try_advisory_lock(:turn) THEN ({_IDLE_SESSION} <> '')::int
                    WHEN pg_advisory_unlock(:key) THEN 0 END
    """),
)

wait_read = ByMode(
    row=takes(f"{_PLACES} wait_us")(
        *_passed(_WAITS),
        _BEGIN,
        f"SELECT {_IN_TRANSACTION}, set_config('statement_timeout', {_WAIT_MS}, true)",
        f"{_MARK} FOR SHARE",
    ),
    advisory=takes(f"{_PLACES} wait_us")(
        f"SELECT {_IDLE_SESSION}, {_WAITS}",
        "SELECT pg_advisory_xact_lock_shared(:turn)",
        "SELECT pg_advisory_xact_lock_shared(:key)",
        "SELECT (pg_advisory_lock_shared(:key)::text = '')::int",
    ),
)
"""Why a lock is taken twice: see `scripts.advisory_wait`."""

_TAKE_TURNSTILE = "SELECT pg_advisory_xact_lock(:turn)", "SELECT pg_advisory_lock(:turn)"
wait_write = ByMode(
    row=takes(f"{_PLACES} wait_us")(
        _BEGIN,
        f"SELECT {_IDLE_TRANSACTION.format(is_local='false')}, {_WAITS}",
        *_TAKE_TURNSTILE,
        "COMMIT",
        _BEGIN,
        f"SELECT set_config('statement_timeout', {_WAIT_MS}, true)",
        f"{_MARK} FOR UPDATE",
    ),
    advisory=takes(f"{_PLACES} wait_us")(
        _BEGIN,
        f"SELECT {_IDLE_SESSION}",
        "COMMIT",
        f"SELECT {_WAITS}",
        *_TAKE_TURNSTILE,
        "SELECT pg_advisory_xact_lock(:key)",
        "SELECT (pg_advisory_lock(:key)::text = '')::int",
    ),
)
"""The time-out of an idle session is committed first: it must hold when the wait was in vain, for who has died
meanwhile would keep the turnstile."""

wait_again = ByMode(row=takes("")("ROLLBACK"), advisory=takes("")())

# -- freeing it ------------------------------------------------------------------------------------------------------

_NOTHING_LEFT = {
    "row": """
        SELECT 1 + length(pg_advisory_unlock_all()::text)
        WHERE set_config('idle_in_transaction_session_timeout', '0', false) <> ''
    """,
    "advisory": """
        SELECT 1 + length(pg_advisory_unlock_all()::text) WHERE set_config('idle_session_timeout', '0', false) <> ''
    """,
}
free = ByMode(row=takes("")("ROLLBACK", _NOTHING_LEFT["row"]), advisory=takes("")(_NOTHING_LEFT["advisory"]))

_UNSEEN = """
    DELETE FROM gripfast_rw_holder WHERE mode = '{mode}' AND name = :name AND owner = :owner
    RETURNING set_config('synchronous_commit', 'off', true)
"""
_UNLOCKED = """
    CASE WHEN :n::bigint > 1 AND pg_advisory_unlock(:key) THEN 1 WHEN pg_advisory_unlock_shared(:key) THEN 1
         WHEN pg_advisory_unlock(:key) THEN 1 ELSE 0 END
"""
"""A downgrade may have been done, or not, though it was not answered yet."""
release = ByMode(
    row=takes("name owner n key")(_UNSEEN.format(mode="row"), "COMMIT", _NOTHING_LEFT["row"]),
    advisory=takes("name owner n key")(
        _UNSEEN.format(mode="advisory"),
        f"""
        SELECT {_UNLOCKED} + length(pg_advisory_unlock_all()::text)
        WHERE set_config('idle_session_timeout', '0', false) <> ''
        """,
    ),
)

# -- who has it ------------------------------------------------------------------------------------------------------

_GRANTED = scripts._GRANT.replace(":mode", "'rw-{mode}'").partition("RETURNING")[0]


def _grant(mode: str) -> Script:
    return takes("name owner n session mark ttl_us holder")(f"""
        WITH stamped AS ({_GRANTED.format(mode=mode)} RETURNING token, since_us), others AS (
            DELETE FROM gripfast_rw_holder
            WHERE :n::bigint > 1 AND mode = '{mode}' AND name = :name AND owner <> :owner
        )
        INSERT INTO gripfast_rw_holder AS h (mode, name, owner, n, token, session, mark, ttl_us, since_us, card)
        SELECT '{mode}', :name, :owner, :n::bigint, token, :session, :mark::text, :ttl_us, since_us, :holder
        FROM stamped
        ON CONFLICT (mode, name, owner) DO UPDATE SET
            token = excluded.token, session = excluded.session, mark = excluded.mark, since_us = excluded.since_us
        RETURNING CASE WHEN set_config('synchronous_commit', 'off', true) <> '' THEN token END
    """)


grant = ByMode(row=_grant("row"), advisory=_grant("advisory"))

set_ttl = takes("mode name owner ttl_us")("""
    UPDATE gripfast_rw_holder SET ttl_us = :ttl_us WHERE mode = :mode AND name = :name AND owner = :owner
""")

# -- from writer to reader -------------------------------------------------------------------------------------------

lower = ByMode(
    row=takes("name key ttl_us")(
        "ROLLBACK",
        _BEGIN,
        f"SELECT {_IN_TRANSACTION}",
        "SELECT 1, pg_current_xact_id()::text FROM gripfast_rw WHERE name = :name FOR SHARE",
    ),
    advisory=takes("name key ttl_us")(
        _BEGIN,
        "SELECT pg_advisory_xact_lock_shared(:key)",
        "SELECT pg_advisory_unlock_all()",
        "SELECT pg_advisory_lock_shared(:key)",
        "COMMIT",
        f"SELECT ({_IDLE_SESSION} <> '')::int, :key::text",
    ),
)
"""A lock of one mode can't be exchanged for the other. Advisory: it is had in both modes for a moment, first by the
transaction, which keeps it while all that the session has is freed, the turnstile included. The waiting form: who only
tries is refused if a writer waits. Row: it is freed, and taken again, behind the turnstile. Readers that have passed
that may come in meanwhile, but no writer."""

note_lowered = takes("mode name owner mark")("""
    UPDATE gripfast_rw_holder SET n = 1, mark = :mark::text WHERE mode = :mode AND name = :name AND owner = :owner
""")
leave_turnstile = ByMode(
    row=takes("turn")("SELECT 1 + length(pg_advisory_unlock_all()::text)"), advisory=takes("turn")("SELECT 1")
)

# -- what others see -------------------------------------------------------------------------------------------------

_IS_HELD = {
    "row": f"({scripts._IS_HELD['row']}) = 1",
    "advisory": f"""EXISTS (SELECT FROM ({scripts._ADVISORY_KEYS}) AS locked (key, pid)
        WHERE key = mark AND pid = session)""",
}


def _shown(mode: str, names: str) -> str:
    return f"""
        SELECT p.name, :limit::bigint, h.owner, h.n, '', h.token, h.ttl_us, h.since_us, h.card
        FROM (SELECT name FROM gripfast_grant WHERE mode = 'rw-{mode}' AND {names}) AS p
        LEFT JOIN (SELECT * FROM gripfast_rw_holder WHERE mode = '{mode}') AS h ON h.name = p.name AND {_IS_HELD[mode]}
        ORDER BY p.name, h.token
    """


_NEXT_NAMES = "name > :after AND name >= :prefix ORDER BY name LIMIT :count::int"
inspect = ByMode(
    {mode: takes("name limit")(_shown(mode, "name = :name").replace("LEFT JOIN", "JOIN")) for mode in _IS_HELD}
)
page = ByMode({mode: takes("after prefix count limit")(_shown(mode, _NEXT_NAMES)) for mode in _IS_HELD})

end_holder = ByMode(
    {
        mode: takes("name owner")(f"""
        SELECT pg_terminate_backend(lock.pid)::int
        FROM gripfast_rw_holder AS held JOIN pg_locks AS lock
        ON lock.granted AND lock.pid = held.session AND {scripts._ITS_LOCK[mode]}
        WHERE held.mode = '{mode}' AND held.name = :name AND held.owner = :owner
    """)
        for mode in _IS_HELD
    }
)

# -- forgetting names that nobody uses any more ----------------------------------------------------------------------

_SWEEPS = {
    "row": scripts.SWEEP_ROWS.replace("gripfast_row", "gripfast_rw").replace("mode = 'row'", "mode = 'rw-row'"),
    "advisory": scripts.SWEEP_ADVISORY.replace("mode = 'advisory'", "mode = 'rw-advisory'"),
}
_DEAD = """, dead AS (
        DELETE FROM gripfast_rw_holder
        WHERE mode = '{mode}' AND name IN (SELECT name FROM due) AND NOT {is_held}
    )
    SELECT count(*) FROM due"""


def _sweep(mode: str) -> Script:
    text, _, _ = _SWEEPS[mode].rpartition("SELECT count(*) FROM due")
    return takes("count idle_us")(text + _DEAD.format(mode=mode, is_held=_IS_HELD[mode]))


sweep = ByMode(row=_sweep("row"), advisory=_sweep("advisory"))
