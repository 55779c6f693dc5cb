"""`lock.within(connection)`: the lock is taken in the caller's own transaction, and freed with its commit or rollback.

It is the same lock as that of `?mode=row`, or of `?mode=advisory` on PostgreSQL, so it excludes the leases of such
clients, and they exclude it. It has no deadline, and nothing is renewed: it lives with the transaction.

1. The row is inserted and committed on a connection of the client's own. (In the caller's transaction it would be a
   row that others don't see.)
2. The row is locked in the caller's transaction: at first without waiting, so the uncontended lock needs no more. Then
   it waits, by the engine's own time-outs, which are put back after.
3. The token is taken and committed on the client's connection, now that the lock is ours.
4. A plain read in the caller's transaction must see what was committed then. If it would not, this transaction reads a
   snapshot that is older than the lock: it would decide by what was true before the last holder's commit. Refused. (Or
   the two connections are not of the same database, and the lock is worth nothing.)

PostgreSQL: above READ COMMITTED the snapshot is as old as the first statement, so that is refused before anything is
locked. An error, such as that of a time-out, would end the caller's transaction: so a locked row is skipped at first,
and then waited for behind a savepoint.

MariaDB/MySQL: REPEATABLE READ is fine until something was read: the snapshot is made by the first plain read, which
comes after the lock then. Each name has a second row, in gripfast_within: the client writes the token there, and the
caller's transaction locks it, which is also how others see that the lock is held. On a server that knows
innodb_snapshot_isolation, that locking read is refused if there is a snapshot that is older than the token; if there is
none, none is made, and more locks can be taken in the same transaction. The server rolls the transaction back with that
refusal. On other servers a plain read shows it, which makes a snapshot: the next lock would be refused. Neither is
done if the transaction begins with the lock.
The lock time-out counts whole seconds, and a server may look only once a second whether it is over: so the last one or
two seconds of a wait are tries. A time-out ends the statement alone; where the server is set to roll back the
transaction then (innodb_rollback_on_timeout), all of the wait is tries.

Savepoints: a rollback to one that is older than the lock frees it on PostgreSQL, while the transaction goes on, and on
MariaDB/MySQL if it is older than all else that the transaction did in InnoDB. `durable` refuses what could end so.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gripfast import drivers
from gripfast.core.lease import Want
from gripfast.core.ports import Env, LockInfo, Store, Unreachable, to_raise
from gripfast.drivers import CallerConnection, Value, code_of, full_name, recognised
from gripfast.errors import ConfigurationError, LockTimeout
from gripfast.stores.sql import within_texts as texts
from gripfast.stores.sql.sessions import SessionStore
from gripfast.stores.sql.store import LeaseStore

TRY_EVERY = 0.02
TRIES_FOR = 2.0
"""On MySQL a wait can't be left to the time-out of the server when less than this is left of it."""
FOR_EVER_S = 100_000_000
"""What MariaDB takes for no time-out at all, and is three years on MySQL."""

CLOSE_ENOUGH = 0.01
"""Seconds that the server's idea of when a wait is over may be ahead of ours."""

_BUSY = {"55P03", "1205", "3572"}
_OUT_OF_TIME = {"1969", "3024"}
"""The caller's own limit for a statement, on MariaDB and MySQL: it ends the statement alone."""
_CANCELLED = "57014"
"""By its time-out, or by somebody."""
_NO_TABLE = {"42P01", "1146"}
_MADE_SINCE = "1412"
"""A table that is newer than the snapshot."""
_CHANGED_SINCE = "1020"
"""A row that is newer than the snapshot; the server rolls back."""
_NO_VARIABLE = "1193"
_STATEMENT_LOG = "1665"
MISSES = 3
"""So often a row that was committed a moment ago may be gone when it is looked for: swept, and not elsewhere."""

_ELSEWHERE = (
    "this connection does not see the Gripfast tables of the lock's client: connect both to the same database (on "
    "PostgreSQL also with the same search_path)"
)

_BY_STATEMENTS = (
    "this server uses binlog_format=STATEMENT, and so refuses locks and writes in READ COMMITTED transactions: use "
    "REPEATABLE READ, or set binlog_format to ROW or MIXED"
)
TRANSACTIONAL = ("postgresql", "mysql")

