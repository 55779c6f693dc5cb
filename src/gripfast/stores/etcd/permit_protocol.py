"""What is kept of semaphores and read/write locks, and the transactions about them: all pure.

The queue of a name has the keys of its holders and waiters, in the order of their creation. The value of each says how
many permits it wants or has (`n`), and, of a semaphore's holder, which (`slots`, as runs: the first and the last).
Whether a key may have permits follows from those before it (`stores/permit_queue.py`). That is true of a semaphore only
as long as nobody else gets some, and as long as the limit stays the same. So who takes slots compares the mod revision
of the key with the limit, and writes that key again.

- A reader goes in if no writer is before it: those that are there can only become fewer. Nothing is to be compared but
  its own key.
- A writer goes in if nobody is before it.
- A newcomer that may go in at once creates its key in the same step, if no key was created since it looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gripfast.core.ports import RW_LIMIT, Kind, LockInfo, PermitHolder, Share
from gripfast.stores import permit_queue
from gripfast.stores.etcd import keys, protocol
from gripfast.stores.etcd.messages import (
    ASCEND,
    BY_CREATE,
    CREATE,
    EQUAL,
    GREATER,
    LESS,
    MOD,
    VALUE,
    Compare,
    DeleteRangeRequest,
    KeyValue,
    Op,
    PutRequest,
    RangeRequest,
    RangeResponse,
    TxnRequest,
)
from gripfast.stores.etcd.protocol import Entry, Place

BELL = b"%bell"
"""The end of a key that is created and deleted in a semaphore's queue, to wake its first waiter. No owner is called
so."""


class Permit(NamedTuple):
    """A holder or a waiter."""

    entry: Entry
    n: int
    slots: tuple[int, ...] = ()

    @property
    def key(self) -> bytes:
        return self.entry.kv.key

    @property
    def waits(self) -> bool:
        return self.entry.waits


def permit(kv: KeyValue) -> Permit | None:
    """None if it is not ours."""
    found = protocol.entry(kv)
    n = found.number("n", 0)
    slots = () if found.waits else read_slots(found.found.get("slots"))
    return Permit(found, n, slots) if n > 0 else None


def read_slots(runs: Any) -> tuple[int, ...]:
    """Whoever can write to the cluster can write anything there."""
    if not isinstance(runs, list) or not all(_is_run(run) for run in runs):
        return ()
    return tuple(slot for low, high in runs for slot in range(low, high + 1))


def _is_run(run: Any) -> bool:
    return isinstance(run, list) and len(run) == 2 and all(type(end) is int and 0 <= end < RW_LIMIT for end in run)


class Pool(NamedTuple):
    """The keys of a name."""

    kind: Kind
    queue: bytes
    limit_key: bytes

    def look(self) -> tuple[Op, ...]:
        queue = RangeRequest(self.queue, keys.after(self.queue), sort_order=ASCEND, sort_target=BY_CREATE)
        return queue, RangeRequest(self.limit_key)

    @property
    def bell(self) -> bytes:
        return self.queue + BELL


class View(NamedTuple):
    """A name at one revision."""

    queue: Sequence[Permit]
    limit: int
    """0 if there is none yet."""
    version: int
    """The revision of the last write of its limit."""
    revision: int

    def place_of(self, key: bytes) -> int | None:
        return next((place for place, each in enumerate(self.queue) if each.key == key), None)

    @property
    def holders(self) -> list[Permit]:
        return [each for each in self.queue if not each.waits]

    def blocker(self, place: int, share: Share) -> Permit | str | None:
        return permit_queue.waits_for(self.queue, place, share.n, self.limit or share.limit)


def read_view(kind: Kind, looked: Sequence[RangeResponse], revision: int) -> View:
    queue, limit = looked
    found = [each for kv in queue.kvs if (each := permit(kv)) is not None]
    if kind == "rwlock":
        return View(found, RW_LIMIT, 0, revision)
    text = limit.kvs[0].value if limit.kvs else b""
    in_force = int(text) if text.isdigit() and len(text) < 10 else 0
    return View(found, in_force, limit.kvs[0].mod_revision if limit.kvs else 0, revision)


# -- transactions ------------------------------------------------------------------------------------------------------


class Limit(NamedTuple):
    """What is written about a semaphore's limit, and under which lease."""

    limit: int
    lease: int

    def put(self, pool: Pool) -> tuple[Op, ...]:
        return (PutRequest(pool.limit_key, b"%d" % self.limit, self.lease),) if pool.kind == "semaphore" else ()


def _is_version(pool: Pool, view: View) -> tuple[Compare, ...]:
    return (Compare(MOD, pool.limit_key, EQUAL, view.version),) if pool.kind == "semaphore" else ()


def enter(pool: Pool, view: View, key: bytes, granted: bytes, lease: int, limit: Limit) -> TxnRequest:
    """Of a newcomer that may go in, as it was seen."""
    is_new = Compare(CREATE, key, EQUAL, 0)
    nobody_came = Compare(CREATE, pool.queue, LESS, view.revision + 1, keys.after(pool.queue))
    compares = (is_new, nobody_came, *_is_version(pool, view))
    return TxnRequest(compares, (PutRequest(key, granted, lease), *limit.put(pool)), ())


def join(pool: Pool, view: View, key: bytes, waiting: bytes, lease: int, limit: Limit) -> TxnRequest:
    """Of a newcomer that has to wait. The view is in the answer."""
    is_new = Compare(CREATE, key, EQUAL, 0)
    compares: tuple[Compare, ...] = (is_new,)
    puts: tuple[Op, ...] = (PutRequest(key, waiting, lease),)
    if pool.kind == "semaphore" and view.version:
        compares = (is_new, Compare(VALUE, pool.limit_key, EQUAL, b"%d" % view.limit))
    elif pool.kind == "semaphore":
        compares = (is_new, Compare(CREATE, pool.limit_key, EQUAL, 0))
        puts = (*puts, *limit.put(pool))
    return TxnRequest(compares, (*puts, *pool.look()), ())


def stay(pool: Pool, place: Place, waiting: bytes, lease: int) -> TxnRequest:
    """A waiter's key is put under another lease. The view is in the answer, whatever became of it."""
    return TxnRequest(place.is_mine(), (PutRequest(place.key, waiting, lease), *pool.look()), pool.look())


def grant(pool: Pool, view: View, place: Place, n: int, granted: bytes, lease: int, limit: Limit) -> TxnRequest:
    """To a waiter that may go in, as it was seen."""
    compares = (*place.is_mine(), *_is_version(pool, view))
    if n == RW_LIMIT:
        compares = (*compares, Compare(CREATE, pool.queue, GREATER, place.create - 1, keys.after(pool.queue)))
    return TxnRequest(compares, (PutRequest(place.key, granted, lease), *limit.put(pool)), ())


def resize(pool: Pool, view: View, limit: Limit, unfit: Sequence[Permit]) -> TxnRequest:
    """Waiters that want more than the limit lose their keys."""
    gone = tuple(protocol.delete(protocol.place_of(each.entry)) for each in unfit)
    return TxnRequest(_is_version(pool, view), (*limit.put(pool), *gone), ())


def ring(pool: Pool, lease: int) -> tuple[PutRequest, DeleteRangeRequest]:
    return PutRequest(pool.bell, b"", lease), DeleteRangeRequest(pool.bell)


# -- what is told ------------------------------------------------------------------------------------------------------


def permit_holder(each: Permit, info: LockInfo) -> PermitHolder:
    return PermitHolder(
        each.entry.owner, each.n, each.slots, info.token, info.label, info.host, info.pid, info.since, info.expires_in
    )
