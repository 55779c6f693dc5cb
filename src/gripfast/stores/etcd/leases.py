"""Which lease of etcd's a key is put under, and what that is worth.

No lease is ever kept alive. A keep-alive is answered without a majority, and a leader that was replaced while its disk
stalled has revocations queued that take effect when it returns: they delete whatever hangs on the old lease, also if it
was kept alive meanwhile. So whoever needs more time grants a *new* lease, and puts its keys under that. An old one
expires by itself, with whatever was left on it.

A lease lives for `seconds` from the moment at which its grant was *sent*, at least: servers count from later on, and a
new leader begins anew. So a key that was written under it is there until then, unless somebody deletes it.

There is one current lease for each whole number of seconds. Claims share it while it is young: a grant that is dated by
it is less than a tenth of its ttl old. From a twentieth on, one of the claims gets the next lease. A renewal always
needs one that lasts for its whole ttl, from now on.

The id is made here. So whoever gets no answer, or comes while a grant is under way, requests the same lease again, and
is told that it exists. It is dated by the first request.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from gripfast.core import rules
from gripfast.machine import boottime
from gripfast.stores.etcd.faults import LEASE_EXISTS, LEASE_NOT_FOUND
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.messages import LeaseGrantRequest, LeaseGrantResponse
from gripfast.stores.faults import Fault

OLDEST = 0.1
"""How old the date of a claim may be, as a part of its ttl."""
EARLY = 0.05
"""From when on one of the claims gets the next lease, while the others go on with the current one."""

Ask = Callable[[Any, float, float], Awaitable[Any]]
"""Send a request: until when, and how long each try may take."""


class Lease(NamedTuple):
    id: int
    sent: float
    """On the boot clock."""
    seconds: int

    @property
    def ends(self) -> float:
        """Not before this moment."""
        return self.sent + self.seconds

    def date(self, ttl: float, now: float) -> float:
        """From when on a lease of ours that is put under this one now may count its ttl. It takes the drift of its own
        ttl off; a server's clock may be off by that of all the seconds."""
        return min(now, self.ends - rules.drift(self.seconds) - (ttl - rules.drift(ttl)))


class Leases:
    """Of one client. Any thread may use them: each step is one of the interpreter's own."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._current: dict[int, Lease] = {}
        self._requested: dict[int, Lease] = {}
        """Under way, as far as is known."""

    async def for_claim(self, ttl: float, until: float, each: float) -> Lease | Refusal | Fault:
        now, seconds = boottime(), whole(ttl)
        lease = self._current.get(seconds)
        if lease is None:
            return await self._grant(seconds, ttl, until, each)
        age = now - lease.date(ttl, now)
        if age <= EARLY * ttl:
            return lease
        if age <= OLDEST * ttl and seconds in self._requested:
            return lease
        return await self._grant(seconds, ttl, until, each)

    async def for_renewal(self, ttl: float, until: float, each: float) -> Lease | Refusal | Fault:
        """Dated by a moment that is not before this call."""
        now, seconds = boottime(), whole(ttl)
        lease = self._current.get(seconds)
        if lease is not None and lease.date(ttl, now) >= now:
            return lease
        return await self._grant(seconds, 0.0, until, each)

    def drop(self, lease: Lease) -> None:
        """The server does not know it."""
        for seconds, each in self._current.copy().items():
            if each.id == lease.id:
                self._current.pop(seconds, None)

    def drop_for(self, ttl: float) -> None:
        self._current.pop(whole(ttl), None)

    def drop_all(self) -> None:
        self._current.clear()
        self._requested.clear()

    async def _grant(self, seconds: int, ttl: float, until: float, each: float) -> Lease | Refusal | Fault:
        """`ttl`: a lease that was requested by somebody else may be as old as a claim of this ttl allows."""
        now = boottime()
        lease = self._requested.get(seconds)
        if lease is None or now - lease.sent > EARLY * ttl:
            lease = self._requested[seconds] = Lease(secrets.randbits(62) + 1, now, seconds)
        try:
            answer = await self._ask(LeaseGrantRequest(seconds, lease.id), until, each)
        finally:
            if self._requested.get(seconds) == lease:
                self._requested.pop(seconds, None)
        if isinstance(answer, LeaseGrantResponse):
            lease = lease._replace(seconds=max(seconds, answer.ttl))
        elif not (isinstance(answer, Refusal) and answer.message == LEASE_EXISTS):
            return answer  # type: ignore[no-any-return]
        current = self._current.get(seconds)
        if current is None or current.sent < lease.sent:
            self._current[seconds] = lease
        return lease


def whole(ttl: float) -> int:
    """Seconds: etcd counts no others."""
    return max(1, math.ceil(ttl))


def is_unknown_lease(answer: object) -> bool:
    """A put was refused because its lease has expired, or belongs to another cluster."""
    return isinstance(answer, Refusal) and answer.message == LEASE_NOT_FOUND
