"""Every SQL text for permits on MariaDB and MySQL. See `sql.permit_ports.PermitScripts` for what each one answers.

The row of the name is locked first, by an INSERT that changes nothing or by FOR UPDATE: both take the lock that the
writes need, so no two wait for each other. The name and its waiters are read by locking reads.

Renewals do not lock the name. Holders whose time is over are deleted before the others are read: to delete one is to
wait for its renewal, if that is under way, and then to look again. The others are read without locks, so that nobody
who renews has to wait. That is the first such read of the transaction, so it sees what was committed last, also where
the server makes us use REPEATABLE READ.

`@gripfast_now` is one moment for a whole transaction, taken when the name is locked already.
"""

from __future__ import annotations

from gripfast.stores.mysql.scripts import IDLE_SECONDS, _seconds, _session_lasts, takes
from gripfast.stores.sql.statement import Query

_OF_NAME = "kind = :kind AND name = :name"
_OF_OWNER = f"{_OF_NAME} AND owner = :owner"

_START = "START TRANSACTION"
_MAKE = """
    INSERT INTO gripfast_permit (kind, name, token, permits, since_us, checked_us)
    VALUES (:kind, :name, 0, 0, {now}, {now}) ON DUPLICATE KEY UPDATE token = token
"""
_LOCK = f"SELECT 1 FROM gripfast_permit WHERE {_OF_NAME} FOR UPDATE"
_PURGE = (
    "SET @gripfast_now = {now}",
    f"DELETE FROM gripfast_permit_holder WHERE {_OF_NAME} AND expires_us <= @gripfast_now",
)
_NAME = f"SELECT token, permits, since_us, @gripfast_now FROM gripfast_permit WHERE {_OF_NAME}"
_HOLDERS = f"""
    SELECT owner, n, slots, token, expires_us, ttl_us, since_us, card, broken FROM gripfast_permit_holder
    WHERE {_OF_NAME}
"""
# Of a waiter whose session has ended nobody knows whether it will claim: it is passed until it does. Most are dead.
_WAITERS = f"""
    SELECT ticket, owner, n, ttl_us, seen_us, card, '',
        session NOT IN (SELECT id FROM information_schema.processlist)
    FROM gripfast_permit_waiter WHERE {_OF_NAME} ORDER BY ticket
"""
_READ = f"{_NAME} FOR UPDATE", _HOLDERS, f"{_WAITERS} FOR UPDATE"
_begin = takes("kind name")(_START, _LOCK, *_PURGE, *_READ)
# MySQL has no time-out for one statement that locks: there the client gives it up.
_WAITING = "/*M!100101 SET STATEMENT max_statement_time = :wait_us * 1e-6 FOR */"
_begin_waiting = takes("kind name wait_us")(_START, _WAITING + _LOCK, *_PURGE, *_READ)
_begin_new = takes("kind name")(_START, _MAKE, *_PURGE, *_READ)
look = takes("kind name")("SET @gripfast_now = {now}", _NAME, _HOLDERS, _WAITERS)

write_name = takes("kind name token permits since_us")(f"""
    UPDATE gripfast_permit SET token = :token, permits = :permits, since_us = :since_us WHERE {_OF_NAME}
""")
# Assignments are made from left to right: `expires_us` sees the old token.
write_holder = takes("kind name owner n slots token expires_us ttl_us since_us holder")("""
    INSERT INTO gripfast_permit_holder (kind, name, owner, n, slots, token, expires_us, ttl_us, since_us, card)
    VALUES (:kind, :name, :owner, :n, :slots, :token, :expires_us, :ttl_us, :since_us, :holder)
    ON DUPLICATE KEY UPDATE
        expires_us = IF(token = :token, GREATEST(expires_us, :expires_us), :expires_us),
        n = :n, slots = :slots, token = :token, ttl_us = :ttl_us, since_us = :since_us, card = :holder, broken = NULL
""")
delete_holder = takes("kind name owner")(f"DELETE FROM gripfast_permit_holder WHERE {_OF_OWNER}")
break_holder = takes("kind name owner note")(
    f"UPDATE gripfast_permit_holder SET n = 0, slots = '', broken = :note WHERE {_OF_OWNER}"
)
# It is notified by nobody, so the channel is not kept, and its session is the one that claims.
write_waiter = takes("kind name owner ticket n ttl_us seen_us holder channel session")("""
    INSERT INTO gripfast_permit_waiter (kind, name, owner, ticket, n, ttl_us, seen_us, card, session)
    VALUES (:kind, :name, :owner, :ticket, :n, :ttl_us, :seen_us, :holder, connection_id())
    ON DUPLICATE KEY UPDATE ttl_us = :ttl_us, seen_us = :seen_us, session = connection_id()
""")
delete_waiter = takes("kind name owner")(f"DELETE FROM gripfast_permit_waiter WHERE {_OF_OWNER}")
notify = takes("channel owner")()
"""The server notifies nobody."""
_commit, _rollback = takes("")("COMMIT"), takes("")("ROLLBACK")

