"""Every SQL text for read/write locks in sessions on MariaDB and MySQL, in mode *row* alone: a user-level lock can't be
shared. `sql.rw_ports.RWScripts` says what each one answers.

A reader has the row by LOCK IN SHARE MODE, a writer FOR UPDATE. InnoDB keeps later readers behind a writer that waits,
but a writer whose wait is over and begins anew would be behind them. So there is a turnstile, a user-level lock. A
reader has it only until it has the row. A writer tries the row first and then the turnstile: one that tries in vain is
in nobody's way.

`@gripfast_turn` is 1 if the session has the turnstile. Without it no row is looked for, so that none is locked.
"""

from __future__ import annotations

import hashlib

from gripfast.stores.mysql import scripts
from gripfast.stores.mysql.scripts import _begin, _lasts, _seconds, _session_waits, takes
from gripfast.stores.sql.statement import Query, Script, Value


def key(mode: str, database: str, name: str) -> str:
    """The lock is a row."""
    return ""


def turnstile(mode: str, database: str, name: str) -> str:
    """See `scripts.advisory_key`."""
    text = f"{database}\0{name}".encode()
    return "gripfast-turn:" + hashlib.blake2b(text, digest_size=20).hexdigest()


make = takes("name")(scripts.ROW_MAKE.replace("gripfast_row", "gripfast_rw"))

# -- getting the lock ------------------------------------------------------------------------------------------------

# A sign for those who look, as in `scripts`; here of one session, since many may have the lock. '' is a busy answer.
_SIGN = "CONCAT('gripfast-rw:', SHA1(CONCAT(DATABASE(), '/', HEX(name), '/', CONNECTION_ID())))"
_SIGNED = f"IF(IS_USED_LOCK({_SIGN}) <=> CONNECTION_ID() OR GET_LOCK({_SIGN}, 0), {_SIGN}, '')"
_MINE = "IS_USED_LOCK(:turn) <=> CONNECTION_ID()"
_FROM = "FROM gripfast_rw WHERE name = :name"
_BEHIND = "FROM gripfast_rw WHERE name = IF(@gripfast_turn, :name, NULL)"
_TAKE_TURNSTILE = f"SELECT IF({_MINE}, 1, GET_LOCK(:turn, :wait_seconds) <=> 1) INTO @gripfast_turn"
_SHARED = "LOCK IN SHARE MODE"
_NOWAIT = "/*!80001 FOR SHARE NOWAIT */ /*M! LOCK IN SHARE MODE NOWAIT */"

_try_read = takes("name turn")(f"SELECT IF(IS_FREE_LOCK(:turn), {_SIGNED}, '') {_FROM} {_NOWAIT}")
_try_write = takes("name turn")(f"SELECT IF(GET_LOCK(:turn, 0) <=> 1, {_SIGNED}, '') {_FROM} FOR UPDATE NOWAIT")
_wait_read = takes("name turn wait_seconds")(
    _TAKE_TURNSTILE, f"SELECT IF(RELEASE_LOCK(:turn) IS NULL, '', {_SIGNED}) {_BEHIND} {_SHARED}"
)
_wait_write = takes("name turn wait_seconds")(_TAKE_TURNSTILE, f"SELECT {_SIGNED} {_BEHIND} FOR UPDATE")


def try_read(mode: str, name: str, key: Value, turn: Value, ttl_us: int) -> list[Query]:
    return [_begin, _lasts(ttl_us), *_try_read(name, turn)]


def try_write(mode: str, name: str, key: Value, turn: Value, ttl_us: int) -> list[Query]:
    return [_begin, _lasts(ttl_us), *_try_write(name, turn)]


def wait_read(mode: str, name: str, key: Value, turn: Value, ttl_us: int, wait_us: int) -> list[Query]:
    return [_begin, _lasts(ttl_us), _waits(wait_us), *_wait_read(name, turn, _seconds(wait_us))]


def wait_write(mode: str, name: str, key: Value, turn: Value, ttl_us: int, wait_us: int) -> list[Query]:
    return [_begin, _lasts(ttl_us), _waits(wait_us), *_wait_write(name, turn, _seconds(wait_us))]


def _waits(wait_us: int) -> Query:
    return Query(_session_waits, {"seconds": _seconds(wait_us)})


_rollback = takes("")("ROLLBACK")


def wait_again(mode: str) -> list[Query]:
    return _rollback()


# -- freeing it ------------------------------------------------------------------------------------------------------

_NO_SIGNS = scripts._ROW_FREE[0]
_free = takes("")(_NO_SIGNS, "ROLLBACK", "SELECT 1")
_OF_OWNER = "mode = 'row' AND name = :name AND owner = :owner"
_release = takes("name owner")(f"DELETE FROM gripfast_rw_holder WHERE {_OF_OWNER}", _NO_SIGNS, "COMMIT", "SELECT 1")


def free(mode: str) -> list[Query]:
    return _free()


def release(mode: str, name: str, owner: str, n: int, key: Value) -> list[Query]:
    return _release(name, owner)


