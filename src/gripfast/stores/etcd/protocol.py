"""From our requests to etcd's transactions, and from its answers to our values. Pure.

The lock is held by the oldest key of the name's queue; the others wait, in the order of their creation. That is the
queue of `etcdctl lock`, too.

- A claim is one transaction. If the queue is empty, it is a grant. Otherwise a waiter's key is created, or, for a try,
  nothing.
- A waiter that may be the first asks by one transaction: if no key is older than its own, its key is put again, and
  that write is the grant.
- Whatever changes a key compares its create *and* mod revision. A request that arrives late finds another mod revision,
  and has no effect.
- Every answer that a lease is believed by is that of a write: also the branch of a transaction that only reads was
  agreed upon by a majority, if the other branch writes.

The token is the revision of the write that granted. Later writes keep it in the value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from gripfast.core import rules
from gripfast.core.kept import kept
from gripfast.core.ports import Label, LockInfo
from gripfast.stores import holder
from gripfast.stores.etcd import keys
from gripfast.stores.etcd.messages import (
    ASCEND,
    BY_CREATE,
    CREATE,
    DESCEND,
    EQUAL,
    GREATER,
    MOD,
    Compare,
    DeleteRangeRequest,
    KeyValue,
    PutRequest,
    RangeRequest,
    TxnRequest,
    TxnResponse,
)

MOVES_MOST = 125
"""Keys that one transaction moves: each counts as one operation, and has up to three of its own."""
BYTES_MOST = 1 << 20
"""Of one transaction: a member takes 1.5 MB, unless it was told otherwise."""


# -- values ------------------------------------------------------------------------------------------------------------


def details(label: Label, host: str, pid: int, ttl: float) -> dict[str, Any]:
    """What a key's value tells of its holder."""
    return {"host": host, "pid": pid, **holder.told(label), "ttl": ttl}


_as_json = json.JSONEncoder(ensure_ascii=False).encode
"""Made once: it costs more than what it does."""


def write(found: dict[str, Any], **more: Any) -> bytes:
    return _as_json(found | more if more else found).encode()


def waiting(value: bytes) -> bytes:
    """The same of one who waits."""
    return value[:-1] + b', "waits": true}'


class Entry(NamedTuple):
    """A key of a queue, as a server has shown it."""

    kv: KeyValue
    found: dict[str, Any]
    """Its value, if that is ours; other programs put there what they like."""

    @property
    def owner(self) -> str:
        """Of whoever has it now: it may have been adopted, or left to a marker."""
        owner = self.found.get("owner")
        return owner if isinstance(owner, str) else keys.owner_in(self.kv.key)

    @property
    def waits(self) -> bool:
        """It has not been granted yet. Those of other programs don't tell."""
        return self.found.get("waits") is True

    @property
    def is_detached(self) -> bool:
        return self.found.get("detached") is True

    @property
    def token(self) -> int:
        """The revision of the write that granted it: of the last one, unless that tells another."""
        return self.number("token", self.kv.mod_revision)

    @property
    def is_done(self) -> bool:
        return kept(self.owner) == "done"

    def number(self, name: str, default: int) -> int:
        found = self.found.get(name)
        return found if isinstance(found, int) and not isinstance(found, bool) else default


def entry(kv: KeyValue) -> Entry:
    return Entry(kv, holder.read_object(kv.value))


def info(name: str, found: Entry, waiters: int, expires_in: float | None = None) -> LockInfo:
    """`expires_in`: if a server was asked for that."""
    theirs = found.kv.value.decode(errors="replace") or None  # what `etcdctl elect` proposes, say
    details = holder.read_details(found.kv.value) or holder.Details("", theirs)
    since = found.found.get("since")
    ttl = found.found.get("ttl")
    most = float(ttl) if isinstance(ttl, int | float) and 0 <= ttl <= rules.KEEP_MAX else float("inf")
    left = most if expires_in is None else expires_in
    at = since if isinstance(since, int | float) else float("nan")
    return holder.lock_info(name, found.owner, found.token, details, at, left, waiters)


# -- claims ------------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a key is, and which write was its last one."""

    key: bytes
    create: int
    mod: int

    def is_mine(self) -> tuple[Compare, ...]:
        return Compare(CREATE, self.key, EQUAL, self.create), Compare(MOD, self.key, EQUAL, self.mod)


class Won(NamedTuple):
    revision: int


class Waits(NamedTuple):
    """A waiter's key is in the queue."""

    place: Place
    before: bytes
    """The key that has to be deleted before it is worth to look again."""
    first: Entry
    waiters: int
    revision: int


class Busy(NamedTuple):
    """There is no key of this owner."""

    first: Entry
    waiters: int


class Known(NamedTuple):
    """There is a key of this owner already, from a request that was not answered."""

    mine: Entry


class Gone(NamedTuple):
    """The owner's key is gone, or is another one than was known."""


def first_of(queue: bytes) -> RangeRequest:
    """Its `count` is that of the whole queue."""
    return RangeRequest(queue, keys.after(queue), limit=1, sort_order=ASCEND, sort_target=BY_CREATE)


def claim(queue: bytes, key: bytes, granted: bytes, waiting: bytes | None, lease: int) -> TxnRequest:
    """`waiting`: None for a try."""
    is_empty = Compare(CREATE, queue, EQUAL, 0, keys.after(queue))
    take = PutRequest(key, granted, lease)
    if waiting is None:
        return TxnRequest((is_empty,), (take,), (first_of(queue), RangeRequest(key)))
    is_new = Compare(CREATE, key, EQUAL, 0)
    join = TxnRequest((is_new,), (PutRequest(key, waiting, lease),), (RangeRequest(key),))
    last_two = RangeRequest(queue, keys.after(queue), limit=2, sort_order=DESCEND, sort_target=BY_CREATE)
    return TxnRequest((is_empty,), (take,), (first_of(queue), join, last_two))