_RENEW = f"""
    UPDATE gripfast_permit_holder
    SET expires_us = IF(:shortens, {{now}} + :ttl_us, GREATEST(expires_us, {{now}} + :ttl_us)), ttl_us = :ttl_us
    WHERE {_OF_NAME} AND owner = @gripfast_unlocked AND broken IS NULL AND expires_us > {{now}}
"""
_IS_RENEWED = f"""
    SELECT 1 FROM gripfast_permit_holder
    WHERE {_OF_NAME} AND owner = @gripfast_unlocked AND broken IS NULL AND expires_us > {{now}}
"""
_FIND_UNLOCKED = f"""
    SET @gripfast_unlocked = (
        SELECT owner FROM gripfast_permit_holder
        WHERE {_OF_OWNER} FOR UPDATE /*!80001 SKIP LOCKED */ /*M!100600 SKIP LOCKED */
    )
"""
renew = takes("kind name owner ttl_us shortens")(_FIND_UNLOCKED, _RENEW, _IS_RENEWED)
renew_waiting = takes("kind name owner ttl_us shortens wait_us")(
    "SET @gripfast_unlocked = :owner", _WAITING + _RENEW, _IS_RENEWED
)
why = takes("kind name owner")(f"""
    SELECT IF(broken IS NOT NULL, 'broken', IF(expires_us > {{now}}, 'held', 'expired')), broken
    FROM gripfast_permit_holder WHERE {_OF_OWNER}
""")

_SHOWN = """
    SELECT p.name, p.permits, h.owner, h.n, h.slots, h.token, h.expires_us - {now}, h.since_us, h.card
    FROM {names} AS p {join} gripfast_permit_holder AS h
    ON h.kind = :kind AND h.name = p.name AND h.broken IS NULL AND h.expires_us > {now}
    {which} ORDER BY p.name, h.token
"""
_NAMES = """(
    SELECT name, permits FROM gripfast_permit WHERE kind = :kind AND name > :after AND name >= :prefix
    ORDER BY name LIMIT :count
)"""


def _shown(names: str, join: str, which: str) -> str:
    return _SHOWN.replace("{names}", names).replace("{join}", join).replace("{which}", which)


inspect = takes("kind name")(_shown("gripfast_permit", "JOIN", "WHERE p.kind = :kind AND p.name = :name"))
page = takes("kind after prefix count")(_shown(_NAMES, "LEFT JOIN", ""))

_begin_sweep = takes("count memory_us")(
    _START,
    """
    SELECT kind, name, token, since_us, EXISTS (
        SELECT 1 FROM gripfast_permit_holder AS h WHERE h.kind = p.kind AND h.name = p.name AND h.expires_us > {now}
    ), {now}
    FROM gripfast_permit AS p WHERE checked_us < {now} - :memory_us ORDER BY checked_us LIMIT :count
    FOR UPDATE /*!80001 SKIP LOCKED */ /*M!100600 SKIP LOCKED */
    """,
)
forget = takes("kind name")(
    *(f"DELETE FROM gripfast_permit{which} WHERE {_OF_NAME}" for which in ("_holder", "_waiter", ""))
)
write_checked = takes("kind name checked_us")(f"UPDATE gripfast_permit SET checked_us = :checked_us WHERE {_OF_NAME}")


# A client that stops in the middle of a transaction must not keep the name locked.


def _lasts(seconds: int) -> Query:
    return Query(_session_lasts, {"seconds": seconds})


def begin(kind: str, name: str, idle_us: int) -> list[Query]:
    return [_lasts(_seconds(idle_us)), *_begin(kind, name)]


def begin_waiting(kind: str, name: str, idle_us: int, wait_us: int) -> list[Query]:
    return [_lasts(_seconds(idle_us)), *_begin_waiting(kind, name, wait_us)]


def begin_new(kind: str, name: str, idle_us: int) -> list[Query]:
    return [_lasts(_seconds(idle_us)), *_begin_new(kind, name)]


def begin_sweep(count: int, memory_us: int, idle_us: int) -> list[Query]:
    return [_lasts(_seconds(idle_us)), *_begin_sweep(count, memory_us)]


def commit() -> list[Query]:
    return [*_commit(), _lasts(IDLE_SECONDS)]


def rollback() -> list[Query]:
    return [*_rollback(), _lasts(IDLE_SECONDS)]
