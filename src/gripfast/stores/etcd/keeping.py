"""Releases that leave the name taken, and locks that pass from one client to another.

Both write the holder's own key, so it stays the first of its queue, and everybody goes on waiting behind it. Its value
names the new owner: a marker (`core/kept.py`), or whoever has adopted it.

*Kept.* The key is put under a lease of its own, which nobody renews. A cluster that changes its leader counts leases
anew, so a name stays taken for at least as long as was requested.

*Detached.* The value says so. Only such a key can be adopted. So a claim of the old owner that was not answered, and
that takes effect when the lease is over, brings back nothing that anybody could adopt.

If it is not known whether a key was detached, nobody gets the text, and the clean-up deletes the key either way. A
request that arrives behind it finds no key. A clean-up may also be that of a client that is closed by another thread
meanwhile. Then either it finds no record any more, and leaves the key to its adopter; or `detach` finds the mark of the
clean-up, and fails.

*Adopted.* One transaction, by the create and mod revision that were seen: of two that adopt, one finds another mod
revision. Its revision is the token. A repeated request finds the new owner in the value.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gripfast.core.kept import kept
from gripfast.core.ports import Claim, Granted, Hold, Loss, Unreachable, unreachable
from gripfast.errors import StoreUnavailable
from gripfast.machine import boottime
from gripfast.stores.etcd import protocol
from gripfast.stores.etcd.leases import Lease
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.protocol import Entry, Place
from gripfast.stores.etcd.record import Record
from gripfast.stores.etcd.requests import failed
from gripfast.stores.faults import Fault

if TYPE_CHECKING:
    from gripfast.stores.etcd.store import EtcdStore

AGAIN = 3
"""Rounds: a late renewal of our own may have changed the key meanwhile."""


class Keeping:
    """A part of `EtcdStore`."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self._requests = store.requests

    # Kept releases ----------------------------------------------------------------------------------------------------

    async def keep(self, hold: Hold, record: Record, until: float) -> Loss | Unreachable | None:
        requests, marker = self._requests, hold.keep
        assert marker is not None
        assert record.place is not None
        each = requests.each(hold.ttl)
        lease = await requests.leases.for_renewal(marker.seconds, until, each)
        if not isinstance(lease, Lease):
            return failed(lease)
        value = protocol.write(
            {"owner": marker.owner, "ttl": marker.seconds, "since": _now_us(), "token": record.token},
            host="", pid=0, label=record.found.get("label"),
        )  # fmt: skip
        was_repeated = False
        for _ in range(AGAIN):
            request = protocol.keep(record.place, value, lease.id)
            answer, again = await requests.ask_once(request, until, each)
            was_repeated |= again
            requests.lost_lease(answer, lease)
            if isinstance(answer, Fault | Refusal):
                return failed(answer)
            moved = protocol.read_move(answer, record.place, answer.header.revision, 0, hold.owner)
            if isinstance(moved, Entry):
                record.place = protocol.place_of(moved)
                continue
            loss: Loss | None = None
            if moved is None and not _is_of(answer.responses[0].kvs, marker.owner):
                # The first of two may have done it, and the rest of a min_hold be over since. A "done" lasts longer.
                is_over = was_repeated and kept(marker.owner) == "min_hold"
                loss = None if is_over else await self._store.why(record, hold.owner, until)
            self._store.forget(hold.owner)
            return loss
        return self._restless(hold.name, "so it is released later")

    async def release_unknown(self, hold: Hold, until: float) -> Loss | Unreachable | None:
        """Of an owner that this client has no record of: a "done" that is to be forgotten. Whoever has recorded it may
        do that once more meanwhile."""
        while True:
            first = await self._first(hold.name, until)
            if isinstance(first, Unreachable):
                return first
            if first is None or first.owner != hold.owner:
                return "expired"
            answer, was_repeated = await self._requests.ask_once(protocol.delete(protocol.place_of(first)), until)
            if isinstance(answer, Fault | Refusal):
                return failed(answer)
            if answer.succeeded or (was_repeated and not answer.responses[0].kvs):
                return None

    async def abandon(self, hold: Hold, until: float) -> Unreachable | None:
        """Of what is to be kept."""
        record = self._store.records.get(hold.owner)
        if record is not None:
            record.is_cleaned_up = True
        if record is None or hold.owner not in self._store.records:
            return None  # it was released or detached meanwhile
        answer = await self.keep(hold, record, until)
        return answer if isinstance(answer, Unreachable) else None

    # Hand-over --------------------------------------------------------------------------------------------------------

    async def detach(self, hold: Hold) -> Loss | Unreachable | None:
        record, until = self._store.records.get(hold.owner), self._requests.until()
        if record is None or record.place is None or record.lease is None:
            return "expired"
        if record.epoch != self._requests.cluster.epoch:
            return "session"
        value = protocol.write(record.found, token=record.token, ttl=hold.ttl, detached=True)
        record.is_detaching = True
        for _ in range(AGAIN):
            request = protocol.move(record.place, value, record.lease.id)
            answer = await self._requests.ask(request, until, self._requests.each(hold.ttl))
            if self._requests.lost_lease(answer, record.lease):
                return "expired"
            if isinstance(answer, Fault | Refusal):
                return failed(answer)
            if not self._store.is_known(record):  # whoever got the text could adopt nothing, or what others hold
                return "session"
            moved = protocol.read_move(answer, record.place, answer.header.revision, 0, hold.owner)
            if isinstance(moved, Entry):
                record.place = protocol.place_of(moved)
                continue
            if moved is None and not _is_detached(answer.responses[0].kvs, record.place):
                loss = await self._store.why(record, hold.owner, until)
                return loss if hold.owner in self._store.records else "released"  # cleaned up meanwhile
            self._store.forget(hold.owner)
            if record.is_cleaned_up:
                self._store.records[hold.owner] = record
                return "released"
            return None
        return self._restless(hold.name, "so it is released: acquire it again")

    def _restless(self, name: str, then: str) -> Unreachable:
        words = f"{name!r} changed during every attempt, {then}"
        return unreachable(StoreUnavailable(f"{self._requests.link.where}: {words}"))

    async def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss | Unreachable:
        requests, sent = self._requests, boottime()
        until, each = sent + requests.link.timeout, requests.each(claim.ttl)
        if (refused := await requests.meet(until, each)) is not None:
            return refused
        first = await self._first(hold.name, until)
        if isinstance(first, Unreachable):
            return first
        if first is None or first.owner not in (hold.owner, claim.owner):
            loss = await self._why_not(hold, until)
            return "taken" if first is not None and loss == "expired" else loss
        is_mine = first.owner == claim.owner
        if not is_mine and not first.is_detached:
            return "taken"
        lease = await requests.leases.for_claim(claim.ttl, until, each)
        if not isinstance(lease, Lease):
            return failed(lease)
        record = self._record(first, claim)
        record.token = first.token if is_mine else 0
        return await self._take(record, lease, claim, sent, until, each)

    def _record(self, first: Entry, claim: Claim) -> Record:
        record = self._store.new_record(claim)
        record.key, record.place, record.is_adopted = first.kv.key, protocol.place_of(first), True
        record.found |= {"owner": claim.owner, "since": _now_us()}
        return record

    async def _take(
        self, record: Record, lease: Lease, claim: Claim, sent: float, until: float, each: float
    ) -> Granted | Loss | Unreachable:
        assert record.place is not None
        value = record.held(claim.ttl) if record.token else record.value()
        answer = await self._store.sent(record, protocol.move(record.place, value, lease.id), lease, until, each)
        if isinstance(answer, Fault | Refusal):
            self._requests.lost_lease(answer, lease)
            return failed(answer)
        if not self._store.is_known(record):  # the next try tells what this cluster has
            return unreachable(StoreUnavailable(f"{self._requests.link.where} is another cluster now: try again"))
        moved = protocol.read_move(answer, record.place, answer.header.revision, lease.id, claim.owner)
        if isinstance(moved, Place):
            # An earlier try of the same request may have done it: its write is the one that counts.
            return record.won(moved.mod, lease, claim.ttl, sent)
        self._store.forget(claim.owner)
        return "taken"

    async def _why_not(self, hold: Hold, until: float) -> Loss:
        """Of a former owner that this client has no record of."""
        record = Record(hold.name, hold.owner, b"", b"", 0, {})
        return await self._store.why(record, hold.owner, until)

    async def _first(self, name: str, until: float) -> Entry | Unreachable | None:
        answer = await self._requests.ask(protocol.first_of(self._requests.keys.queue(name)), until)
        if isinstance(answer, Fault | Refusal):
            return failed(answer)
        return protocol.entry(answer.kvs[0]) if answer.kvs else None


def _is_of(kvs: Any, owner: str) -> bool:
    return bool(kvs) and protocol.entry(kvs[0]).owner == owner


def _is_detached(kvs: Any, place: Place) -> bool:
    """By an earlier try of the same request."""
    return bool(kvs) and kvs[0].create_revision == place.create and protocol.entry(kvs[0]).is_detached


def _now_us() -> int:
    return int(time.time() * 1_000_000)
