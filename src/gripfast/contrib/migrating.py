"""How whoever migrates waits for another who does, in Alembic and in Django: it tries again and again, with nothing
open on the server in between.

`CREATE INDEX CONCURRENTLY` waits for every transaction that has a snapshot. A waiter in the server's own queue has one,
so the holder would wait for the waiter, and the waiter for the holder.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

from gripfast import Client, Lease, LockInfo
from gripfast.errors import GripfastError, LockTimeout
from gripfast.machine import boottime

PAUSE = 0.5
"""Seconds between two tries, at most."""
TELL_EVERY = 30.0


def acquire_in_turns(
    client: Client, name: str, wait: float | None, tell: Callable[[LockInfo | None, float], None], **settings: Any
) -> Lease:
    """`tell` is called with the holder and the seconds waited so far: at once, and now and then. LockTimeout if the
    lock is not free after `wait` seconds; None is for ever."""
    lock = client.lock(name, wait=wait, **settings)
    started, tells_at = boottime(), 0.0
    while (lease := lock.try_acquire()) is None:
        waited = boottime() - started
        if wait is not None and waited >= wait:
            raise LockTimeout(name, waited, _holder(client, name))
        if waited >= tells_at:
            tell(_holder(client, name), waited)
            tells_at = waited + TELL_EVERY
        _pause(PAUSE if wait is None else min(PAUSE, wait - waited))
    return lease


def _holder(client: Client, name: str) -> LockInfo | None:
    """Only for a message: whether the store can be reached, the next try tells."""
    try:
        return client.inspect(name)
    except GripfastError:
        return None


def _pause(most: float) -> None:
    threading.Event().wait(most * random.uniform(0.5, 1.0))
