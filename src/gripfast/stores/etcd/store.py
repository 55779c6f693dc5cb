"""The store, the same for sync and async: requests go out over a Link, which blocks or suspends.

What is sent, and why it holds, is in `protocol.py`; which lease of etcd's dates it, in `leases.py`.

- An uncontended claim is one transaction, and so is a release. Once in a twentieth of a ttl one of the claims gets a
  new lease before that.
- A waiter watches the key before its own, and reads again by itself (`watching.py`).
- A renewal puts many keys under a new lease. One that can't be moved costs no other.
- A claim that gets no answer is repeated, by the same owner id. If its caller gives up, a clean-up deletes the key of
  the owner. etcd carries out requests in any order, so for a while the clean-up is repeated.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gripfast import machine
from gripfast.core.ports import (
    Broken,
    Claim,
    Granted,
    Hold,
    Label,
    Loss,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import ClientClosed, Reason, StoreUnavailable
from gripfast.machine import boottime
from gripfast.stores.etcd import protocol
from gripfast.stores.etcd.inspection import Inspection
from gripfast.stores.etcd.leases import Lease, is_unknown_lease, whole
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.messages import KeyValue, RangeRequest, TxnRequest
from gripfast.stores.etcd.protocol import Busy, Entry, Gone, Known, Place, Waits, Won
from gripfast.stores.etcd.record import LATE, Record
from gripfast.stores.etcd.requests import Requests, failed
from gripfast.stores.etcd.spec import CAPABILITIES
from gripfast.stores.etcd.watching import again_in
from gripfast.stores.faults import Fault, may_take_effect
from gripfast.stores.with_permits import WithPermits

if TYPE_CHECKING:
    from gripfast.stores.etcd.keeping import Keeping
    from gripfast.stores.etcd.permit_inspection import PermitInspection
    from gripfast.stores.etcd.permits import EtcdPermits

ROUNDS = 20
"""Of one claim. Each has learned something that the one before did not know."""
MOVES_AGAIN = 3
"""Rounds of a renewal: a late request of our own may have changed the key meanwhile."""

Move = tuple[Hold, Record]


class EtcdStore(WithPermits):
    capabilities = CAPABILITIES

    def __init__(self, requests: Requests, records: dict[str, Record] | None = None) -> None:
        """`records`: those of another store of the same client, after which this one cleans up."""
        self.requests = requests
        self.records: dict[str, Record] = {} if records is None else records
        self.inbox = requests.link.inbox
        self._details = functools.lru_cache(maxsize=256)(_details_of_this_process)
        self._inspection = inspection = Inspection(requests)
        self.inspect, self.page, self.force_release = inspection.inspect, inspection.page, inspection.force_release

    # Claims -----------------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        answer = await (self._claim(claim) if claim.share is None else self._permits.claim(claim))
        record = self.records.get(claim.owner) if isinstance(answer, Unreachable) else None
        if record is not None and record.place is None and not record.is_late:
            self.forget(claim.owner)  # nothing of it is there, so nobody cleans up after it
        return answer

    async def _claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        requests, sent = self.requests, boottime()
        until, each = sent + requests.link.timeout, requests.each(claim.ttl)
        for _ in range(ROUNDS):
            if (refused := await requests.meet(until, each)) is not None:
                return refused
            record = self.record(claim)
            lease = await requests.leases.for_claim(claim.ttl, until, each)
            if not isinstance(lease, Lease):
                return failed(lease, was_sent=record.is_late)
            answer = await self._step(record, claim, lease, sent, until, each)
            if answer is not None:
                return answer
            sent = boottime()
        return unreachable(
            StoreUnavailable(f"{requests.link.where}: {claim.name!r} changed during every attempt: try again")
        )

    def record(self, claim: Claim) -> Record:
        """If it is of another cluster, it tells nothing."""
        record = self.records.get(claim.owner)
        return record if record is not None and self.is_known(record) else self.new_record(claim)

    def is_known(self, record: Record) -> bool:
        return record.epoch == self.requests.cluster.epoch

    def new_record(self, claim: Claim) -> Record:
        kind = None if claim.share is None else claim.share.kind
        keys = self.requests.keys
        queue, key = keys.queue(claim.name, kind), keys.own(claim.name, claim.owner, kind)
        epoch = self.requests.cluster.epoch
        wanted = {} if claim.share is None else {"n": claim.share.n}
        record = Record(claim.name, claim.owner, queue, key, epoch, self.details(claim) | wanted)
        self.records[claim.owner] = record
        return record

    def details(self, claim: Claim) -> dict[str, Any]:
        return self._details(claim.told, claim.ttl)

    async def _step(
        self, record: Record, claim: Claim, lease: Lease, sent: float, until: float, each: float
    ) -> Granted | Taken | Unreachable | None:
        """One transaction. None if the next one may tell more."""
        request = record.claim(lease, joins=claim.inbox is not None)
        answer = await self.sent(record, request, lease, until, each)
        if self.requests.lost_lease(answer, lease) or not self.is_known(record):
            return None
        if isinstance(answer, Fault | Refusal):
            return failed(answer)
        outcome = record.read(answer, lease)
        if isinstance(outcome, Won):
            return record.won(outcome.revision, lease, claim.ttl, sent)
        if isinstance(outcome, Waits):
            record.waits(outcome.place, lease)
            return await self._queued(record, claim, outcome, until)
        if isinstance(outcome, Busy):
            if not record.is_late:
                self.forget(claim.owner)
            taken = await self._taken(claim.name, outcome.first, outcome.waiters, until)
            return taken._replace(may_follow=record.is_late)
        if isinstance(outcome, Known) and outcome.mine.owner != claim.owner:  # it was left to a marker
            return await self._taken(claim.name, outcome.mine, 0, until)
        if isinstance(outcome, Known):
            record.know(outcome.mine)
        elif isinstance(outcome, Gone):
            record.gone()
        return None

    async def sent(self, record: Record, request: TxnRequest, lease: Lease, until: float, each: float) -> Any:
        """A claim's request. Until it is answered, it may take effect at any time."""
        was_late, record.is_late, began = record.is_late, True, boottime()
        try:
            told = await self.requests.ask_once(request, until, each)
        except BaseException:  # a cancel, an interrupt
            if boottime() - began > LATE:
                record.late_until = lease.ends
            raise
        if told.was_repeated or (isinstance(told.answer, Fault) and told.answer.was_sent):
            record.late_until = lease.ends
        else:
            record.is_late = was_late
        return told.answer

    async def _queued(self, record: Record, claim: Claim, outcome: Waits, until: float) -> Taken:
        taken = await self._taken(claim.name, outcome.first, outcome.waiters, until)
        taken = taken._replace(again_in=again_in(claim.ttl))
        if claim.inbox is None:
            return taken
        link, watching = self.requests.link, record.watching
        trouble = await watching.of(link, outcome.before, outcome.revision, claim.inbox, until)
        return taken if trouble is None else taken._replace(again_in=min(1.0, again_in(claim.ttl)))

    async def _taken(self, name: str, first: Entry, waiters: int, until: float) -> Taken:
        """How long a lease of another program lasts, only the server knows."""
        lease, left = first.kv.lease, None
        if lease and "ttl" not in first.found:
            left = (await self._inspection.seconds_left([first.kv], until))[lease]
        holder = protocol.info(name, first, waiters, left)
        return Taken(holder, holder.token)

    # Renewals ---------------------------------------------------------------------------------------------------------

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Loss | Unreachable | None]:
        until = boottime() + min(within, self.requests.link.timeout)
        results: dict[str, Loss | Unreachable | None] = {}
        groups: dict[int, list[Move]] = {}
        for hold in holds:
            record = self.records.get(hold.owner)
            if record is None or record.place is None:
                results[hold.owner] = "expired"
            elif record.epoch != self.requests.cluster.epoch:
                results[hold.owner] = "session"
            else:
                groups.setdefault(whole(hold.ttl), []).append((hold, record))
        for group in groups.values():
            try:
                await self._renew(group, results, until)
            except ClientClosed as closed:  # meanwhile
                results.update({hold.owner: unreachable(closed) for hold, _ in group})
        return [results[hold.owner] for hold in holds]

    async def _renew(self, group: list[Move], results: dict[str, Loss | Unreachable | None], until: float) -> None:
        """Those whose leases have as many whole seconds."""
        requests, ttls = self.requests, [hold.ttl for hold, _ in group]
        each = requests.each(min(ttls))
        lease = await requests.leases.for_renewal(max(ttls), until, each)
        if not isinstance(lease, Lease):
            results.update({hold.owner: failed(lease) for hold, _ in group})
            return
        for _ in range(MOVES_AGAIN):
            group = await self._move(group, lease, results, until, each)
            if not group:
                return
        busy = StoreUnavailable(f"{requests.link.where}: the keys changed during every attempt: try again")
        results.update({hold.owner: unreachable(busy) for hold, _ in group})

    async def _move(
        self, group: list[Move], lease: Lease, results: dict[str, Loss | Unreachable | None], until: float, each: float
    ) -> list[Move]:
        """Those that are to be moved once more."""
        sent = [_move(hold, record, lease) for hold, record in group]
        again: list[Move] = []
        for (hold, record), (answer, revision) in zip(group, await self._together(sent, until, each), strict=True):
            assert record.place is not None
            if isinstance(answer, Fault | Refusal):
                self.requests.lost_lease(answer, lease)
                results[hold.owner] = failed(answer)
            elif not self.is_known(record):  # this very answer has told so
                results[hold.owner] = "session"
            elif isinstance(moved := protocol.read_move(answer, record.place, revision, lease.id, hold.owner), Entry):
                record.place = protocol.place_of(moved)
                again.append((hold, record))
            elif isinstance(moved, Place):
                record.place, record.lease = moved, lease
                results[hold.owner] = None
            else:
                results[hold.owner] = await self.why(record, hold.owner, until)
        return again

    async def _together(
        self, changes: Sequence[TxnRequest], until: float, each: float = math.inf
    ) -> list[tuple[Any, int]]:
        """The answer to each, and its revision. A refusal does not say what is wrong with which: then each is sent
        alone, and the others go on."""
        batches = protocol.batches(changes)
        answers = await self._answers(batches, until, each)
        are_refused = [
            len(batch) > 1 and isinstance(answer, Refusal) and not is_unknown_lease(answer)
            for batch, answer in zip(batches, answers, strict=True)
        ]
        alone = [
            (change,) for batch, is_refused in zip(batches, are_refused, strict=True) if is_refused for change in batch
        ]
        later = iter(await self._answers(alone, until, each))
        found: list[tuple[Any, int]] = []
        for batch, answer, is_refused in zip(batches, answers, are_refused, strict=True):
            for place in range(len(batch)):
                its, at = (next(later), 0) if is_refused else (answer, place)
                is_told = not isinstance(its, Fault | Refusal)
                found.append((its.responses[at], its.header.revision) if is_told else (its, 0))
        return found

    async def _answers(self, batches: Sequence[Sequence[TxnRequest]], until: float, each: float) -> list[Any]:
        return await self.requests.ask_many([protocol.together(batch) for batch in batches], until, each)

    async def why(self, record: Record, owner: str, until: float) -> Loss:
        """The key is gone: what became of it?"""
        if (broken := await self._broken(record, owner, until)) is not None:
            return broken
        if boottime() >= record.ends:
            return "expired"
        return "broken" if self.is_known(record) else "session"  # the answer before this one may have told

    async def _broken(self, record: Record, owner: str, until: float) -> Loss | None:
        """Whoever released it by force has left a note."""
        answer = await self.requests.ask(RangeRequest(self.requests.keys.broken(record.name, owner)), until)
        if isinstance(answer, Fault | Refusal) or not answer.kvs:
            return None
        note = answer.kvs[0].value.decode(errors="replace")
        return Broken(note) if note else "broken"

    # Releases ---------------------------------------------------------------------------------------------------------

    async def release(self, hold: Hold) -> Loss | Unreachable | None:
        record, until = self.records.get(hold.owner), self.requests.until()
        if record is None or record.place is None:
            return await self._keeping.release_unknown(hold, until)
        if record.epoch != self.requests.cluster.epoch:
            self.forget(hold.owner)
            return "session"
        if hold.keep is not None:
            return await self._keeping.keep(hold, record, until)
        request = protocol.release(record.key, record.place.create)
        answer, was_repeated = await self.requests.ask_once(request, until, self.requests.each(hold.ttl))
        if isinstance(answer, Fault | Refusal):
            return failed(answer)
        if not answer.succeeded:
            # An earlier try of the same request may have deleted it.
            ask_why = self._broken if was_repeated else self.why
            if (loss := await ask_why(record, hold.owner, until)) is not None:
                self.forget(hold.owner)
                return loss
        return self._left(hold)

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        until = self.requests.until()
        troubles: dict[str, Unreachable | None] = {}
        if plain := [hold for hold in holds if not self._is_kept(hold)]:
            failures = await self._delete(plain, until)
            troubles = {hold.owner: failures.get(hold.owner) or self._left(hold) for hold in plain}
        for hold in holds:
            if hold.owner not in troubles:
                troubles[hold.owner] = await self._keeping.abandon(hold, until)
        return [troubles[hold.owner] for hold in holds]

    def _is_kept(self, hold: Hold) -> bool:
        record = self.records.get(hold.owner)
        return hold.keep is not None and record is not None and record.place is not None and bool(record.token)

    async def _delete(self, holds: Sequence[Hold], until: float) -> dict[str, Unreachable]:
        """Whatever these owners have; by owner, why not. What was left to a marker or an adopter is not theirs, so it
        has to be looked at before it is deleted, and deleted only if it is what was seen."""
        each = self.requests.each(min(hold.ttl for hold in holds))
        places = {hold.owner: self._place(hold) for hold in holds}
        failures: dict[str, Unreachable] = {}
        for _ in range(MOVES_AGAIN):
            changes = [protocol.delete(place) for place in places.values()]
            left: dict[str, Place] = {}
            for owner, (done, _) in zip(places, await self._together(changes, until, each), strict=True):
                if isinstance(done, Fault | Refusal):
                    failures[owner] = failed(done)
                elif not done.succeeded and (mine := self._own(owner, done.responses[0].kvs)) is not None:
                    left[owner] = protocol.place_of(mine)
            places = left
        busy = StoreUnavailable(f"{self.requests.link.where}: the keys changed during every attempt")
        return failures | {owner: unreachable(busy) for owner in places}

    def _own(self, owner: str, kvs: Sequence[KeyValue]) -> Entry | None:
        """The key, if it is to be deleted. One that was detached is, if the caller was not told so."""
        if (mine := protocol.still_mine(kvs, owner)) is not None:
            return mine
        record, mine = self.records.get(owner), protocol.detached(kvs, owner)
        if record is None or not record.is_detaching or mine is None:
            return None
        record.is_cleaned_up = True
        return mine if owner in self.records else None  # it was told meanwhile (`keeping.py`)

    def _place(self, hold: Hold) -> Place:
        """If it is not known whether the key is this owner's, none that fits: the answer tells."""
        record = self.records.get(hold.owner)
        if record is None or record.place is None or (record.is_adopted and not record.token):
            return Place(self._key(hold), -1, -1)
        return record.place

    def _key(self, hold: Hold) -> bytes:
        record = self.records.get(hold.owner)
        if record is not None:
            return record.key
        return self.requests.keys.own(hold.name, hold.owner, None if hold.share is None else hold.share.kind)

    def _left(self, hold: Hold) -> Unreachable | None:
        """Its key is deleted. A claim that was not answered may still create it anew."""
        record = self.records.get(hold.owner)
        if record is not None and record.may_take_effect(boottime()):
            return may_take_effect(hold.name)
        self.forget(hold.owner)
        return None

    def forget(self, owner: str) -> None:
        record = self.records.pop(owner, None)
        if record is not None:
            record.stop_watching()

    # Permits ----------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _permits(self) -> EtcdPermits:
        from gripfast.stores.etcd.permits import EtcdPermits  # which a lock does not need

        return EtcdPermits(self)

    @functools.cached_property
    def _permit_inspection(self) -> PermitInspection:
        from gripfast.stores.etcd.permit_inspection import PermitInspection

        return PermitInspection(self._permits, self._inspection)

    # Kept releases, hand-over -----------------------------------------------------------------------------------------

    @functools.cached_property
    def _keeping(self) -> Keeping:
        from gripfast.stores.etcd.keeping import Keeping  # which most locks do not need

        return Keeping(self)

    async def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss | Unreachable:
        return await self._keeping.adopt(hold, claim)

    async def detach(self, hold: Hold, token: int) -> Loss | Unreachable | None:
        return await self._keeping.detach(hold)

    # ------------------------------------------------------------------------------------------------------------------

    async def vouch(self, hold: Hold, pid: int) -> None:
        """etcd does not look at processes."""

    def look(self) -> Sequence[tuple[str, Reason]]:
        return ()

    def stop_waiting(self) -> None:
        self.requests.link.stop_waiting()

    async def close(self) -> None:
        await self.requests.link.close()


def _move(hold: Hold, record: Record, lease: Lease) -> TxnRequest:
    assert record.place is not None
    return protocol.move(record.place, record.held(hold.ttl), lease.id)


def _details_of_this_process(label: Label, ttl: float) -> dict[str, Any]:
    return protocol.details(label, machine.hostname(), os.getpid(), ttl)
