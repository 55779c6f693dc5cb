"""Bugs to plant in the SQL stores: the chaos tests must notice each of them."""

from collections.abc import Callable
from typing import Any

from gripfast.stores.mysql import scripts as mysql
from gripfast.stores.postgres import scripts as postgres
from gripfast.stores.sql.sessions import SessionStore
from gripfast.stores.sql.statement import Script, Statement

Plant = Callable[[], None]

POSTGRES_NOW = postgres._CLOCK
MYSQL_NOW = mysql.NOW


def rewritten(script: Script, *changes: tuple[str, str]) -> Plant:
    """Texts of a script, each old part of them replaced by a new one."""

    def plant() -> None:
        for old, new in changes:
            texts = [statement.sql for statement in script.statements]
            assert any(old in sql for sql in texts), f"no text has {old!r} (any more): {texts}"
            script.statements = tuple(Statement(sql.replace(old, new)) for sql in texts)

    return plant


def all_of(*plants: Plant) -> Plant:
    def plant() -> None:
        for each in plants:
            each()

    return plant


def never_sees_that_its_session_is_gone() -> None:
    async def renew(store: SessionStore, holds: Any) -> list[None]:
        return [None for _ in holds]

    SessionStore.look = lambda store: []  # type: ignore[method-assign, assignment]
    SessionStore.renew = renew  # type: ignore[method-assign, assignment]


def server_never_ends_a_silent_session() -> None:
    scripts: list[Any] = [postgres.row_try, postgres.row_wait, postgres.advisory_try, postgres.advisory_wait]
    for script in (*scripts, *postgres.ping.values()):
        rewritten(script, (postgres._TTL_MS, "'0'"))()
    mysql._seconds = lambda microseconds: mysql.IDLE_SECONDS


def a_row_is_read_not_locked() -> None:
    rewritten(postgres.row_try, ("FOR UPDATE NOWAIT", ""))()
    mysql._row_try = mysql.takes("name")("SELECT '' FROM gripfast_row WHERE name = :name")


BUGS: dict[str, Plant] = {
    "a claim takes what has not run out": all_of(
        rewritten(
            postgres.claim,
            (f"owner <> :owner AND expires_us > {POSTGRES_NOW}", "false"),
            (f"l.expires_us <= {POSTGRES_NOW}", "true"),
        ),
        rewritten(mysql.claim, (f"expires_us <= {MYSQL_NOW}", "TRUE")),
    ),
    "a release does not ask whose it is": all_of(
        rewritten(postgres.release, (" AND owner = :owner", " AND owner IS NOT NULL")),
        rewritten(mysql.release, (" AND owner = :owner", " AND owner IS NOT NULL")),
        rewritten(postgres.abandon, (" AND owner = :owner FOR", " AND owner IS NOT NULL FOR")),
        rewritten(
            mysql.abandon,
            (" AND owner = :owner FOR", " AND owner IS NOT NULL FOR"),
            ("@gripfast_unlocked AND owner = :owner", "@gripfast_unlocked AND owner IS NOT NULL"),
        ),
    ),
    "a token is given twice": all_of(
        rewritten(postgres.claim, (f"greatest(l.token + 1, {POSTGRES_NOW})", "l.token")),
        rewritten(mysql.claim, (f"GREATEST(token + 1, {MYSQL_NOW})", "token")),
    ),
    "the engine keeps a lease for half its time": all_of(
        rewritten(postgres.claim, (f"{POSTGRES_NOW} + :ttl_us", f"{POSTGRES_NOW} + :ttl_us::bigint / 2")),
        rewritten(mysql.claim, (f"{MYSQL_NOW} + :ttl_us", f"{MYSQL_NOW} + :ttl_us DIV 2")),
    ),
    "a row is read, not locked": a_row_is_read_not_locked,
    "an advisory lock is shared": all_of(
        rewritten(postgres.advisory_try, ("pg_try_advisory_lock", "pg_try_advisory_lock_shared")),
        rewritten(mysql._advisory_wait, ("GET_LOCK(:key, :wait_seconds) <=> 1", "1")),
    ),
    "a session's token is given twice": all_of(
        rewritten(postgres.grant, (f"greatest(g.token + 1, {POSTGRES_NOW})", "g.token")),
        rewritten(mysql.grant, (f"GREATEST(token + 1, {MYSQL_NOW})", "token")),
    ),
    "a holder never sees that its session is gone": never_sees_that_its_session_is_gone,
    "the server never ends a silent session": server_never_ends_a_silent_session,
}
