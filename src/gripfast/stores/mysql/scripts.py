"""Every SQL text for MariaDB and MySQL: nothing here is known to one of them alone.

Names, owners, cards and keys are VARBINARY: the collations of the server would merge `Job` with `job`, and even those
that compare byte by byte ignore spaces at the end.

The time of a decision is when its statement began, UTC_TIMESTAMP(6). It is one moment for all columns, where SYSDATE(6)
would be another one at each place it is written, and a different one on replicas that repeat statements. A statement
that had to wait for the row decides by a time that is a little old, which errs to the safe side: it sees a lease run
out later than others do, it grants one that ends earlier (yet not before the client believes, which counts from the
sending), and the token grows all the same. The SELECT behind it begins after that wait, so the answer is not old.

What a statement did is never taken from the count of changed rows alone: the count means changed or found depending on
how the connection was opened. Where a statement has to hand on what it found, LAST_INSERT_ID(number) keeps that for the
session, however many others write the row in between; it is also told with the end of the statement, as a row.
"""

from __future__ import annotations

import hashlib
import uuid

from gripfast.stores.mysql import holders
from gripfast.stores.mysql.texts import Values
from gripfast.stores.mysql.texts import statement as _statement
from gripfast.stores.mysql.texts import stretch_of as _stretch_of
from gripfast.stores.sql.statement import Query, Statement, Value

IDLE_SECONDS = 28_800
"""How long the server keeps a session that holds nothing and says nothing."""

_WAIT_MOST = 31_536_000
"""More seconds than this some time-outs do not take."""

_BIRTH = "gripfast-session:"
"""What the names of the user-level locks begin with that tell our sessions apart."""

