"""What the stores on this machine tell about a row."""

from __future__ import annotations

from gripfast.core.ports import LockInfo
from gripfast.stores import holder
from gripfast.stores.granting import Now, Row, is_free

PAGE = 100
"""Names looked at for one page of a list."""


def lock_info(name: str, row: Row, waiters: int, now: Now) -> LockInfo | None:
    """None if nobody holds it."""
    if row.owner is None or is_free(row, now):
        return None
    left = row.expires - now.clock
    return holder.lock_info(name, row.owner, row.token, holder.read_holder(row.details), row.since_us, left, waiters)
