"""What the stores on this machine tell about permits."""

from __future__ import annotations

from collections.abc import Iterable

from gripfast.core.ports import Kind, LockInfo, PermitHolder, PermitInfo
from gripfast.stores import holder
from gripfast.stores.granting import Now
from gripfast.stores.permits import Holder, Pool


def permit_info(
    name: str, kind: Kind, pool: Pool, holders: Iterable[Holder], waiters: int, now: Now
) -> PermitInfo | None:
    """None if nobody has a permit."""
    living = [each for each in holders if each.expires > now.clock and not now.is_gone(each.details)]
    if not living:
        return None
    shown = [_permit_holder(each, now) for each in sorted(living, key=lambda each: each.token)]
    return PermitInfo(name, kind, pool.limit, tuple(shown), waiters)


def _permit_holder(each: Holder, now: Now) -> PermitHolder:
    info = holder_info("", each, 0, now)
    return PermitHolder(
        each.owner, each.n, each.slots, each.token, info.label, info.host, info.pid, info.since, info.expires_in
    )


def holder_info(name: str, each: Holder, waiters: int, now: Now) -> LockInfo:
    """One of the holders, as that of a lock."""
    left = each.expires - now.clock
    details = holder.read_holder(each.details)
    return holder.lock_info(name, each.owner, each.token, details, each.since_us, left, waiters)
