"""Forgetting names that nobody uses any more: which of them are due, an index tells.

The moment is the statement's: an index can't be searched for a clock that goes on. It is old, if anything, so nothing
is forgotten too early. What was used since comes again when it may be idle; what is held now, after as long. Rows that
somebody has locked are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping

from gripfast.stores.sql.statement import Query, Statement

_MOMENT = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
_LAST_USE = "greatest(token, CASE WHEN owner IS NULL THEN since_us ELSE expires_us END)"

ADVISORY_KEY = "(classid::bigint << 32 | objid::bigint)::text"
ADVISORY_KEYS = f"""
    SELECT {ADVISORY_KEY}, pid FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

_SWEEP = Statement(f"""
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
_SWEEP_SESSIONS: Mapping[str, Statement] = {
    "row": Statement(f"""
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
    """),
    "advisory": Statement(f"""
        WITH due AS MATERIALIZED (
            SELECT name, {_LAST_GRANT} < {_MOMENT} - :idle_us AND mark NOT IN (
                SELECT key FROM ({ADVISORY_KEYS}) AS locked (key, pid)
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
    """),
}


def sweep(count: int, idle_us: int) -> list[Query]:
    return [Query(_SWEEP, {"count": count, "idle_us": idle_us})]


def sweep_sessions(mode: str, count: int, idle_us: int) -> list[Query]:
    return [Query(_SWEEP_SESSIONS[mode], {"count": count, "idle_us": idle_us})]