Row = tuple[Any, ...]


async def lock_within(
    env: Env, want: Want, connection: object, wait: float | None, durable: bool, is_async: bool
) -> int:
    """Lock the name in the transaction of the connection; the token. LockTimeout after `wait` seconds (None: never)."""
    started = env.now()
    store = _store_with_sessions(env.store)
    caller = await _checked_caller(connection, store, is_async)
    locking = (_InPostgres if caller.engine == "postgresql" else _InMySQL)(env, store, want, caller)
    await locking.check_settings()
    if durable:
        await locking.check_durable()
    row = await locking.lock(math.inf if wait is None else started + wait)
    if row is None:
        holder = await store.inspection.inspect(want.key)
        known = replace(holder, name=want.name) if isinstance(holder, LockInfo) else None
        raise LockTimeout(want.name, env.now() - started, known)
    mark = store.inspection.advisory_key(want.key) if store.mode == "advisory" else row[1]
    stamp = await store.inspection.stamp(want.key, env.new_owner(), want.label, row[0], mark)
    if isinstance(stamp, Unreachable):
        raise to_raise(stamp.error)
    if not await locking.sees_the_present(stamp.shown):
        raise _old_snapshot(want.name)
    return stamp.token


class _Locking:
    """One lock in one transaction of the caller's."""

    def __init__(self, env: Env, store: SessionStore, want: Want, caller: CallerConnection) -> None:
        self._env = env
        self._store = store
        self._name = want.name
        self._key = want.key
        self._caller = caller
        self._texts = texts.TEXTS[caller.engine, store.mode]
        self._misses = 0
        is_row = store.mode == "row"
        self._row = {"name": self._written(want.key)}
        self._lock_value: dict[str, Value] = self._row if is_row else {"key": store.inspection.advisory_key(want.key)}

    async def lock(self, ends: float) -> Row | None:
        """(session, mark), or None when the time is over."""
        while True:
            if self._store.mode == "row":
                await self._prepare()
            row = await self._attempt()
            if row is None and self._env.now() < ends:
                row = await self._wait(ends)
            if row is not None or self._env.now() >= ends:
                return row

    async def sees_the_present(self, shown: int) -> bool:
        """Whether plain reads of this transaction see what was committed since the lock was got."""
        return await self._run(self._texts.token, self._row) == (shown,)

    async def _attempt(self) -> Row | None:
        return await self._run(self._texts.attempt, self._lock_value)

    async def _prepare(self) -> None:
        refused = await self._store.inspection.prepare(self._key)
        if refused is not None:
            raise to_raise(refused.error)

    def _written(self, key: str) -> Value:
        """In the texts."""
        return key

    async def _wait_queued(self) -> Row | None:
        """As long as the engine's lock time-out says. None if there is no such row."""
        row = await self._run(self._texts.wait, self._lock_value)
        self._misses += row is None
        if self._misses >= MISSES:
            raise ConfigurationError(_ELSEWHERE)
        return row

    async def check_settings(self) -> None:
        """Settings that matter; ConfigurationError if the lock would be worth nothing."""
        raise NotImplementedError

    async def check_durable(self) -> None:
        """ConfigurationError if a rollback to a savepoint could free the lock."""
        raise NotImplementedError

    async def _wait(self, ends: float) -> Row | None:
        """None: not yet."""
        raise NotImplementedError

    async def _run(self, sql: str, values: Mapping[str, Value] | None = None) -> Row | None:
        """The first row, if there is one."""
        try:
            rows, _ = await self._caller.run(sql, values or {})
        except Exception as error:
            if code_of(error) in _NO_TABLE:
                raise ConfigurationError(_ELSEWHERE) from error
            raise
        return rows[0] if rows else None


