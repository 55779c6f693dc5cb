"""Who holds a lock that lives in a session of MariaDB or MySQL: what others see of it, and how they end it. The texts
are used as those of `scripts` are."""

from __future__ import annotations

from gripfast.stores.mysql.texts import Values, statement, stretch_of
from gripfast.stores.sql.statement import Query, Value

_grant = statement("""
    INSERT INTO gripfast_grant (mode, name, token, owner, session, mark, ttl_us, since_us, card)
    VALUES (:mode, :name, LAST_INSERT_ID({now}), :owner, :session, :mark, :ttl_us, {now}, :card)
    ON DUPLICATE KEY UPDATE
        token = LAST_INSERT_ID(GREATEST(token + 1, {now})), owner = :owner, session = :session, mark = :mark,
        ttl_us = :ttl_us, since_us = {now}, card = :card
""")

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
_had_sign = statement(
    """
    SELECT MAX(token) INTO @gripfast_had FROM gripfast_within WHERE name = :name AND EXISTS (
        SELECT 1 FROM gripfast_grant WHERE mode = 'row' AND name = :name AND session = :session AND mark = x''
    ) AND 0 = """
    + _FREE_SIGN_ROWS.replace("{name}", ":name")
)
_set_sign = statement("""
    INSERT INTO gripfast_within (name, token) SELECT :name, LAST_INSERT_ID() FROM DUAL WHERE @gripfast_had IS NULL
    ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID()
""")
_granted_within = statement("SELECT LAST_INSERT_ID(), COALESCE(@gripfast_had, LAST_INSERT_ID())")

_set_ttl = statement(
    "UPDATE gripfast_grant SET ttl_us = :ttl_us WHERE mode = :mode AND name = :name AND owner = :owner"
)

_SEEN = "owner, token, ttl_us, since_us, card, session"
_seen = {
    mode: statement(f"SELECT {_SEEN}, {is_held} FROM gripfast_grant WHERE mode = :mode AND name = :name")
    for mode, is_held in _IS_HELD.items()
}
_seen_page = {
    mode: statement(f"""
        SELECT name, {_SEEN}, {is_held} FROM gripfast_grant WHERE mode = :mode AND name > :after
        AND name >= :prefix AND (:prefix_end IS NULL OR name < :prefix_end) ORDER BY name LIMIT :count
    """)
    for mode, is_held in _IS_HELD.items()
}
# KILL takes no condition, so it is put together.
_HAS_SESSION = """
    SELECT 1 FROM information_schema.processlist WHERE id = :session
    AND (:birth = x'' OR host = CONVERT(:birth USING utf8mb4) OR IS_USED_LOCK(:birth) <=> :session)
"""
_has_session = statement(_HAS_SESSION)
_end_session = statement(f"""
    SET @gripfast_end = IF(EXISTS ({_HAS_SESSION}), CONCAT('KILL CONNECTION ', :session), 'DO 0');
    PREPARE gripfast_end FROM @gripfast_end;
    EXECUTE gripfast_end
""")
_end_wait = statement(f"""
    SET @gripfast_end = IF(EXISTS ({_HAS_SESSION}), CONCAT('KILL QUERY ', :session), 'DO 0');
    PREPARE gripfast_end FROM @gripfast_end;
    EXECUTE gripfast_end
""")
_end_holder = {
    mode: statement(f"""
        SELECT COALESCE(MAX(IF({is_held}, CONCAT('KILL CONNECTION ', session), NULL)), 'DO 0') INTO @gripfast_end
        FROM gripfast_grant WHERE mode = :mode AND name = :name AND owner = :owner;
        PREPARE gripfast_end FROM @gripfast_end;
        EXECUTE gripfast_end
    """)
    for mode, is_held in _IS_HELD.items()
}


def grant(mode: str, name: str, owner: str, session: int, mark: Value, ttl_us: int, card: str) -> list[Query]:
    values: Values = {
        "mode": mode, "name": name, "owner": owner, "session": session, "mark": mark, "ttl_us": ttl_us, "card": card,
    }  # fmt: skip
    return [Query(_grant, values)]


def grant_within(mode: str, name: str, owner: str, session: int, mark: Value, card: str) -> list[Query]:
    values: Values = {"name": name, "session": session}
    granted = grant(mode, name, owner, session, "", 0, card)
    return [Query(_had_sign, values), *granted, Query(_set_sign, values), Query(_granted_within)]


def set_ttl(mode: str, name: str, owner: str, ttl_us: int) -> list[Query]:
    return [Query(_set_ttl, {"mode": mode, "name": name, "owner": owner, "ttl_us": ttl_us})]


def seen(mode: str, name: str) -> list[Query]:
    return [Query(_seen[mode], {"mode": mode, "name": name})]


def seen_page(mode: str, after: str, prefix: str, count: int) -> list[Query]:
    return [Query(_seen_page[mode], {"mode": mode, **stretch_of(after, prefix, count)})]


def end_session(session: int, birth: str) -> list[Query]:
    """That there is none of that number is taken for an answer by whoever reads it."""
    return [Query(_end_session, {"session": session, "birth": birth})]


def end_wait(session: int, birth: str) -> list[Query]:
    return [Query(_end_wait, {"session": session, "birth": birth})]


def end_holder(mode: str, name: str, owner: str) -> list[Query]:
    """A transaction that was prepared (XA) is not seen: it keeps its locks when its session ends."""
    return [Query(_end_holder[mode], {"mode": mode, "name": name, "owner": owner})]


def has_session(session: int, birth: str) -> list[Query]:
    return [Query(_has_session, {"session": session, "birth": birth})]
