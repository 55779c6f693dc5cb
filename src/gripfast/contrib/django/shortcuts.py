"""`lock()`, `async_lock()` and `within()`: locks by their names, in the stores of the setting `GRIPFAST`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gripfast.contrib.django.clients import DEFAULT, locks
from gripfast.contrib.django.conf import SETTING, entry
from gripfast.contrib.django.databases import connection_of
from gripfast.contrib.django.transactions import refuse_in_transaction
from gripfast.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Unpack

    from gripfast.api.aio.lease import AsyncLease
    from gripfast.api.aio.lock import AsyncLock
    from gripfast.api.lease import Lease
    from gripfast.api.lock import Lock
    from gripfast.api.typed import LockKwargs
    from gripfast.api.within import InTransaction


def lock(name: str, *, using: str = DEFAULT, in_atomic: bool = False, **settings: Unpack[LockKwargs[Lease]]) -> Lock:
    """A lock in the store `using`: `with lock("nightly"): …`. `settings` are those of `Client.lock`. Does no I/O, so
    make it where you use it.

    Inside `transaction.atomic()`, also that of `ATOMIC_REQUESTS`, it raises ConfigurationError: the lock would be
    released before the commit. With `in_atomic=True` it does not.
    """
    if not in_atomic:
        refuse_in_transaction(name)
    return locks[using].lock(name, **settings)


def async_lock(
    name: str, *, using: str = DEFAULT, in_atomic: bool = False, **settings: Unpack[LockKwargs[AsyncLease]]
) -> AsyncLock:
    """The same for async views: `async with async_lock("nightly"): …`."""
    if not in_atomic:
        refuse_in_transaction(name)
    return locks.async_lock(using, name, **settings)


def within(
    name: str,
    *,
    using: str = DEFAULT,
    database: str | None = None,
    wait: float | None = None,
    durable: bool = False,
    label: str | None = None,
) -> InTransaction:
    """Take the lock in the transaction that is open on Django's own connection; its commit or rollback releases it.

    Call it inside `transaction.atomic()`, before you read. The entry `using` needs a `DATABASE` with `MODE` `row` or,
    on PostgreSQL, `advisory`. `wait` is None for ever, or seconds until LockTimeout. With `durable`, it is refused if a
    rollback to a savepoint could release the lock (`Lock.within` has more).

    `database` is the alias of the connection, if it is not that of the entry: such as one that goes through pgbouncer
    to the same database.
    """
    known = entry(using)
    alias = database or known.database
    if alias is None:
        raise ConfigurationError(
            f"within() needs a database: give {SETTING}[{using!r}] a DATABASE and MODE 'row', or pass database=…"
        )
    connection: Any = connection_of(alias)
    if connection.vendor == "sqlite":
        raise ConfigurationError(
            "SQLite can't lock within a transaction: it has one writer at a time anyway. Take the lock outside, by "
            "`with lock(name)`"
        )
    if not connection.in_atomic_block:
        raise ConfigurationError(
            "within() holds the lock until the transaction ends, but none is open: call it inside `with "
            f"transaction.atomic({'' if alias == 'default' else repr(alias)}):`"
        )
    return locks[using].lock(name, label=label).within(connection, wait, durable=durable)