class _InPostgres(_Locking):
    async def check_settings(self) -> None:
        row = await self._run(texts.POSTGRES_SETTINGS)
        assert row is not None
        level, *self._timeouts = row
        if level not in ("read committed", "read uncommitted"):
            raise ConfigurationError(
                f"this transaction is {level.upper()}, so it would read the data as they were before it got the lock. "
                "Roll back, and use READ COMMITTED"
            )

    async def check_durable(self) -> None:
        made = await self._run(texts.POSTGRES_MAKE_OBJECT)
        assert made is not None
        row = await self._run(texts.POSTGRES_IS_OUTERMOST, {"made": made[0]})
        if row is None or not row[0]:
            raise ConfigurationError(
                "a savepoint (a nested transaction) is open: a rollback to it would release the lock although the "
                "outer transaction goes on. Call within() before the savepoint, or without durable=True"
            )

    async def _wait(self, ends: float) -> Row | None:
        """A row may have to wait for several locks, one after the other, each with all of the lock time-out: so the
        statement has one as well. How long the caller lets other statements take does not count here."""
        left_ms = 0 if math.isinf(ends) else max(1, math.ceil((ends - self._env.now()) * 1000))
        await self._run(texts.SAVEPOINT)
        try:
            await self._set_timeouts(str(left_ms), str(left_ms))
            row = await self._wait_queued()
        except Exception as error:
            is_over = ends - self._env.now() < CLOSE_ENOUGH and code_of(error) == _CANCELLED
            if code_of(error) not in _BUSY and not is_over:
                raise
            await self._run(texts.ROLLBACK_TO_SAVEPOINT)
            await self._run(texts.RELEASE_SAVEPOINT)
            return None
        await self._set_timeouts(*self._timeouts)
        await self._run(texts.RELEASE_SAVEPOINT)
        return row

    async def _set_timeouts(self, for_lock: str, for_statement: str) -> None:
        await self._run(texts.POSTGRES_SET_TIMEOUTS, {"for_lock": for_lock, "for_statement": for_statement})


class _InMySQL(_Locking):
    async def _run(self, sql: str, values: Mapping[str, Value] | None = None) -> Row | None:
        try:
            return await super()._run(sql, values)
        except Exception as error:
            if code_of(error) == _CHANGED_SINCE:
                raise _old_snapshot(self._name, is_over=not await self._has_begun()) from error
            if code_of(error) == _STATEMENT_LOG:
                raise ConfigurationError(_BY_STATEMENTS) from error
            raise

    async def _has_begun(self) -> bool:
        row = await self._run(texts.MYSQL_SETTINGS)
        return row is None or bool(row[-1])

    async def check_settings(self) -> None:
        row = await self._run(texts.MYSQL_SETTINGS)
        assert row is not None
        self._timeout, self._rolls_back, self._had_begun = row

    async def check_durable(self) -> None:
        """The server tells how many savepoints this session has set, and not whether one is open."""
        row = await self._run(texts.MYSQL_SAVEPOINTS)
        if row is None or int(row[1]):
            raise ConfigurationError(
                "a savepoint was set on this connection earlier, and the server does not say whether it still exists. "
                "A rollback to it could release the lock although the transaction goes on. Use a connection on which "
                "no savepoint was ever set, or call within() without durable=True"
            )

    async def sees_the_present(self, shown: int) -> bool:
        """The sign is locked in any case: by that others see that the lock is held."""
        isolates = await self._isolates() if self._had_begun else 1
        if isolates == 0:
            return await self._lock_sign_isolated() == (shown,)
        is_same = await self._lock_sign() == (shown,)
        return is_same and (isolates is not None or await self._reads(shown))

    async def _isolates(self) -> int | None:
        """None if the server knows nothing of that."""
        try:
            row = await self._run(texts.MYSQL_ISOLATES)
        except Exception as error:
            if code_of(error) == _NO_VARIABLE:
                return None
            raise
        assert row is not None
        return int(row[0])

    async def _lock_sign_isolated(self) -> Row | None:
        await self._run(texts.MYSQL_SET_ISOLATES, {"isolates": 1})
        try:
            row = await self._lock_sign()
        except Exception:
            with contextlib.suppress(Exception):  # of a connection that is gone
                await self._run(texts.MYSQL_SET_ISOLATES, {"isolates": 0})
            raise
        await self._run(texts.MYSQL_SET_ISOLATES, {"isolates": 0})
        return row

    async def _lock_sign(self) -> Row | None:
        """Those who look have it locked for moments."""
        ends = self._env.now() + TRIES_FOR
        while True:
            row, is_busy = await self._locked_now(texts.MYSQL_LOCK_SIGN, self._row)
            if not is_busy or self._env.now() >= ends:
                return row
            await self._env.pause(TRY_EVERY)

    async def _reads(self, shown: int) -> bool:
        try:
            return await super().sees_the_present(shown)
        except Exception as error:
            if code_of(error) == _MADE_SINCE:
                return False
            raise

    def _written(self, key: str) -> Value:
        """In hexadecimal digits, whatever the character set of the connection."""
        return key.encode().hex()

    async def _attempt(self) -> Row | None:
        row, _ = await self._locked_now(self._texts.attempt, self._lock_value)
        return row

    async def _locked_now(self, sql: str, value: Mapping[str, Value]) -> tuple[Row | None, bool]:
        """The row, and whether somebody else may have it. Refused rather than skipped: who skips a row in REPEATABLE
        READ locks the gap behind it, for new names."""
        if self._rolls_back:
            row = await self._run(sql.replace("NOWAIT", "SKIP LOCKED"), value)
            return row, row is None
        try:
            return await self._run(sql, value), False
        except Exception as error:
            if code_of(error) in _BUSY:
                return None, True
            raise

    async def _wait(self, ends: float) -> Row | None:
        left = ends - self._env.now()
        if left >= TRIES_FOR and not self._rolls_back:
            return await self._wait_seconds(FOR_EVER_S if math.isinf(left) else math.floor(left) - 1)
        return await self._try_until(min(ends, self._env.now() + TRIES_FOR))

    async def _try_until(self, ends: float) -> Row | None:
        while (left := ends - self._env.now()) > 0:
            await self._env.pause(min(TRY_EVERY, left))
            if (row := await self._attempt()) is not None:
                return row
        return None

    async def _wait_seconds(self, seconds: int) -> Row | None:
        """The time-out is put back, unless the wait was cut short: then the driver ends the session, too."""
        await self._run(texts.MYSQL_SET_TIMEOUT, {"seconds": seconds})
        try:
            row = await self._wait_queued()
        except Exception as error:
            if code_of(error) not in _BUSY | _OUT_OF_TIME:
                with contextlib.suppress(Exception):
                    await self._run(texts.MYSQL_SET_TIMEOUT, {"seconds": self._timeout})
                raise
            row = None
        await self._run(texts.MYSQL_SET_TIMEOUT, {"seconds": self._timeout})
        return row


