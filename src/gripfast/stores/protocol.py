"""What the stores on this machine tell about a row."""

from __future__ import annotations

from gripfast.core.ports import LockInfo
from gripfast.stores.granting import Now, Row, is_free
from gripfast.stores.holder import read_holder, read_moment

PAGE = 100
"""Names looked at for one page of a list."""


def lock_info(name: str, row: Row, waiters: int, now: Now) -> LockInfo | None:
    """None if nobody holds it."""
    if row.owner is None or is_free(row, now):
        return None
    holder = read_holder(row.details)
    return LockInfo(
        name=name,
        owner=row.owner,
        token=row.token,
        label=holder.label,
        host=holder.host,
        pid=holder.pid,
        since=read_moment(row.since_us),
        expires_in=row.expires - now.clock,
        waiters=waiters,
    )