def read_claim(answer: TxnResponse, key: bytes) -> Won | Waits | Busy | Known:
    revision = answer.header.revision
    if answer.succeeded:
        return Won(revision)
    first, own, *last_two = answer.responses
    mine = own.kvs if not last_two else () if own.succeeded else own.responses[0].kvs
    if mine:
        return Known(entry(mine[0]))
    if not last_two:
        return Busy(entry(first.kvs[0]), first.total - 1)
    before = next(kv for kv in last_two[0].kvs if kv.key != key)
    return Waits(Place(key, revision, revision), before.key, entry(first.kvs[0]), first.total, revision)


def advance(place: Place, queue: bytes, granted: bytes, waiting: bytes, lease: int) -> TxnRequest:
    """Of a waiter that may be the first by now. Otherwise its key is kept in the queue, under the new lease."""
    is_first = Compare(CREATE, queue, GREATER, place.create - 1, keys.after(queue))
    stay = TxnRequest(place.is_mine(), (PutRequest(place.key, waiting, lease),), (RangeRequest(place.key),))
    before = RangeRequest(
        queue,
        keys.after(queue),
        limit=1,
        sort_order=DESCEND,
        sort_target=BY_CREATE,
        max_create_revision=place.create - 1,
    )
    take = PutRequest(place.key, granted, lease)
    return TxnRequest((*place.is_mine(), is_first), (take,), (first_of(queue), stay, before))


def read_advance(answer: TxnResponse, place: Place) -> Won | Waits | Known | Gone:
    revision = answer.header.revision
    if answer.succeeded:
        return Won(revision)
    first, stay, before = answer.responses
    if not stay.succeeded:
        found = stay.responses[0].kvs
        return Known(entry(found[0])) if found else Gone()
    return Waits(place._replace(mod=revision), before.kvs[0].key, entry(first.kvs[0]), first.total - 1, revision)


# -- renewals ----------------------------------------------------------------------------------------------------------


def move(place: Place, value: bytes, lease: int) -> TxnRequest:
    """To another lease. Otherwise the answer tells what is there."""
    return TxnRequest(place.is_mine(), (PutRequest(place.key, value, lease),), (RangeRequest(place.key),))


def batches(transactions: Sequence[TxnRequest]) -> list[Sequence[TxnRequest]]:
    """No more of them together than a member takes."""
    made: list[list[TxnRequest]] = []
    size = BYTES_MOST
    for each in transactions:
        size += (its := _size(each))
        if size > BYTES_MOST or len(made[-1]) == MOVES_MOST:
            made.append([])
            size = its
        made[-1].append(each)
    return [*made]


def _size(change: TxnRequest) -> int:
    """About, in bytes, of what compares and changes one key."""
    (step,) = change.success
    return 100 + 4 * len(change.compare[0].key) + len(getattr(step, "value", b""))


def together(transactions: Sequence[TxnRequest]) -> TxnRequest:
    """Each of them succeeds or fails alone."""
    return TxnRequest((), tuple(transactions), ())


def read_move(answer: TxnResponse, place: Place, revision: int, lease: int, owner: str) -> Place | Entry | None:
    """Where it is now; or what is there instead, of the same owner; None if it is gone, or was left to a marker or an
    adopter. An earlier try of the same request may have moved it."""
    if answer.succeeded:
        return place._replace(mod=revision)
    mine = still_mine(answer.responses[0].kvs, owner)
    if mine is None or mine.waits or mine.kv.create_revision != place.create:
        return None  # what was granted waits again in a backup that was restored
    return place._replace(mod=mine.kv.mod_revision) if mine.kv.lease == lease else mine


def still_mine(kvs: Sequence[KeyValue], owner: str) -> Entry | None:
    """The owner's key, unless it was left to somebody else."""
    found = entry(kvs[0]) if kvs else None
    return found if found is not None and found.owner == owner and not found.is_detached else None


def detached(kvs: Sequence[KeyValue], owner: str) -> Entry | None:
    """What the owner has left to whoever has the text."""
    found = entry(kvs[0]) if kvs else None
    return found if found is not None and found.owner == owner and found.is_detached else None


# -- releases ----------------------------------------------------------------------------------------------------------


def release(key: bytes, create: int) -> TxnRequest:
    return TxnRequest((Compare(CREATE, key, EQUAL, create),), (DeleteRangeRequest(key),), (RangeRequest(key),))


def delete(place: Place) -> TxnRequest:
    """Only if nobody has written it since."""
    return TxnRequest(place.is_mine(), (DeleteRangeRequest(place.key),), (RangeRequest(place.key),))


def keep(place: Place, value: bytes, lease: int) -> TxnRequest:
    """Only if nobody has written it since: an earlier try that arrives late would put the marker back under the lease
    that was current then, and that may end at once."""
    return TxnRequest(place.is_mine(), (PutRequest(place.key, value, lease),), (RangeRequest(place.key),))


def force_release(place: Place, note_key: bytes, note: str | None, lease: int) -> TxnRequest:
    """The holder finds the note by its owner id. Who sends this twice finds it, too."""
    told = PutRequest(note_key, b"" if note is None else note.encode(), lease)
    return TxnRequest(place.is_mine(), (DeleteRangeRequest(place.key), told), (RangeRequest(note_key),))


def place_of(found: Entry) -> Place:
    kv = found.kv
    return Place(kv.key, kv.create_revision, kv.mod_revision)
