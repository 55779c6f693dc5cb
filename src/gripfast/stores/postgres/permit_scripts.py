"""Every SQL text for permits on PostgreSQL. See `sql.permit_ports.PermitScripts` for what each one answers.

The row of the name is locked by a statement of its own, and what is read is read by later ones: a statement sees what
was committed before it began, so one that waits for the lock and then counts would count what was there before it
waited. READ COMMITTED is requested by BEGIN: under a stricter level, all statements would see the same old state.

Renewals do not lock the name. Holders whose time is over are deleted before the others are read: to delete one is to
wait for its renewal, if that is under way, and then to look again.
"""

from __future__ import annotations

from gripfast.stores.postgres.scripts import _CLOCK, _WAIT_AT_MOST
from gripfast.stores.sql.statement import takes

_OF_NAME = "kind = :kind AND name = :name"
_OF_OWNER = f"{_OF_NAME} AND owner = :owner"

# A client that stops in the middle of a transaction must not keep the name locked.
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    """SELECT set_config('idle_in_transaction_session_timeout',
        least(greatest((:idle_us::bigint + 999) / 1000, 1), 2147483647)::text, true)""",
)
_MAKE = f"""
    INSERT INTO gripfast_permit (kind, name, token, permits, since_us) VALUES (:kind, :name, 0, 0, {_CLOCK})
    ON CONFLICT DO NOTHING
"""
_LOCK = f"SELECT FROM gripfast_permit WHERE {_OF_NAME} FOR UPDATE"
_PURGE = f"""
    WITH moment AS MATERIALIZED (SELECT {_CLOCK} AS now_us), gone AS (
        DELETE FROM gripfast_permit_holder USING moment WHERE {_OF_NAME} AND expires_us <= now_us
    )
    SELECT token, permits, since_us, now_us FROM gripfast_permit, moment WHERE {_OF_NAME}
"""
_HOLDERS = f"""
    SELECT owner, n, slots, token, expires_us, ttl_us, since_us, card, broken FROM gripfast_permit_holder
    WHERE {_OF_NAME}
"""
# A waiter whose session has ended is most likely dead: it is passed until it claims. Before it listens, its session is
# the one that it has claimed in. Earlier versions wrote 0 there.
_WAITERS = f"""
    SELECT ticket, owner, n, ttl_us, seen_us, card, channel,
        (session <> 0 AND session NOT IN (SELECT pid FROM pg_stat_activity))::int
    FROM gripfast_permit_waiter WHERE {_OF_NAME} ORDER BY ticket
"""
begin = takes("kind name idle_us")(*_BEGIN, _LOCK, _PURGE, _HOLDERS, _WAITERS)
begin_waiting = takes("kind name idle_us wait_us")(*_BEGIN, _WAIT_AT_MOST, _LOCK, _PURGE, _HOLDERS, _WAITERS)
begin_new = takes("kind name idle_us")(*_BEGIN, _MAKE, _LOCK, _PURGE, _HOLDERS, _WAITERS)
look = takes("kind name")(
    f"SELECT token, permits, since_us, {_CLOCK} FROM gripfast_permit WHERE {_OF_NAME}", _HOLDERS, _WAITERS
)

