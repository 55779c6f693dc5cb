"""Bugs to plant in the SQL stores: the chaos tests must notice each of them."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from gripfast.stores.mysql import holders as mysql_holders
from gripfast.stores.mysql import scripts as mysql
from gripfast.stores.mysql import texts as mysql_texts
from gripfast.stores.postgres import scripts as postgres
from gripfast.stores.sql.sessions import SessionStore
from gripfast.stores.sql.statement import Statement

Plant = Callable[[], None]

POSTGRES_NOW = postgres._CLOCK
MYSQL_NOW = mysql_texts.NOW


def rewritten(module: ModuleType, statement: str, *changes: tuple[str, str]) -> Plant:
    """One text of an engine, each old part of it replaced by a new one."""

    def plant() -> None:
        sql = getattr(module, statement).sql
        for old, new in changes:
            assert old in sql, f"{statement} has no {old!r} (any more): {sql}"
            sql = sql.replace(old, new)
        setattr(module, statement, Statement(sql))

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
    postgres._milliseconds = lambda microseconds: "0"
    mysql._seconds = lambda microseconds: mysql.IDLE_SECONDS


def a_row_is_read_not_locked() -> None:
    rewritten(postgres, "_ROW_TRY", ("FOR UPDATE NOWAIT", ""))()
    mysql._row_try = Statement("SELECT '' FROM gripfast_row WHERE name = :name")


BUGS: dict[str, Plant] = {
    "a claim takes what has not run out": all_of(
        rewritten(
            postgres,
            "_CLAIM",
            (f"owner <> :owner AND expires_us > {POSTGRES_NOW}", "false"),
            (f"l.expires_us <= {POSTGRES_NOW}", "true"),
        ),
        rewritten(mysql, "_claim", (f"expires_us <= {MYSQL_NOW}", "TRUE")),
    ),
    "a release does not ask whose it is": all_of(
        rewritten(postgres, "_RELEASE", (" AND owner = :owner", " AND owner IS NOT NULL")),
        rewritten(mysql, "_release", (" AND owner = :owner", " AND owner IS NOT NULL")),
        rewritten(postgres, "_ABANDON", (" AND owner = :owner FOR", " AND owner IS NOT NULL FOR")),
        rewritten(mysql, "_find_unlocked", (" AND owner = :owner", " AND owner IS NOT NULL")),
        rewritten(mysql, "_abandon", (" AND owner = :owner", " AND owner IS NOT NULL")),
    ),
    "a token is given twice": all_of(
        rewritten(postgres, "_CLAIM", (f"greatest(l.token + 1, {POSTGRES_NOW})", "l.token")),
        rewritten(mysql, "_claim", (f"GREATEST(token + 1, {MYSQL_NOW})", "token")),
    ),
    "the engine keeps a lease for half its time": all_of(
        rewritten(postgres, "_CLAIM", (f"{POSTGRES_NOW} + :ttl_us", f"{POSTGRES_NOW} + :ttl_us::bigint / 2")),
        rewritten(mysql, "_claim", (f"{MYSQL_NOW} + :ttl_us", f"{MYSQL_NOW} + :ttl_us DIV 2")),
    ),
    "a row is read, not locked": a_row_is_read_not_locked,
    "an advisory lock is shared": all_of(
        rewritten(postgres, "_ADVISORY_TRY", ("pg_try_advisory_lock", "pg_try_advisory_lock_shared")),
        rewritten(mysql, "_advisory_wait", ("GET_LOCK(:key, :wait_seconds) <=> 1", "1")),
    ),
    "a session's token is given twice": all_of(
        rewritten(postgres, "_GRANT", (f"greatest(g.token + 1, {POSTGRES_NOW})", "g.token")),
        rewritten(mysql_holders, "_grant", (f"GREATEST(token + 1, {MYSQL_NOW})", "token")),
    ),
    "a holder never sees that its session is gone": never_sees_that_its_session_is_gone,
    "the server never ends a silent session": server_never_ends_a_silent_session,
}
