"""Semaphores and read/write locks, loaded when the first one is used (`permit_protocol.py` has their transactions).

- A newcomer looks. If it may go in at once, one transaction creates its key, as a holder's. A try that may not leaves
  nothing. Otherwise its key joins the queue.
- A waiter is woken when it is worth to look again: a reader by the last writer before it, a writer by the key before
  its own, a waiter of a semaphore by the waiter before it. Only the first waiter of a semaphore watches all keys of the
  queue, because the end of any holder may be enough.
- A waiter that is woken only reads. It writes when its key needs a new lease, or when it may go in. So a write of one
  waiter does not make all those behind it write.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, cast

from gripfast.core import rules
from gripfast.core.ports import (
    RW_LIMIT,
    Claim,
    Granted,
    Hold,
    Kind,
    Loss,
    Share,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import StoreUnavailable
from gripfast.machine import boottime
from gripfast.stores import permit_queue
from gripfast.stores.etcd import permit_protocol, protocol
from gripfast.stores.etcd.leases import Lease, is_unknown_lease
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.messages import DeleteRangeRequest, TxnRequest, TxnResponse
from gripfast.stores.etcd.permit_protocol import Limit, Permit, Pool, View
from gripfast.stores.etcd.protocol import Place
from gripfast.stores.etcd.requests import failed
from gripfast.stores.etcd.watching import Watching, again_in
from gripfast.stores.faults import Fault

if TYPE_CHECKING:
    from gripfast.stores.etcd.store import EtcdStore

ROUNDS = 50
"""Of one claim: others may be faster as often."""
RACES = 3
"""Newcomers that were overtaken so often join the queue, where nobody passes them."""
FRESH = 0.75
"""Of a ttl: a waiter's key whose lease lasts for longer need not be written."""
LIMIT_KEPT = rules.TOKEN_MEMORY_US / 1e6
"""Seconds for which a limit stays in force though nobody takes permits."""
BELL_KEPT = 5.0
UNFIT_MOST = 50
"""Waiters that one transaction turns away."""


class EtcdPermits:
    """A part of `EtcdStore`."""

    def __init__(self, store: EtcdStore) -> None:
        self.store = store
        self.requests = store.requests

    def pool(self, name: str, kind: Kind) -> Pool:
        keys = self.requests.keys
        return Pool(kind, keys.queue(name, kind), keys.limit(name))

    # Claims -----------------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        store, requests = self.store, self.requests
        until, each = requests.until(), requests.each(claim.ttl)
        attempt = Attempt(self, claim, until, each)
        for _ in range(ROUNDS):
            if (refused := await requests.meet(until, each)) is not None:
                return refused
            attempt.record = store.record(claim)
            answer = await attempt.step()
            if answer is not None:
                return answer
        return unreachable(StoreUnavailable(f"the permits of {claim.name!r} changed during every attempt: try again"))

    async def look(self, pool: Pool, until: float, each: float = math.inf) -> View | Unreachable:
        answer = await self.requests.ask(TxnRequest((), pool.look(), ()), until, each)
        if isinstance(answer, Fault | Refusal):
            return failed(answer)
        return permit_protocol.read_view(pool.kind, answer.responses, answer.header.revision)

    async def limit_of(self, pool: Pool, limit: int, until: float) -> Limit | Unreachable:
        """What to write about it; a read/write lock has no limit to write."""
        if pool.kind == "rwlock":
            return Limit(RW_LIMIT, 0)
        lease = await self.requests.leases.for_claim(LIMIT_KEPT, until, self.requests.each(LIMIT_KEPT))
        return Limit(limit, lease.id) if isinstance(lease, Lease) else failed(lease)

    # Changes ----------------------------------------------------------------------------------------------------------

    async def downgrade(self, hold: Hold) -> Loss | Unreachable | None:
        """Its lease stays the same. What it has is lowered before that is requested: a renewal at the same time writes
        it as well."""
        record, until = self.store.records.get(hold.owner), self.requests.until()
        if record is None or record.place is None or record.lease is None:
            return "expired"
        if record.epoch != self.requests.cluster.epoch:
            return "session"
        record.found["n"] = 1
        while boottime() < until:
            request = protocol.move(record.place, record.held(hold.ttl), record.lease.id)
            answer = await self.requests.ask(request, until, self.requests.each(hold.ttl))
            if isinstance(answer, Fault | Refusal):
                return "expired" if self.requests.lost_lease(answer, record.lease) else failed(answer)
            moved = protocol.read_move(answer, record.place, answer.header.revision, 0, hold.owner)
            if moved is None:
                return await self.store.why(record, hold.owner, until)
            record.place = moved if isinstance(moved, Place) else protocol.place_of(moved)
            if isinstance(moved, Place) or moved.number("n", 0) == 1:
                return None
        return unreachable(StoreUnavailable(f"the permits of {hold.name!r} changed during every attempt"))

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        requests, until = self.requests, self.requests.until()
        if (refused := await requests.meet(until)) is not None:
            return refused
        pool = self.pool(name, "semaphore")
        while boottime() < until:
            view, new = await self.look(pool, until), await self.limit_of(pool, limit, until)
            if isinstance(view, Unreachable):
                return view
            if isinstance(new, Unreachable):
                return new
            unfit = [each for each in view.queue if each.waits and each.n > limit][:UNFIT_MOST]
            answer = await requests.ask(permit_protocol.resize(pool, view, new, unfit), until)
            if is_unknown_lease(answer):
                requests.leases.drop_for(LIMIT_KEPT)
                continue
            if isinstance(answer, Fault | Refusal):
                return failed(answer)
            if answer.succeeded and len(unfit) < UNFIT_MOST:
                return await self._ring(pool, until)
        return unreachable(StoreUnavailable(f"the permits of {name!r} changed during every attempt: try again"))

    async def _ring(self, pool: Pool, until: float) -> Unreachable | None:
        """The first waiter watches deletions in its queue. If it hears nothing, it looks by itself, later."""
        lease = await self.requests.leases.for_claim(BELL_KEPT, until, self.requests.each(BELL_KEPT))
        if not isinstance(lease, Lease):
            return failed(lease)
        for request in permit_protocol.ring(pool, lease.id):
            answer = await self.requests.ask(request, until)
            if isinstance(answer, Fault | Refusal):
                return failed(answer)
        return None