write_name = takes("kind name token permits since_us")(f"""
    UPDATE gripfast_permit SET token = :token, permits = :permits, since_us = :since_us WHERE {_OF_NAME}
""")
write_holder = takes("kind name owner n slots token expires_us ttl_us since_us holder")("""
    INSERT INTO gripfast_permit_holder AS h
        (kind, name, owner, n, slots, token, expires_us, ttl_us, since_us, card)
    VALUES (:kind, :name, :owner, :n, :slots, :token, :expires_us, :ttl_us, :since_us, :holder)
    ON CONFLICT (kind, name, owner) DO UPDATE SET
        n = excluded.n, slots = excluded.slots, token = excluded.token, ttl_us = excluded.ttl_us,
        expires_us = CASE WHEN h.token = excluded.token THEN greatest(h.expires_us, excluded.expires_us)
                          ELSE excluded.expires_us END,
        since_us = excluded.since_us, card = excluded.card, broken = NULL
""")
delete_holder = takes("kind name owner")(f"DELETE FROM gripfast_permit_holder WHERE {_OF_OWNER}")
break_holder = takes("kind name owner note")(f"""
    UPDATE gripfast_permit_holder SET n = 0, slots = '', broken = :note WHERE {_OF_OWNER}
""")
write_waiter = takes("kind name owner ticket n ttl_us seen_us holder channel session")("""
    INSERT INTO gripfast_permit_waiter (kind, name, owner, ticket, n, ttl_us, seen_us, card, channel, session)
    VALUES (:kind, :name, :owner, :ticket, :n, :ttl_us, :seen_us, :holder, :channel,
        CASE WHEN :channel = '' THEN pg_backend_pid() ELSE :session END)
    ON CONFLICT (kind, name, owner) DO UPDATE SET
        ttl_us = excluded.ttl_us, seen_us = excluded.seen_us, channel = excluded.channel, session = excluded.session
""")
delete_waiter = takes("kind name owner")(f"DELETE FROM gripfast_permit_waiter WHERE {_OF_OWNER}")
notify = takes("channel owner")("SELECT pg_notify(:channel, :owner)")
commit = takes("")("COMMIT")
rollback = takes("")("ROLLBACK")

_RENEW = f"""
    UPDATE gripfast_permit_holder SET
        ttl_us = :ttl_us::bigint,
        expires_us = CASE WHEN :shortens::boolean THEN {_CLOCK} + :ttl_us
                          ELSE greatest(expires_us, {_CLOCK} + :ttl_us) END
    WHERE {_OF_OWNER} AND broken IS NULL AND expires_us > {_CLOCK}
"""
_UNLOCKED = f"SELECT 1 FROM gripfast_permit_holder WHERE {_OF_OWNER} FOR NO KEY UPDATE SKIP LOCKED"
renew = takes("kind name owner ttl_us shortens")(f"{_RENEW} AND 1 = ({_UNLOCKED})")
renew_waiting = takes("kind name owner ttl_us shortens wait_us")(_WAIT_AT_MOST, _RENEW)
why = takes("kind name owner")(f"""
    SELECT CASE WHEN broken IS NOT NULL THEN 'broken' WHEN expires_us > {_CLOCK} THEN 'held' ELSE 'expired' END, broken
    FROM gripfast_permit_holder WHERE {_OF_OWNER}
""")

_SHOWN = f"""
    SELECT p.name, p.permits, h.owner, h.n, h.slots, h.token, h.expires_us - {_CLOCK}, h.since_us, h.card
    FROM {{names}} AS p {{join}} gripfast_permit_holder AS h
    ON h.kind = :kind AND h.name = p.name AND h.broken IS NULL AND h.expires_us > {_CLOCK}
    {{which}} ORDER BY p.name, h.token
"""
inspect = takes("kind name")(
    _SHOWN.format(names="gripfast_permit", join="JOIN", which="WHERE p.kind = :kind AND p.name = :name")
)
_NAMES = """(
    SELECT name, permits FROM gripfast_permit WHERE kind = :kind AND name > :after AND name >= :prefix
    ORDER BY name LIMIT :count::int
)"""
page = takes("kind after prefix count")(_SHOWN.format(names=_NAMES, join="LEFT JOIN", which=""))

_DUE = f"""
    SELECT kind, name, token, since_us, EXISTS (
        SELECT FROM gripfast_permit_holder AS h WHERE h.kind = p.kind AND h.name = p.name AND h.expires_us > {_CLOCK}
    )::int, {_CLOCK}
    FROM gripfast_permit AS p WHERE checked_us < {_CLOCK} - :memory_us::bigint
    ORDER BY checked_us LIMIT :count::int FOR UPDATE OF p SKIP LOCKED
"""
begin_sweep = takes("count memory_us idle_us")(*_BEGIN, _DUE)
forget = takes("kind name")(
    *(f"DELETE FROM gripfast_permit{which} WHERE {_OF_NAME}" for which in ("_holder", "_waiter", ""))
)
write_checked = takes("kind name checked_us")(f"UPDATE gripfast_permit SET checked_us = :checked_us WHERE {_OF_NAME}")
