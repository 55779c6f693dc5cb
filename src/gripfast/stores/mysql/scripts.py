"""Every SQL text for MariaDB and MySQL: nothing here is known to one of them alone.

Names, owners, holder details and keys are VARBINARY: the collations of the server would merge `Job` with `job`, and
even those that compare byte by byte ignore spaces at the end.

The time of a decision is when its statement began, UTC_TIMESTAMP(6). It is one moment for all columns, where SYSDATE(6)
would be another one at each place it is written, and a different one on replicas that repeat statements. A statement
that had to wait for the row decides by a time that is a little old, which errs to the safe side: it sees a lease run
out later than others do, it grants one that ends earlier (yet not before the client believes, which counts from the
sending), and the token grows all the same. The SELECT behind it begins after that wait, so the answer is not old.

What a statement did is never taken from the count of changed rows alone: the count means changed or found depending on
how the connection was opened. Where a statement has to hand on what it found, LAST_INSERT_ID(number) keeps that for the
session, however many others write the row in between; it also comes with the end of the statement, as a row.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable

from gripfast.stores.mysql.permit_tables import TABLES as PERMIT_TABLES
from gripfast.stores.sql import kept_texts
from gripfast.stores.sql.layout_texts import layout_scripts
from gripfast.stores.sql.statement import ByMode, Query, Script, Statement, Value

NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
"""Microseconds since 1970; `{now}` in the texts."""

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
    owner           VARBINARY(255) NULL,        -- NULL if the lock is free
    expires_us      BIGINT NOT NULL,            -- microseconds since 1970 by this server's clock, like all times here
    ttl_us          BIGINT NOT NULL,
    since_us        BIGINT NOT NULL,            -- held, or free, since then
    card            MEDIUMBLOB NOT NULL,        -- who the owner is, as JSON
    broken          VARBINARY(255) NULL,        -- the last owner whose lock was released by force
    waited_until_us BIGINT NOT NULL,            -- until then, someone may wait for the lock
    checked_us      BIGINT NOT NULL,            -- when the row was made, or last checked for use
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
    mark            VARBINARY(64) NOT NULL,     -- a user-level lock that the session keeps while it holds the lock
    ttl_us          BIGINT NOT NULL,
    since_us        BIGINT NOT NULL,
    card            MEDIUMBLOB NOT NULL,
    checked_us      BIGINT NOT NULL DEFAULT 0,  -- when the row was last checked for use
    PRIMARY KEY (mode, name),
    KEY gripfast_grant_checked (mode, checked_us)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC /*M! ENGINE=Aria TRANSACTIONAL=0 */"""),
    Statement("""CREATE TABLE IF NOT EXISTS gripfast_within (
    name            VARBINARY(1024) NOT NULL PRIMARY KEY,  -- the caller's transaction locks this row
    token           BIGINT NOT NULL             -- of the grant that this transaction must see
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""),
    *PERMIT_TABLES,
)


class Setting(Statement):
    """Holds until the session is told otherwise: not sent again with the same values."""


def takes(names: str) -> Callable[..., Script]:
    """As `statement.takes`, with the server's time in the texts."""
    return lambda *texts: Script(names, *map(_written, texts))


def _written(sql: str) -> str:
    return " ".join(sql.replace("{now}", NOW).split())


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
_settings_shared, _settings_own = (
    Statement(_written(_settings.replace("{more}", more)))
    for more in (
        """, innodb_lock_wait_timeout = :seconds_up, lock_wait_timeout = :seconds_up
        /*M!100101 , max_statement_time = :seconds */ /*!80000 , max_execution_time = :milliseconds */""",
        """/*M!100301 , max_statement_time = 0, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0,
        idle_write_transaction_timeout = 0 */ /*!80000 , max_execution_time = 0 */""",
    )
)
settings_for_statement_log = takes("")("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
"""A server that replicates by statements refuses writes under READ COMMITTED."""


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
    values: dict[str, Value] = {
        "idle": IDLE_SECONDS,
        "birth": birth,
        "seconds_up": _seconds(int(timeout * 1_000_000)),
        "seconds": round(max(timeout, 0.001), 6),
        "milliseconds": max(1, int(timeout * 1000)),
    }
    return [Query(_settings_shared if is_shared else _settings_own, values)]


# A name with a NUL in it, as `_NOTE_OF` has.
layout_read, layout_write = layout_scripts("CONCAT(x'00', 'gripfast layout')", "INSERT IGNORE")

# -- leases ------------------------------------------------------------------------------------------------------

_HELD = "IF(expires_us > {now}, owner, NULL), token, expires_us - {now}, ttl_us, since_us, card"

# Assignments are made from left to right, and each sees what those before it have set: `token` and `since_us` still see
# the old owner and the old end, `owner` sees the old end, and those behind it see whether this owner has it now. A free
# row has ended at 0, so GREATEST keeps the end of a lease only if it was this owner's. If nothing changes, nothing is
# written: a claim for a lock that is taken costs no commit.
_NEW_ROW = ":name, {now}, :owner, {now} + :ttl_us, :ttl_us, {now}, :holder, NULL, 0, {now}"
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
        card = IF(owner = :owner, :holder, card),
        broken = IF(owner = :owner, NULLIF(broken, owner), broken)
"""
_LOOK_AT = f"SELECT {_HELD} FROM gripfast_lock WHERE name = :name"
claim = takes("name owner ttl_us holder")(_CLAIM.replace("{row}", f"VALUES ({_NEW_ROW})"), _LOOK_AT)
# That locks the row even if it changes nothing, and those who claim again and again would be in the way of the holder.
# So they look first, which locks nothing (but on a server that logs statements, for a moment). That costs a tenth more,
# so a claim that has no reason to expect a holder does not.
_ANOTHERS = "SELECT 1 FROM gripfast_lock WHERE name = :name AND owner <> :owner AND expires_us > {now}"
claim_taken = takes("name owner ttl_us holder")(
    _CLAIM.replace("{row}", f"SELECT {_NEW_ROW} FROM DUAL WHERE NOT EXISTS ({_ANOTHERS})"), _LOOK_AT
)
register = takes("name window_us")(
    "UPDATE gripfast_lock SET waited_until_us = GREATEST(waited_until_us, {now} + :window_us) WHERE name = :name",
    _LOOK_AT,
)

# One row that somebody has locked for long must not hold up the others of a batch. So its name is handed on only if the
# row is not locked; who locks it in the moment between the two statements is waited for. MariaDB knows the words from
# 10.6 on, and waits before.
_IF_UNLOCKED = "FOR UPDATE /*!80001 SKIP LOCKED */ /*M!100600 SKIP LOCKED */"
_FIND_UNLOCKED = f"""
    SET @gripfast_unlocked = (SELECT name FROM gripfast_lock WHERE name = :name AND owner = :owner {_IF_UNLOCKED})
"""

_RENEW = """
    UPDATE gripfast_lock
    SET expires_us = IF(:shortens, {now} + :ttl_us, GREATEST(expires_us, {now} + :ttl_us)), ttl_us = :ttl_us
    WHERE name = @gripfast_unlocked AND owner = :owner AND expires_us > {now}
"""
_IS_RENEWED = """
    SELECT 1 FROM gripfast_lock WHERE name = @gripfast_unlocked AND owner = :owner AND expires_us > {now}
"""
renew = takes("name owner ttl_us shortens")(_FIND_UNLOCKED, _RENEW, _IS_RENEWED)
# MySQL has no time-out for one statement that writes: there the client gives it up.
_WAITING = "/*M!100101 SET STATEMENT max_statement_time = :wait_us * 1e-6 FOR */"
renew_waiting = takes("name owner ttl_us shortens wait_us")(
    "SET @gripfast_unlocked = :name", _WAITING + _RENEW, _IS_RENEWED
)

# The name of a row whose `card` is a note. No lock's name has a NUL in it, so it is none. Nobody owns the row: the
# sweep forgets it a day later, and no list shows it.
_NOTE_OF = "CONCAT(x'00', 'gripfast note ', {owner})"
why = takes("name owner")(
    """
    SELECT IF(owner <=> :owner AND expires_us > {now}, 'held',
        IF(broken <=> :owner, 'broken', IF(owner <> :owner, 'taken', 'expired'))),
        (SELECT note.card FROM gripfast_lock AS note WHERE note.name = {note})
    FROM gripfast_lock WHERE name = :name
    """.replace("{note}", _NOTE_OF.replace("{owner}", ":owner"))
)

# 2 for held, 1 for waited for. `expires_us` is set before `owner`: it is the last to see the old end.
_FREED = """
    expires_us = 0 * LAST_INSERT_ID(2 * (expires_us > {now}) + (waited_until_us > {now})),
    since_us = {now}, owner = NULL
"""
_RELEASE = f"UPDATE gripfast_lock SET {_FREED} WHERE name = :name AND owner = :owner"
_HOW_FREED = "SELECT LAST_INSERT_ID() DIV 2, LAST_INSERT_ID() MOD 2 FROM DUAL WHERE ROW_COUNT() > 0"
release = takes("name owner channel")(_RELEASE, _HOW_FREED)
release_waiting = takes("name owner channel wait_us")(_WAITING + _RELEASE)
abandon = takes("name owner channel")(
    _FIND_UNLOCKED,
    f"UPDATE gripfast_lock SET {_FREED} WHERE name = @gripfast_unlocked AND owner = :owner",
    "SELECT 1 FROM gripfast_lock WHERE name = :name AND owner = :owner",
)
_FORCE_RELEASE = f"""
    UPDATE gripfast_lock SET broken = IF(expires_us > {{now}}, owner, broken), {_FREED}
    WHERE name = :name AND owner IS NOT NULL AND {kept_texts.NOT_DONE}
"""
force_release = takes("name channel")(_FORCE_RELEASE, _HOW_FREED)
# The note comes first: an owner that finds that it was broken finds the note, too. If another one gets the lock in
# between, that one is broken, and is told no reason. By SELECT, since SET would lock what it reads.
force_release_noted = takes("name channel note")(
    "SELECT MAX(owner) INTO @gripfast_victim FROM gripfast_lock "
    f"WHERE name = :name AND expires_us > {{now}} AND {kept_texts.NOT_DONE}",
    """
    INSERT INTO gripfast_lock
        (name, token, owner, expires_us, ttl_us, since_us, card, broken, waited_until_us, checked_us)
    SELECT {name}, {now}, NULL, 0, 0, {now}, :note, NULL, 0, {now} FROM DUAL WHERE @gripfast_victim IS NOT NULL
    ON DUPLICATE KEY UPDATE card = :note
    """.replace("{name}", _NOTE_OF.replace("{owner}", "@gripfast_victim")),
    _FORCE_RELEASE,
    _HOW_FREED,
)

keep = takes("name owner marker keep_us")(*kept_texts.KEEP_MYSQL)
adopt = takes("name former owner ttl_us holder")(*kept_texts.ADOPT_MYSQL)
look = takes("name")(f"{_LOOK_AT} AND owner IS NOT NULL AND expires_us > {{now}}")

_PAGE = """
    AND name > :after AND name >= :prefix AND (:prefix_end IS NULL OR name < :prefix_end) ORDER BY name LIMIT :count
"""


def _paged(selected: str) -> Callable[[str, str, int], list[Query]]:
    script = takes("after prefix prefix_end count")(f"SELECT name, {selected} {_PAGE}")
    return lambda after, prefix, count: script(after, prefix, _prefix_end(prefix), count)


def _prefix_end(prefix: str) -> bytes | None:
    """What comes after all names with this prefix. UTF-8 has no byte that could not be counted up."""
    text = prefix.encode()
    return text[:-1] + bytes([text[-1] + 1]) if text else None


page = _paged(f"{_HELD} FROM gripfast_lock WHERE 1")
listen = unlisten = takes("channel")()
"""The server has nothing to listen to."""

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
_SWEPT = "SELECT @gripfast_swept"
sweep = takes("count idle_us")(
    f"SET @gripfast_swept = (SELECT COUNT(*) FROM {_DUE})",
    f"DELETE gripfast_lock FROM {_DUE_NAMES} WHERE {_IS_IDLE}",
    f"UPDATE {_DUE_NAMES} SET gripfast_lock.checked_us = {_LAST_USE} WHERE NOT {_IS_IDLE}",
    _SWEPT,
)

# -- sessions ----------------------------------------------------------------------------------------------------

# Neither is undone when a lock is freed. The next one sets its own; and a session that is kept for that, and not needed
# for as long as its last lease was, may end.
_session_lasts = Setting("SET SESSION wait_timeout = :seconds")
_session_waits = Setting("SET SESSION innodb_lock_wait_timeout = :seconds")

# A row that is there and locked would have to be waited for, so it is not inserted again.
ROW_MAKE = """INSERT IGNORE INTO gripfast_row (name)
    SELECT :name FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM gripfast_row WHERE name = :name)"""
row_make = takes("name")(ROW_MAKE)
row_exists = takes("name")("SELECT 1 FROM gripfast_row WHERE name = :name")
_begin = Query(Statement("START TRANSACTION"))

# Nobody may look at row locks without high privileges, so whoever has the row locked takes a user-level lock as a sign
# of that: others see it without touching the row, where they could be in somebody's way. The second is for a session
# that was killed: its row is free a moment before its sign is.
_SIGN = "CONCAT('gripfast-row:', SHA1(CONCAT(DATABASE(), '/', HEX(name))))"
_ROW_WAIT = f"""
    SELECT IF(IS_USED_LOCK({_SIGN}) <=> CONNECTION_ID() OR GET_LOCK({_SIGN}, 1), {_SIGN}, '')
    FROM gripfast_row WHERE name = :name FOR UPDATE
"""
_row_wait, _row_try = takes("name")(_ROW_WAIT), takes("name")(f"{_ROW_WAIT} NOWAIT")
_ROW_FREE = "DO RELEASE_ALL_LOCKS(), IF(@gripfast_birth <> x'', GET_LOCK(@gripfast_birth, 0), 0)", "ROLLBACK"
row_free = takes("")(*_ROW_FREE)
"""The sign goes first: whoever gets the row next finds it free."""

# A session that has a user-level lock gets it again, and would have to release it as often.
_advisory_wait = takes("key wait_seconds")("""
    SELECT IF(IS_USED_LOCK(:key) <=> CONNECTION_ID(), 1, GET_LOCK(:key, :wait_seconds) <=> 1)
""")
advisory_free = takes("key")("SELECT RELEASE_LOCK(:key) <=> 1")
leave_wait = ByMode(row=takes("key")(*_ROW_FREE), advisory=advisory_free)
# A primary that is demoted keeps its sessions, and their locks. The setting is a number, or a word in newer versions.
_ping = takes("")("SELECT CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF')")

# The idle ones are found first (LIMIT keeps them apart from the rest of the statement), so that no row is touched that
# somebody has locked. A caller's own transaction leaves no mark, and who has only just locked a row none yet: those
# show by the row itself. A subquery may be run though AND does not need it, so it finds nothing unless it has to.
_DUE_SESSIONS = """
    (SELECT mode, name, mark, since_us, token FROM gripfast_grant
    WHERE mode = :mode AND checked_us < {now} - :idle_us ORDER BY checked_us LIMIT :count) AS due
"""
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


_SWEEP_ROWS = f"""
    DELETE gripfast_grant, gripfast_row, gripfast_within
    FROM {_idle_sessions(_IS_IDLE_ROW)} LEFT JOIN gripfast_row FORCE INDEX (PRIMARY) ON gripfast_row.name = idle.name
    LEFT JOIN gripfast_within FORCE INDEX (PRIMARY) ON gripfast_within.name = idle.name
"""
_SWEEP_USED = f"""
    UPDATE
    (SELECT mode, name, since_us, token, {{is_idle}} AS is_idle FROM {_DUE_SESSIONS} LIMIT :count)
    AS due STRAIGHT_JOIN gripfast_grant FORCE INDEX (PRIMARY)
    ON gripfast_grant.mode = due.mode AND gripfast_grant.name = due.name
    SET gripfast_grant.checked_us =
        IF(GREATEST(due.since_us, due.token) < {{now}} - :idle_us, {{now}}, GREATEST(due.since_us, due.token))
    WHERE NOT due.is_idle
"""


def _sweep_sessions(mode: str, sweep_idle: str, is_idle: str) -> Script:
    count = f"SET @gripfast_swept = (SELECT COUNT(*) FROM {_DUE_SESSIONS})"
    texts = (count, sweep_idle, _SWEEP_USED.replace("{is_idle}", is_idle), _SWEPT)
    return takes("count idle_us")(*(text.replace(":mode", f"'{mode}'") for text in texts))


sweep_sessions = ByMode(
    row=_sweep_sessions("row", _SWEEP_ROWS, _IS_IDLE_ROW),
    advisory=_sweep_sessions(
        "advisory", f"DELETE gripfast_grant FROM {_idle_sessions(_IS_IDLE_SESSION)}", _IS_IDLE_SESSION
    ),
)


def advisory_key(database: str, name: str) -> str:
    """User-level locks are the whole server's, have 64 characters at most, and do not tell `A` from `a`."""
    text = f"{database}\0{name}".encode()
    return "gripfast:" + hashlib.blake2b(text, digest_size=20).hexdigest()


def row_try(name: str, ttl_us: int) -> list[Query]:
    return [_begin, _lasts(ttl_us), *_row_try(name)]


def row_wait(name: str, ttl_us: int, wait_us: int) -> list[Query]:
    waits = Query(_session_waits, {"seconds": _seconds(wait_us)})
    return [_begin, _lasts(ttl_us), waits, *_row_wait(name)]


def advisory_try(key: Value, ttl_us: int) -> list[Query]:
    return [_lasts(ttl_us), *_advisory_wait(key, 0)]


def advisory_wait(key: Value, ttl_us: int, wait_us: int) -> list[Query]:
    return [_lasts(ttl_us), *_advisory_wait(key, _seconds(wait_us))]


def ping(mode: str, ttl_us: int) -> list[Query]:
    return [_lasts(ttl_us), *_ping()]


def _lasts(ttl_us: int) -> Query:
    """The server ends a session that is silent for this long."""
    return Query(_session_lasts, {"seconds": _seconds(ttl_us)})


def _seconds(microseconds: int) -> int:
    """Whole ones, rounded up, at least one: the server has no smaller time-outs, and 0 would be for ever."""
    return min(max(1, -(-microseconds // 1_000_000)), _WAIT_MOST)


# -- who holds a lock in a session: what others see of it, and how they end it -----------------------------------

_GRANT = """
    INSERT INTO gripfast_grant (mode, name, token, owner, session, mark, ttl_us, since_us, card)
    VALUES (:mode, :name, LAST_INSERT_ID({now}), :owner, :session, :mark, :ttl_us, {now}, :holder)
    ON DUPLICATE KEY UPDATE
        token = LAST_INSERT_ID(GREATEST(token + 1, {now})), owner = :owner, session = :session, mark = :mark,
        ttl_us = :ttl_us, since_us = {now}, card = :holder
"""
grant = takes("mode name owner session mark ttl_us holder")(_GRANT)

# A user-level lock would outlive a caller's own transaction, so its sign is a row of another table, locked after
# the token was taken. Who looks locks it for a moment, if it is free: shared, so that two who look do not see each
# other. Nobody who looks touches the row that is the lock. MariaDB can leave out rows that are locked from 10.6 on. A
# subquery may be run though CASE does not need it, so it finds nothing if the sign is a user-level lock.
_SIGN_ROWS = "(SELECT COUNT(*) FROM gripfast_within WHERE gripfast_within.name = {name}"
_FREE_SIGN_ROWS = _SIGN_ROWS + "/*!80001 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */)"
_HAS_SIGN_ROW = f"{_SIGN_ROWS}) > {_FREE_SIGN_ROWS}".replace("{name}", "IF(mark = x'', gripfast_grant.name, NULL)")
_IS_HELD = {
    "row": f"CASE WHEN mark <> x'' THEN IS_USED_LOCK(mark) <=> session ELSE {_HAS_SIGN_ROW} END",
    "advisory": "IS_USED_LOCK(mark) <=> session",
}

# For a caller's own transaction: the sign gets the token, too, before the transaction locks it, and by that shows how
# old its snapshot is. A transaction that takes the lock again has locked the sign already: then it keeps the token that
# was seen before. Variables are the session's own, and set anew each time; by SELECT, since SET would lock what it
# reads.
grant_within = takes("mode name owner session mark holder")(
    """
    SELECT MAX(token) INTO @gripfast_had FROM gripfast_within WHERE name = :name AND EXISTS (
        SELECT 1 FROM gripfast_grant WHERE mode = 'row' AND name = :name AND session = :session AND mark = x''
    ) AND 0 = """
    + _FREE_SIGN_ROWS.replace("{name}", ":name"),
    _GRANT.replace(":mark", "x''").replace(":ttl_us", "0"),
    """
    INSERT INTO gripfast_within (name, token) SELECT :name, LAST_INSERT_ID() FROM DUAL WHERE @gripfast_had IS NULL
    ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID()
    """,
    "SELECT LAST_INSERT_ID(), COALESCE(@gripfast_had, LAST_INSERT_ID())",
)

set_ttl = takes("mode name owner ttl_us")(
    "UPDATE gripfast_grant SET ttl_us = :ttl_us WHERE mode = :mode AND name = :name AND owner = :owner"
)

_SEEN = {
    mode: f"owner, token, ttl_us, since_us, card, session, {is_held} FROM gripfast_grant WHERE mode = '{mode}'"
    for mode, is_held in _IS_HELD.items()
}
seen = ByMode({mode: takes("name")(f"SELECT {columns} AND name = :name") for mode, columns in _SEEN.items()})
seen_page = ByMode({mode: _paged(columns) for mode, columns in _SEEN.items()})

_HAS_SESSION = """
    SELECT 1 FROM information_schema.processlist WHERE id = :session
    AND (:birth = x'' OR host = CONVERT(:birth USING utf8mb4) OR IS_USED_LOCK(:birth) <=> :session)
"""
has_session = takes("session birth")(_HAS_SESSION)
# KILL takes no condition, so it is put together.
_END = "PREPARE gripfast_end FROM @gripfast_end; EXECUTE gripfast_end"
end_session, end_wait = (
    takes("session birth")(
        f"SET @gripfast_end = IF(EXISTS ({_HAS_SESSION}), CONCAT('KILL {what} ', :session), 'DO 0'); {_END}"
    )
    for what in ("CONNECTION", "QUERY")
)
"""That there is none of that number is taken for an answer by whoever reads it."""
# A transaction that was prepared (XA) is not seen: it keeps its locks when its session ends.
end_holder = ByMode(
    {
        mode: takes("name owner")(f"""
        SELECT COALESCE(MAX(IF({is_held}, CONCAT('KILL CONNECTION ', session), NULL)), 'DO 0') INTO @gripfast_end
        FROM gripfast_grant WHERE mode = '{mode}' AND name = :name AND owner = :owner; {_END}
    """)
        for mode, is_held in _IS_HELD.items()
    }
)
