"""The door to `lock.within(connection)`: what is behind it, in `stores/sql/within.py`, is loaded when it is used."""

from __future__ import annotations

from dataclasses import dataclass

from gripfast.core.lease import Want
from gripfast.core.ports import Env


@dataclass(frozen=True, slots=True)
class InTransaction:
    """A lock that is held until your transaction ends."""

    name: str
    token: int
    """The fencing token: larger than the tokens of all earlier holders."""


async def within(
    env: Env, want: Want, connection: object, wait: float | None, durable: bool, is_async: bool
) -> InTransaction:
    """Lock the name in the transaction of the connection. LockTimeout after `wait` seconds (None: never)."""
    from gripfast.stores.sql.within import lock_within

    return InTransaction(want.name, await lock_within(env, want, connection, wait, durable, is_async))
