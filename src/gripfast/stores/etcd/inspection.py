"""What others see of the locks of a cluster, and do about them: inspect, list, force release."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gripfast.core.ports import Kind, LockInfo, Page, Unreachable, unreachable
from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.machine import boottime
from gripfast.stores.etcd import keys, protocol
from gripfast.stores.etcd.leases import Lease
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.messages import (
    KeyValue,
    LeaseTimeToLiveRequest,
    RangeRequest,
    RangeResponse,
    TxnRequest,
)
from gripfast.stores.etcd.protocol import Entry
from gripfast.stores.etcd.requests import Requests, failed
from gripfast.stores.faults import Fault

PAGE = 500
"""Keys that one request for names looks at."""
RANGES_MOST = 100
"""Queues that one transaction looks at."""
NOTE_KEPT = 600.0
"""Seconds. Its owner, if it lives, has read it long before."""
AGAIN = 10
"""Rounds of a force release: the holder may renew meanwhile."""


class Inspection:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        requests, until = self._requests, self._requests.until()
        if (refused := await requests.meet(until, writes=False)) is not None:
            return refused
        queue = await requests.ask(protocol.first_of(requests.keys.queue(name)), until)
        if isinstance(queue, Fault | Refusal):
            return failed(queue)
        return next(iter(await self._infos([name], [queue], until)), None)

    async def _infos(self, names: Sequence[str], queues: Sequence[RangeResponse], until: float) -> list[LockInfo]:
        """The first of a queue that still waits is no holder yet."""
        firsts = [
            (name, first, queue.total - 1)
            for name, queue in zip(names, queues, strict=True)
            if queue.kvs and not (first := protocol.entry(queue.kvs[0])).waits
        ]
        left = await self.seconds_left([first.kv for _, first, _ in firsts], until)
        return [
            protocol.info(name, first, waiters, left[first.kv.lease])
            for name, first, waiters in firsts
            if left.get(first.kv.lease) != 0.0
        ]

    async def seconds_left(self, kvs: Iterable[KeyValue], until: float) -> dict[int, float | None]:
        """By lease; None if that could not be learned. Many keys hang on one lease. Servers tell whole seconds that are
        surely left; what they do not tell is counted in."""
        leases = sorted({kv.lease for kv in kvs})
        asked = [lease for lease in leases if lease]
        answers = await self._requests.ask_many([LeaseTimeToLiveRequest(lease) for lease in asked], until)
        found: dict[int, float | None] = {lease: float("inf") for lease in leases}
        for lease, answer in zip(asked, answers, strict=True):
            is_told = not isinstance(answer, Fault | Refusal)
            found[lease] = float(max(0, min(answer.ttl + 1, answer.granted_ttl))) if is_told else None
        return found

    # Lists ------------------------------------------------------------------------------------------------------------

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        requests, until = self._requests, self._requests.until()
        if (refused := await requests.meet(until, writes=False)) is not None:
            return refused
        found = await self.names(prefix, after, until)
        if isinstance(found, Fault | Refusal):
            return failed(found)
        names, last = found
        infos: list[LockInfo] = []
        for start in range(0, len(names), RANGES_MOST):
            some = names[start : start + RANGES_MOST]
            looks = tuple(protocol.first_of(requests.keys.queue(name)) for name in some)
            answer = await requests.ask(TxnRequest((), looks, ()), until)
            if isinstance(answer, Fault | Refusal):
                return failed(answer)
            infos += await self._infos(some, answer.responses, until)
        return Page(infos, last)

    async def names(self, prefix: str, after: str | None, until: float, kind: Kind | None = None) -> Any:
        """Names of this kind that have a queue, and where the next ones start. Keys of other kinds stand between
        them."""
        start = self._requests.keys.start(prefix)
        begin = start if after is None else bytes.fromhex(after)
        end = keys.after(start) if start else b"\0"
        answer = await self._requests.ask(RangeRequest(begin or b"\0", end, limit=PAGE, keys_only=True), until)
        if isinstance(answer, Fault | Refusal):
            return answer
        found = dict.fromkeys(keys.queue_in(kv.key) for kv in answer.kvs)
        names = [name for queue in found if (name := self._requests.keys.name_in(queue, kind)) is not None]
        if not answer.more:
            return names, None
        last = answer.kvs[-1].key
        queue = keys.queue_in(last)
        is_in_one = len(queue) > len(self._requests.keys.root.encode())  # a limit, say, is not
        return names, (keys.after(queue) if is_in_one else last + b"\0").hex()

    # Force release ----------------------------------------------------------------------------------------------------

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        requests, until = self._requests, self._requests.until()
        if (refused := await requests.meet(until, writes=False)) is not None:
            return refused
        for _ in range(AGAIN):
            queue = await requests.ask(protocol.first_of(requests.keys.queue(name)), until)
            if isinstance(queue, Fault | Refusal):
                return failed(queue)
            if not queue.kvs or (first := protocol.entry(queue.kvs[0])).is_done:
                return False
            done = await self.remove(name, first, note, until)
            if done is not None:
                return done
        return unreachable(StoreUnavailable(f"the holder of {name!r} changed during every attempt: try again"))

    async def remove(self, name: str, found: Entry, note: str | None, until: float) -> bool | Unreachable | None:
        """None if the key has changed meanwhile. The note is left in the same step."""
        requests = self._requests
        lease = await requests.leases.for_claim(NOTE_KEPT, until, requests.each(NOTE_KEPT))
        if not isinstance(lease, Lease):
            return failed(lease)
        note_key = requests.keys.broken(name, found.owner)
        request = protocol.force_release(protocol.place_of(found), note_key, note, lease.id)
        answer, was_repeated = await requests.ask_once(request, until)
        if requests.lost_lease(answer, lease) and boottime() < until:
            return None
        if isinstance(answer, Fault | Refusal):
            trouble = failed(answer)
            if trouble.was_sent:
                what = f"{name!r} may or may not have been released: check whether it is still held"
                return trouble._replace(error=OutcomeUnknown(what, trouble.error.nodes))  # type: ignore[union-attr]
            return trouble
        return True if answer.succeeded or (was_repeated and answer.responses[0].kvs) else None