# -- who has it ------------------------------------------------------------------------------------------------------

_grant = takes("name owner n session mark ttl_us holder")(
    scripts._GRANT.replace(":mode", "'rw-row'"),
    "DELETE FROM gripfast_rw_holder WHERE :n > 1 AND mode = 'row' AND name = :name AND owner <> :owner",
    """
    INSERT INTO gripfast_rw_holder (mode, name, owner, n, token, session, mark, ttl_us, since_us, card)
    VALUES ('row', :name, :owner, :n, LAST_INSERT_ID(), :session, :mark, :ttl_us, {now}, :holder)
    ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(), session = :session, mark = :mark, since_us = {now}
    """,
    "SELECT LAST_INSERT_ID()",
)
_set_ttl = takes("name owner ttl_us")(f"UPDATE gripfast_rw_holder SET ttl_us = :ttl_us WHERE {_OF_OWNER}")


def grant(mode: str, name: str, owner: str, n: int, session: int, mark: Value, ttl_us: int, holder: str) -> list[Query]:
    return _grant(name, owner, n, session, mark, ttl_us, holder)


def set_ttl(mode: str, name: str, owner: str, ttl_us: int) -> list[Query]:
    return _set_ttl(name, owner, ttl_us)


# -- from writer to reader -------------------------------------------------------------------------------------------

# As on PostgreSQL in this mode: the row is freed, and taken again, behind the turnstile.
_lower = takes("name")(f"SELECT 1, {_SIGNED} {_FROM} {_SHARED}")
_note_lowered = takes("name owner")(f"UPDATE gripfast_rw_holder SET n = 1 WHERE {_OF_OWNER}")
_leave_turnstile = takes("turn")("SELECT RELEASE_LOCK(:turn) IS NULL OR 1")


def lower(mode: str, name: str, key: Value, ttl_us: int) -> list[Query]:
    return [*_rollback(), _begin, _lasts(ttl_us), *_lower(name)]


def note_lowered(mode: str, name: str, owner: str, mark: Value) -> list[Query]:
    return _note_lowered(name, owner)


def leave_turnstile(mode: str, turn: Value) -> list[Query]:
    return _leave_turnstile(turn)


# -- what others see -------------------------------------------------------------------------------------------------

_IS_HELD = "IS_USED_LOCK(h.mark) <=> h.session"


def _shown(names: str) -> str:
    return f"""
        SELECT p.name, :limit, h.owner, h.n, '', h.token, h.ttl_us, h.since_us, h.card
        FROM (SELECT name FROM gripfast_grant WHERE mode = 'rw-row' AND {names}) AS p
        LEFT JOIN gripfast_rw_holder AS h ON h.mode = 'row' AND h.name = p.name AND {_IS_HELD}
        ORDER BY p.name, h.token
    """


_inspect = takes("name limit")(_shown("name = :name").replace("LEFT JOIN", "JOIN"))
_page = takes("after prefix count limit")(_shown("name > :after AND name >= :prefix ORDER BY name LIMIT :count"))


def inspect(mode: str, name: str, limit: int) -> list[Query]:
    return _inspect(name, limit)


def page(mode: str, after: str, prefix: str, count: int, limit: int) -> list[Query]:
    return _page(after, prefix, count, limit)


_end_holder = takes("name owner")(f"""
    SELECT COALESCE(MAX(IF({_IS_HELD}, CONCAT('KILL CONNECTION ', h.session), NULL)), 'DO 0') INTO @gripfast_end
    FROM gripfast_rw_holder AS h WHERE h.mode = 'row' AND h.name = :name AND h.owner = :owner; {scripts._END}
""")


def end_holder(mode: str, name: str, owner: str) -> list[Query]:
    return _end_holder(name, owner)


# -- forgetting names that nobody uses any more ----------------------------------------------------------------------


def _of_rw(text: str) -> str:
    """From the text for locks. Holders take the place of the signs that locks in transactions have."""
    of_holder = "gripfast_rw_holder.mode = 'row' AND gripfast_rw_holder.name = idle.name"
    text = text.replace("gripfast_within.name = idle.name", of_holder).replace("gripfast_within", "gripfast_rw_holder")
    return text.replace("gripfast_row", "gripfast_rw")


_DEAD = f"""
    DELETE h FROM {scripts._DUE_SESSIONS} STRAIGHT_JOIN gripfast_rw_holder AS h FORCE INDEX (PRIMARY)
    ON h.mode = 'row' AND h.name = due.name WHERE NOT ({_IS_HELD})
""".replace(":mode", "'rw-row'")
_sweep: Script = scripts._sweep_sessions("rw-row", _of_rw(scripts._SWEEP_ROWS), _of_rw(scripts._IS_IDLE_ROW))
_dead = takes("count idle_us")(_DEAD)


def sweep(mode: str, count: int, idle_us: int) -> list[Query]:
    return [*_dead(count, idle_us), *_sweep(count, idle_us)]