class Attempt:
    """One claim, step by step."""

    def __init__(self, permits: EtcdPermits, claim: Claim, until: float, each: float) -> None:
        self._permits = permits
        self._store = permits.store
        self._requests = permits.requests
        self._claim = claim
        self._share = _share(claim)
        self.record = permits.store.record(claim)
        self._pool = permits.pool(claim.name, self._share.kind)
        self._until = until
        self._each = each
        self._races = 0
        self._sent = 0.0

    async def step(self) -> Granted | Taken | Unreachable | None:
        """None if the next one may tell more."""
        self._sent = boottime()
        lease = await self._requests.leases.for_claim(self._claim.ttl, self._until, self._each)
        if not isinstance(lease, Lease):
            return failed(lease, was_sent=self.record.is_late)
        if self.record.token:
            return await self._date_again(lease)
        if self.record.place is None:
            return await self._come(lease)
        return await self._wait_on(lease, self.record.place)

    async def _send(self, request: TxnRequest, lease: Lease) -> TxnResponse | Unreachable | None:
        answer = await self._store.sent(self.record, request, lease, self._until, self._each)
        if self._requests.lost_lease(answer, lease):
            self._requests.leases.drop_for(LIMIT_KEPT)  # it was this one, perhaps: etcd does not say which
            return None
        if not self._store.is_known(self.record):
            return None
        return failed(answer) if isinstance(answer, Fault | Refusal) else cast(TxnResponse, answer)

    def _view(self, looked: Any, revision: int) -> View:
        return permit_protocol.read_view(self._pool.kind, looked, revision)

    async def _date_again(self, lease: Lease) -> Granted | Unreachable | None:
        """It has its permits, by a request that was not answered."""
        answer = await self._send(self.record.claim(lease, joins=False), lease)
        if answer is None or isinstance(answer, Unreachable):
            return answer
        outcome = self.record.read(answer, lease)
        if isinstance(outcome, protocol.Won):
            return self._won(outcome.revision, lease, self.record.found)
        if isinstance(outcome, protocol.Known):
            self.record.know(outcome.mine)
        else:
            self.record.gone()
        return None

    # Newcomers --------------------------------------------------------------------------------------------------------

    async def _come(self, lease: Lease) -> Granted | Taken | Unreachable | None:
        view = await self._permits.look(self._pool, self._until, self._each)
        if isinstance(view, Unreachable):
            return view
        if (place := view.place_of(self.record.key)) is not None:
            self.record.know(view.queue[place].entry)
            return None
        if self._share.kind == "semaphore" and view.limit not in (0, self._share.limit):
            return await self._give_up(Taken(None, 0, limit_in_force=view.limit))
        before = view.blocker(len(view.queue), self._share)
        if before is not None and self._claim.inbox is None:
            return await self._give_up(self._taken(view))
        limit = await self._permits.limit_of(self._pool, self._share.limit, self._until)
        if isinstance(limit, Unreachable):
            return limit
        if before is None and self._races < RACES:
            return await self._enter(view, lease, limit)
        return await self._join(view, lease, limit)

    async def _enter(self, view: View, lease: Lease, limit: Limit) -> Granted | Unreachable | None:
        self._races += 1
        found = self._as_holder(view)
        value = protocol.write(found)
        request = permit_protocol.enter(self._pool, view, self.record.key, value, lease.id, limit)
        answer = await self._send(request, lease)
        if answer is None or isinstance(answer, Unreachable):
            return answer
        return self._won(answer.header.revision, lease, found) if answer.succeeded else None

    async def _join(self, view: View, lease: Lease, limit: Limit) -> Granted | Taken | Unreachable | None:
        record = self.record
        waiting = record.value(waits=True)
        answer = await self._send(permit_protocol.join(self._pool, view, record.key, waiting, lease.id, limit), lease)
        if answer is None or isinstance(answer, Unreachable):
            return answer
        if not answer.succeeded:
            return None
        revision = answer.header.revision
        record.waits(Place(record.key, revision, revision), lease)
        return await self._decide(self._view(answer.responses[-2:], revision), lease)

    # Waiters ----------------------------------------------------------------------------------------------------------

    async def _wait_on(self, lease: Lease, place: Place) -> Granted | Taken | Unreachable | None:
        """Look again, and keep the key in the queue."""
        known = self.record.lease
        if known is not None and known.ends - boottime() > FRESH * self._claim.ttl:
            view = await self._permits.look(self._pool, self._until, self._each)
            if isinstance(view, Unreachable):
                return view
            return await self._decide(view, lease)
        waiting = self.record.value(waits=True)
        answer = await self._send(permit_protocol.stay(self._pool, place, waiting, lease.id), lease)
        if answer is None or isinstance(answer, Unreachable):
            return answer
        revision = answer.header.revision
        if answer.succeeded:
            self.record.waits(place._replace(mod=revision), lease)
        return await self._decide(self._view(answer.responses[-2:], revision), lease)

    async def _decide(self, view: View, lease: Lease) -> Granted | Taken | Unreachable | None:
        record, share = self.record, self._share
        at = view.place_of(record.key)
        if at is None:
            record.gone()
            return None
        mine = view.queue[at].entry
        if not mine.waits or protocol.place_of(mine) != record.place:  # by a request that was not answered
            record.know(mine)
            return None
        if share.n > view.limit > 0:
            return await self._give_up(Taken(None, 0, limit_in_force=view.limit))
        before = view.blocker(at, share)
        if before is None:
            return await self._take(view, lease)
        if self._claim.inbox is None:
            return await self._give_up(self._taken(view))
        return await self._watch(view, before)

    async def _take(self, view: View, lease: Lease) -> Granted | Unreachable | None:
        """None if others were faster."""
        record = self.record
        limit = await self._permits.limit_of(self._pool, view.limit or self._share.limit, self._until)
        if isinstance(limit, Unreachable):
            return limit
        assert record.place is not None
        found = self._as_holder(view)
        value = protocol.write(found)
        request = permit_protocol.grant(self._pool, view, record.place, self._share.n, value, lease.id, limit)
        answer = await self._send(request, lease)
        if answer is None or isinstance(answer, Unreachable):
            return answer
        return self._won(answer.header.revision, lease, found) if answer.succeeded else None

    async def _watch(self, view: View, before: Permit | str) -> Taken | Unreachable | None:
        link, record, pool, inbox = self._requests.link, self.record, self._pool, self._claim.inbox
        assert inbox is not None
        if isinstance(before, Permit):
            # A writer may become a reader, a waiter a holder: both are puts.
            changes = pool.kind == "semaphore" or (self._share.n == 1 and before.n == RW_LIMIT)
            trouble = await record.watching.of(link, before.key, view.revision, inbox, self._until, puts=changes)
        else:
            trouble = await record.watching.of(link, pool.queue, view.revision, inbox, self._until, is_prefix=True)
        if trouble is None and pool.kind == "semaphore":  # it may be turned away by a resize
            record.watching_itself = record.watching_itself or Watching()
            trouble = await record.watching_itself.of(link, record.key, view.revision, inbox, self._until)
        pace = again_in(self._claim.ttl)
        return self._taken(view)._replace(again_in=pace if trouble is None else min(1.0, pace))

    # What comes of it -------------------------------------------------------------------------------------------------

    def _as_holder(self, view: View) -> dict[str, Any]:
        """What the value of a holder's key tells; the record knows it when that is written."""
        found = self.record.found | {"since": int(time.time() * 1_000_000)}
        if self._share.kind == "semaphore":
            slots = permit_queue.free_slots(view.queue, view.limit or self._share.limit, self._share.n)
            found["slots"] = permit_queue.ranges_of(slots)
        return found

    def _won(self, revision: int, lease: Lease, found: dict[str, Any]) -> Granted:
        self.record.found = found
        granted = self.record.won(revision, lease, self._claim.ttl, self._sent)
        return granted._replace(slots=permit_protocol.read_slots([list(run) for run in found.get("slots", ())]))

    def _taken(self, view: View) -> Taken:
        holders = view.holders
        if not holders:
            return Taken(None, 0)
        info = protocol.info(self._claim.name, holders[0].entry, len(view.queue) - len(holders))
        return Taken(info, max(each.entry.token for each in holders))

    async def _give_up(self, answer: Taken) -> Taken | Unreachable:
        if self.record.place is not None or self.record.is_late:
            deleted = await self._requests.ask(DeleteRangeRequest(self.record.key), self._until, self._each)
            if isinstance(deleted, Fault | Refusal):
                return failed(deleted)
        if self.record.is_late:  # it may be created after this
            return answer._replace(may_follow=True)
        self._store.forget(self._claim.owner)
        return answer


def _share(claim: Claim) -> Share:
    assert claim.share is not None
    return claim.share