def _store_with_sessions(store: Store) -> SessionStore:
    if not isinstance(store, LeaseStore | SessionStore):
        raise ConfigurationError(
            "within() works only with a lock in a database: connect with postgresql://…?mode=row, "
            "postgresql://…?mode=advisory or mysql://…?mode=row. On this store use a lease: with lock.acquire() as "
            "lease"
        )
    if isinstance(store, LeaseStore) or (store.engine, store.mode) not in texts.TEXTS:
        kind = "a lease" if isinstance(store, LeaseStore) else "GET_LOCK"
        raise ConfigurationError(
            f"within() is not for ?mode={store.mode}: {kind} does not end with a transaction. Connect with ?mode=row"
        )
    return store


async def _checked_caller(connection: object, store: SessionStore, is_async: bool) -> CallerConnection:
    kind = full_name(type(connection))
    is_awaited = drivers.is_async(connection)
    if is_awaited is None:
        raise ConfigurationError(f"within() takes connections of {drivers.known(TRANSACTIONAL)}, not a {kind}")
    if is_awaited is not is_async:
        raise ConfigurationError(
            f"a {kind} is async: use a lock of connect_async()"
            if is_awaited
            else f"a {kind} would block the event loop: use a lock of connect(), or an async connection"
        )
    caller = await recognised(connection)
    if caller.engine != store.engine:
        raise ConfigurationError(
            f"the lock is in {store.engine}, but this connection is to {caller.engine}: use one database"
        )
    if not caller.keeps_transaction:
        raise ConfigurationError(
            "within() holds the lock until the transaction ends, but this connection is in autocommit mode: begin a "
            "transaction first"
        )
    return caller


def _old_snapshot(name: str, is_over: bool = False) -> ConfigurationError:
    is_rolled_back = " The server has rolled it back." if is_over else ""
    return ConfigurationError(
        f"this transaction took its snapshot before it got the lock {name!r}, so it would read old data (or its "
        f"connection is to another database than the lock's client).{is_rolled_back} Roll back, and call within() "
        "before you read anything in the transaction, or use READ COMMITTED"
    )
