"""What the stores on this machine tell about a row."""

from __future__ import annotations

from gripfast.core.ports import LockInfo
from gripfast.stores.card import read_card, read_moment
from gripfast.stores.settle import Now, Row, is_free

PAGE = 100
"""Names looked at for one page of a list."""


def lock_info(name: str, row: Row, waiters: int, now: Now) -> LockInfo | None:
    """None if nobody holds it."""
    if row.owner is None or is_free(row, now):
        return None
    card = read_card(row.card)
    return LockInfo(
        name=name,
        owner=row.owner,
        token=row.token,
        label=card.label,
        host=card.host,
        pid=card.pid,
        since=read_moment(row.since_us),
        expires_in=row.expires - now.clock,
        waiters=waiters,
    )