# Locks in sessions end with the server, and a token that it forgot is followed by a larger one, from the clock: where
# the engine has tables that do not wait for the disk, gripfast_grant is one.
SCHEMA: tuple[Statement, ...] = (
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_lock (
    name            VARBINARY(1024) NOT NULL PRIMARY KEY,
    token           BIGINT NOT NULL,            -- of the last grant
    owner           VARBINARY(255) NULL,        -- NULL is free
    expires_us      BIGINT NOT NULL,            -- microseconds since 1970 by this server's clock, like all times here
    ttl_us          BIGINT NOT NULL,
    since_us        BIGINT NOT NULL,            -- held, or free, since then
    card            MEDIUMBLOB NOT NULL,        -- who the owner is, for people
    broken          VARBINARY(255) NULL,        -- the owner that was last forced out
    waited_until_us BIGINT NOT NULL,            -- somebody waits for it until then
    checked_us      BIGINT NOT NULL,            -- made then, or looked at whether it is still used
    KEY gripfast_lock_checked (checked_us)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_row (
    name            VARBINARY(1024) NOT NULL PRIMARY KEY  -- mode=row locks these rows
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_grant (
    mode            VARBINARY(16) NOT NULL,     -- row or advisory
    name            VARBINARY(1024) NOT NULL,
    token           BIGINT NOT NULL,            -- of the last grant
    owner           VARBINARY(255) NOT NULL,
    session         BIGINT UNSIGNED NOT NULL,   -- the connection id of the owner's session
    mark            VARBINARY(64) NOT NULL,     -- a user-level lock that the session has while it holds this one
    ttl_us          BIGINT NOT NULL,
    since_us        BIGINT NOT NULL,
    card            MEDIUMBLOB NOT NULL,
    checked_us      BIGINT NOT NULL DEFAULT 0,  -- looked at whether it is still used
    PRIMARY KEY (mode, name),
    KEY gripfast_grant_checked (mode, checked_us)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC /*M! ENGINE=Aria TRANSACTIONAL=0 */"""),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_within (
    name            VARBINARY(1024) NOT NULL PRIMARY KEY,  -- locked by a caller's transaction that has the lock
    token           BIGINT NOT NULL             -- of the grant that its transaction must see
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""),
)


class Setting(Statement):
    """Holds until the session is told otherwise: not sent again with the same values."""


# -- how a session begins ----------------------------------------------------------------------------------------

_settings = """
    SET NAMES utf8mb4;
    SET SESSION
        autocommit = 1, completion_type = 0, time_zone = '+00:00', sql_safe_updates = 0, sql_select_limit = DEFAULT,
        sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', wait_timeout = :idle {more};
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
    SHOW GLOBAL VARIABLES WHERE Variable_name IN
        ('log_bin', 'binlog_format', 'wsrep_on', 'wsrep_provider', 'group_replication_single_primary_mode');
    SET @gripfast_birth = :birth;
    SELECT CONNECTION_ID(), IF(:birth <> x'' AND GET_LOCK(:birth, 0), :birth,
        (SELECT host FROM information_schema.processlist WHERE id = CONNECTION_ID()))
"""
_settings_shared = _statement(
    _settings.replace(
        "{more}",
        """, innodb_lock_wait_timeout = :seconds_up, lock_wait_timeout = :seconds_up
        /*M!100101 , max_statement_time = :seconds */ /*!80000 , max_execution_time = :milliseconds */""",
    )
)
_settings_own = _statement(
    _settings.replace(
        "{more}",
        """/*M!100301 , max_statement_time = 0, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0,
        idle_write_transaction_timeout = 0 */ /*!80000 , max_execution_time = 0 */""",
    )
)
_repeatable_read = _statement("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def new_birth() -> str:
    return _BIRTH + uuid.uuid4().hex


def settings(timeout: float, is_shared: bool, birth: str) -> list[Query]:
    """Makes a session ours, whatever the server's defaults are. The last but two tells what the server is (name,
    value), the last one the session's number and its birth.

    A birth is a user-level lock that no other session ever takes; the numbers of sessions start at 1 again when the
    server does. Where user-level locks are forbidden (some clusters) it is the address that the session comes from,
    which is the same for all who come by a unix socket: then `birth` is empty here.

    The time-outs for statements have other names in MariaDB and MySQL: each executes the comment meant for it.
    """
    if not is_shared:
        return [Query(_settings_own, {"idle": IDLE_SECONDS, "birth": birth})]
    values: Values = {
        "idle": IDLE_SECONDS,
        "birth": birth,
        "seconds_up": _seconds(int(timeout * 1_000_000)),
        "seconds": round(max(timeout, 0.001), 6),
        "milliseconds": max(1, int(timeout * 1000)),
    }
    return [Query(_settings_shared, values)]


def settings_for_statement_log() -> list[Query]:
    """A server that replicates by statements refuses writes under READ COMMITTED."""
    return [Query(_repeatable_read)]


# -- leases ------------------------------------------------------------------------------------------------------

_HELD = "IF(expires_us > {now}, owner, NULL), token, expires_us - {now}, ttl_us, since_us, card"

# Assignments are made from left to right, and each sees what those before it have set: `token` and `since_us` still see
# the old owner and the old end, `owner` sees the old end, and those behind it see whether this owner has it now. A free
# row has ended at 0, so GREATEST keeps the end of a lease only if it was this owner's. If nothing changes, nothing is
# written: asking for a lock that is taken costs no commit.
_NEW_ROW = ":name, {now}, :owner, {now} + :ttl_us, :ttl_us, {now}, :card, NULL, 0, {now}"
_CLAIM = """
    INSERT INTO gripfast_lock
        (name, token, owner, expires_us, ttl_us, since_us, card, broken, waited_until_us, checked_us)
    {row}
    ON DUPLICATE KEY UPDATE
        token = IF(owner IS NULL OR owner <> :owner AND expires_us <= {now}, GREATEST(token + 1, {now}), token),
        since_us = IF(owner IS NULL OR owner <> :owner AND expires_us <= {now}, {now}, since_us),
        owner = IF(owner IS NULL OR expires_us <= {now}, :owner, owner),
        expires_us = IF(owner = :owner, GREATEST(expires_us, {now} + :ttl_us), expires_us),
        ttl_us = IF(owner = :owner, :ttl_us, ttl_us),
        card = IF(owner = :owner, :card, card),
        broken = IF(owner = :owner, NULLIF(broken, owner), broken)
"""
_claim = _statement(_CLAIM.replace("{row}", f"VALUES ({_NEW_ROW})"))
# That locks the row even if it changes nothing, and those who ask again and again would be in the way of the holder. So
# they look first, which locks nothing (but on a server that logs statements, for a moment). That costs a tenth more, so
# who has no reason to expect a holder does not.
_ANOTHERS = "SELECT 1 FROM gripfast_lock WHERE name = :name AND owner <> :owner AND expires_us > {now}"
_claim_taken = _statement(_CLAIM.replace("{row}", f"SELECT {_NEW_ROW} FROM DUAL WHERE NOT EXISTS ({_ANOTHERS})"))
_held = _statement(f"SELECT {_HELD} FROM gripfast_lock WHERE name = :name")

_register = _statement("""
    UPDATE gripfast_lock SET waited_until_us = GREATEST(waited_until_us, {now} + :window_us) WHERE name = :name
""")

# One row that somebody has locked for long must not hold up the others of a batch. So its name is handed on only if the
# row is not locked; who locks it in the moment between the two statements is waited for. MariaDB knows the words from
# 10.6 on, and waits before.
_IF_UNLOCKED = "FOR UPDATE /*!80001 SKIP LOCKED */ /*M!100600 SKIP LOCKED */"
_find_unlocked = _statement(f"""
    SET @gripfast_unlocked = (SELECT name FROM gripfast_lock WHERE name = :name AND owner = :owner {_IF_UNLOCKED})
""")

_renew = _statement("""
    UPDATE gripfast_lock
    SET expires_us = IF(:shortens, {now} + :ttl_us, GREATEST(expires_us, {now} + :ttl_us)), ttl_us = :ttl_us
    WHERE name = @gripfast_unlocked AND owner = :owner AND expires_us > {now}
""")
_is_renewed = _statement("""
    SELECT 1 FROM gripfast_lock WHERE name = @gripfast_unlocked AND owner = :owner AND expires_us > {now}
""")
# MySQL has no time-out for one statement that writes: there the client gives it up.
_WAITING = "/*M!100101 SET STATEMENT max_statement_time = :wait_seconds FOR */"
_name_it = _statement("SET @gripfast_unlocked = :name")
_renew_waiting = Statement(f"{_WAITING} {_renew.sql}")

_why = _statement("""
    SELECT IF(owner <=> :owner AND expires_us > {now}, 'held',
        IF(broken <=> :owner, 'broken', IF(owner <> :owner, 'taken', 'expired')))
    FROM gripfast_lock WHERE name = :name
""")

# 2 for held, 1 for waited for. `expires_us` is set before `owner`: it is the last to see the old end.
_FREED = """
    expires_us = 0 * LAST_INSERT_ID(2 * (expires_us > {now}) + (waited_until_us > {now})),
    since_us = {now}, owner = NULL
"""
_release = _statement(f"UPDATE gripfast_lock SET {_FREED} WHERE name = :name AND owner = :owner")
_release_waiting = Statement(f"{_WAITING} {_release.sql}")
_abandon = _statement(f"UPDATE gripfast_lock SET {_FREED} WHERE name = @gripfast_unlocked AND owner = :owner")
_is_owner = _statement("SELECT 1 FROM gripfast_lock WHERE name = :name AND owner = :owner")
_force_release = _statement(f"""
    UPDATE gripfast_lock SET broken = IF(expires_us > {{now}}, owner, broken), {_FREED}
    WHERE name = :name AND owner IS NOT NULL
""")
_how_freed = _statement("SELECT LAST_INSERT_ID() DIV 2, LAST_INSERT_ID() MOD 2 FROM DUAL WHERE ROW_COUNT() > 0")

_look = _statement(
    f"SELECT {_HELD} FROM gripfast_lock WHERE name = :name AND owner IS NOT NULL AND expires_us > {{now}}"
)

_page = _statement(f"""
    SELECT name, {_HELD} FROM gripfast_lock
    WHERE name > :after AND name >= :prefix AND (:prefix_end IS NULL OR name < :prefix_end) ORDER BY name LIMIT :count
""")

# Found by the index, and passed over if somebody has the row locked. LIMIT, STRAIGHT_JOIN and FORCE INDEX keep them
# apart from the rest of the statement, so that no other row is touched; `token` has the row itself read: its lock is
# not seen in the index, which has the name, too. What was used since is looked at again when it may be idle.
_LAST_USE = "GREATEST(IF(owner IS NULL, since_us, expires_us), token)"
_IS_IDLE = f"((owner IS NULL OR expires_us <= {{now}}) AND {_LAST_USE} < {{now}} - :idle_us)"
_DUE = f"""
    (SELECT name FROM gripfast_lock WHERE checked_us < {{now}} - :idle_us AND token > 0 ORDER BY checked_us LIMIT :count
    {_IF_UNLOCKED}) AS due
"""
_DUE_NAMES = f"{_DUE} STRAIGHT_JOIN gripfast_lock FORCE INDEX (PRIMARY) ON gripfast_lock.name = due.name"
_count = _statement(f"SET @gripfast_swept = (SELECT COUNT(*) FROM {_DUE})")
_sweep = _statement(f"DELETE gripfast_lock FROM {_DUE_NAMES} WHERE {_IS_IDLE}")
_sweep_used = _statement(f"UPDATE {_DUE_NAMES} SET gripfast_lock.checked_us = {_LAST_USE} WHERE NOT {_IS_IDLE}")
_swept = _statement("SELECT @gripfast_swept")


def claim(name: str, owner: str, ttl_us: int, card: str, seems_taken: bool = False) -> list[Query]:
    return [
        Query(_claim_taken if seems_taken else _claim, {"name": name, "owner": owner, "ttl_us": ttl_us, "card": card}),
        Query(_held, {"name": name}),
    ]


def register(name: str, window_us: int) -> list[Query]:
    return [Query(_register, {"name": name, "window_us": window_us}), Query(_held, {"name": name})]


def renew(name: str, owner: str, ttl_us: int, shortens: bool) -> list[Query]:
    values: Values = {"name": name, "owner": owner, "ttl_us": ttl_us, "shortens": int(shortens)}
    return [Query(_find_unlocked, values), Query(_renew, values), Query(_is_renewed, values)]


def renew_waiting(name: str, owner: str, ttl_us: int, shortens: bool, wait_us: int) -> list[Query]:
    values: Values = {"name": name, "owner": owner, "ttl_us": ttl_us, "shortens": int(shortens)}
    waiting = Query(_renew_waiting, values | {"wait_seconds": wait_us / 1_000_000})
    return [Query(_name_it, values), waiting, Query(_is_renewed, values)]


def why(name: str, owner: str) -> list[Query]:
    return [Query(_why, {"name": name, "owner": owner})]


def release(name: str, owner: str, channel: str) -> list[Query]:
    return [Query(_release, {"name": name, "owner": owner}), Query(_how_freed)]


def abandon(name: str, owner: str, channel: str) -> list[Query]:
    values: Values = {"name": name, "owner": owner}
    return [Query(_find_unlocked, values), Query(_abandon, values), Query(_is_owner, values)]


def release_waiting(name: str, owner: str, channel: str, wait_us: int) -> list[Query]:
    return [Query(_release_waiting, {"name": name, "owner": owner, "wait_seconds": wait_us / 1_000_000})]


def force_release(name: str, channel: str) -> list[Query]:
    return [Query(_force_release, {"name": name}), Query(_how_freed)]


def look(name: str) -> list[Query]:
    return [Query(_look, {"name": name})]


def page(after: str, prefix: str, count: int) -> list[Query]:
    return [Query(_page, _stretch_of(after, prefix, count))]


def sweep(count: int, idle_us: int) -> list[Query]:
    values: Values = {"count": count, "idle_us": idle_us}
    return [Query(_count, values), Query(_sweep, values), Query(_sweep_used, values), Query(_swept)]


def listen(channel: str) -> list[Query]:
    """The server has nothing to listen to."""
    return []


def unlisten(channel: str) -> list[Query]:
    return []


# -- sessions ----------------------------------------------------------------------------------------------------

# Neither is undone when a lock is freed. The next one sets its own; and a session that is kept for that, and not needed
# for as long as its last lease was, may end.
_session_lasts = Setting("SET SESSION wait_timeout = :seconds")
_session_waits = Setting("SET SESSION innodb_lock_wait_timeout = :seconds")

# A row that is there and locked would have to be waited for, so it is not inserted again.
_row_make = _statement("""
    INSERT IGNORE INTO gripfast_row (name)
    SELECT :name FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM gripfast_row WHERE name = :name)
""")
_row_exists = _statement("SELECT 1 FROM gripfast_row WHERE name = :name")
_begin = _statement("START TRANSACTION")

# Nobody may look at row locks without high privileges, so whoever has the row locked takes a user-level lock as a sign
# of that: others see it without touching the row, where they could be in somebody's way. The second is for a session
# that was killed: its row is free a moment before its sign is.
_SIGN = "CONCAT('gripfast-row:', SHA1(CONCAT(DATABASE(), '/', HEX(name))))"
_row_wait = _statement(f"""
    SELECT IF(IS_USED_LOCK({_SIGN}) <=> CONNECTION_ID() OR GET_LOCK({_SIGN}, 1), {_SIGN}, '')
    FROM gripfast_row WHERE name = :name FOR UPDATE
""")
_row_try = Statement(f"{_row_wait.sql} NOWAIT")
_lose_signs = _statement("DO RELEASE_ALL_LOCKS(), IF(@gripfast_birth <> x'', GET_LOCK(@gripfast_birth, 0), 0)")
_rollback = _statement("ROLLBACK")

# A session that has a user-level lock gets it again, and would have to release it as often.
_advisory_wait = _statement("""
    SELECT IF(IS_USED_LOCK(:key) <=> CONNECTION_ID(), 1, GET_LOCK(:key, :wait_seconds) <=> 1)
""")
_advisory_free = _statement("SELECT RELEASE_LOCK(:key) <=> 1")
# A primary that is demoted keeps its sessions, and their locks. The setting is a number, or a word in newer versions.
_ping = _statement("SELECT CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF')")

# The idle ones are found first (LIMIT keeps them apart from the rest of the statement), so that no row is touched that
# somebody has locked. A caller's own transaction leaves no mark, and who has only just locked a row none yet: those
# show by the row itself. A subquery may be run though AND does not need it, so it finds nothing unless it has to.
_DUE_SESSIONS = """
    (SELECT mode, name, mark, since_us, token FROM gripfast_grant
    WHERE mode = :mode AND checked_us < {now} - :idle_us ORDER BY checked_us LIMIT :count) AS due
"""
_count_sessions = _statement(f"SET @gripfast_swept = (SELECT COUNT(*) FROM {_DUE_SESSIONS})")
_IS_IDLE_SESSION = """
    (GREATEST(due.since_us, due.token) < {now} - :idle_us AND IF(due.mark = x'', NULL, IS_USED_LOCK(due.mark)) IS NULL)
"""
_IS_IDLE_ROW = f"""
    ({_IS_IDLE_SESSION} AND (
        SELECT COUNT(*) FROM gripfast_row WHERE gripfast_row.name = IF({_IS_IDLE_SESSION}, due.name, NULL)
        {_IF_UNLOCKED}
    ) > 0)
"""


def _idle_sessions(is_idle: str) -> str:
    return f"""
        (SELECT mode, name FROM {_DUE_SESSIONS} WHERE {is_idle} LIMIT :count)
        AS idle STRAIGHT_JOIN gripfast_grant FORCE INDEX (PRIMARY)
        ON gripfast_grant.mode = idle.mode AND gripfast_grant.name = idle.name
    """


_sweep_sessions = _statement(f"DELETE gripfast_grant FROM {_idle_sessions(_IS_IDLE_SESSION)}")
_sweep_rows = _statement(f"""
    DELETE gripfast_grant, gripfast_row, gripfast_within
    FROM {_idle_sessions(_IS_IDLE_ROW)} LEFT JOIN gripfast_row FORCE INDEX (PRIMARY) ON gripfast_row.name = idle.name
    LEFT JOIN gripfast_within FORCE INDEX (PRIMARY) ON gripfast_within.name = idle.name
""")
_SWEEP_USED = f"""
    UPDATE
    (SELECT mode, name, since_us, token, {{is_idle}} AS is_idle FROM {_DUE_SESSIONS} LIMIT :count)
    AS due STRAIGHT_JOIN gripfast_grant FORCE INDEX (PRIMARY)
    ON gripfast_grant.mode = due.mode AND gripfast_grant.name = due.name
    SET gripfast_grant.checked_us =
        IF(GREATEST(due.since_us, due.token) < {{now}} - :idle_us, {{now}}, GREATEST(due.since_us, due.token))
    WHERE NOT due.is_idle
"""
_sweep_used_sessions = _statement(_SWEEP_USED.replace("{is_idle}", _IS_IDLE_SESSION))
_sweep_used_rows = _statement(_SWEEP_USED.replace("{is_idle}", _IS_IDLE_ROW))


def advisory_key(database: str, name: str) -> str:
    """User-level locks are the whole server's, have 64 characters at most, and do not tell `A` from `a`."""
    text = f"{database}\0{name}".encode()
    return "gripfast:" + hashlib.blake2b(text, digest_size=20).hexdigest()


def row_make(name: str) -> list[Query]:
    return [Query(_row_make, {"name": name})]


def row_exists(name: str) -> list[Query]:
    return [Query(_row_exists, {"name": name})]


def row_try(name: str, ttl_us: int) -> list[Query]:
    return [Query(_begin), _lasts(ttl_us), Query(_row_try, {"name": name})]


def row_wait(name: str, ttl_us: int, wait_us: int) -> list[Query]:
    waits = Query(_session_waits, {"seconds": _seconds(wait_us)})
    return [Query(_begin), _lasts(ttl_us), waits, Query(_row_wait, {"name": name})]


def row_free() -> list[Query]:
    """The sign goes first: whoever gets the row next finds it free."""
    return [Query(_lose_signs), Query(_rollback)]


def advisory_try(key: Value, ttl_us: int) -> list[Query]:
    return _advisory(key, ttl_us, 0)


def advisory_wait(key: Value, ttl_us: int, wait_us: int) -> list[Query]:
    return _advisory(key, ttl_us, _seconds(wait_us))


def _advisory(key: Value, ttl_us: int, wait_seconds: int) -> list[Query]:
    return [_lasts(ttl_us), Query(_advisory_wait, {"key": key, "wait_seconds": wait_seconds})]


def advisory_free(key: Value) -> list[Query]:
    return [Query(_advisory_free, {"key": key})]


grant, grant_within, set_ttl = holders.grant, holders.grant_within, holders.set_ttl
seen, seen_page = holders.seen, holders.seen_page
has_session, end_session, end_holder = holders.has_session, holders.end_session, holders.end_holder
end_wait = holders.end_wait


def leave_wait(mode: str, key: Value) -> list[Query]:
    return row_free() if mode == "row" else advisory_free(key)


def ping(mode: str, ttl_us: int) -> list[Query]:
    return [_lasts(ttl_us), Query(_ping)]


def sweep_sessions(mode: str, count: int, idle_us: int) -> list[Query]:
    values: Values = {"mode": mode, "count": count, "idle_us": idle_us}
    sweep = [_sweep_rows, _sweep_used_rows] if mode == "row" else [_sweep_sessions, _sweep_used_sessions]
    return [Query(each, values) for each in (_count_sessions, *sweep)] + [Query(_swept)]


def _lasts(ttl_us: int) -> Query:
    """The server ends a session that is silent for this long."""
    return Query(_session_lasts, {"seconds": _seconds(ttl_us)})


def _seconds(microseconds: int) -> int:
    """Whole ones, rounded up, at least one: the server has no smaller time-outs, and 0 would be for ever."""
    return min(max(1, -(-microseconds // 1_000_000)), _WAIT_MOST)
