"""What a log of requests makes of an empty etcd: keys, leases, revisions and what watches are told. Pure.

Every member applies the same log, so all members that have applied as much of it have the same. Time is not in here:
when a lease is to be revoked, a leader decides (`lessor`), and the revocation is a request like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gripfast.stores.etcd.faults import (
    FAILED_PRECONDITION,
    LEASE_EXISTS,
    LEASE_NOT_FOUND,
    NOT_FOUND,
    OUT_OF_RANGE,
)
from gripfast.stores.etcd.messages import (
    ASCEND,
    BY_CREATE,
    BY_KEY,
    BY_MOD,
    BY_VALUE,
    BY_VERSION,
    CREATE,
    DELETE,
    DESCEND,
    EQUAL,
    GREATER,
    LEASE,
    LESS,
    MOD,
    NONE,
    NOT_EQUAL,
    PUT,
    VALUE,
    VERSION,
    CompactionRequest,
    CompactionResponse,
    Compare,
    DeleteRangeRequest,
    DeleteRangeResponse,
    Event,
    KeyValue,
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse,
    PutRequest,
    PutResponse,
    RangeRequest,
    RangeResponse,
    ResponseHeader,
    TxnRequest,
    TxnResponse,
)

COMPACTED = "etcdserver: mvcc: required revision has been compacted"
FUTURE = "etcdserver: mvcc: required revision is a future revision"
ALL = b"\0"
"""As the end of a range: there is none."""


class Refused(Exception):
    """Nothing was done."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _Path(NamedTuple):
    """A transaction whose compares, and those of its nested ones, are decided."""

    succeeded: bool
    ops: tuple[Any, ...]


@dataclass(slots=True)
class Lease:
    ttl: int
    keys: dict[bytes, None] = field(default_factory=dict)


class State:
    def __init__(self, least_ttl: int = 1) -> None:
        self.revision = 1
        self.compacted = 0
        self.keys: dict[bytes, KeyValue] = {}
        self.leases: dict[int, Lease] = {}
        self.events: list[Event] = []
        """Of all revisions, compacted or not."""
        self._least_ttl = least_ttl
        self._has_written = False
        """In the request that is being carried out."""

    def copy(self) -> State:
        other = State(self._least_ttl)
        other.revision, other.compacted = self.revision, self.compacted
        other.keys, other.events = dict(self.keys), list(self.events)
        other.leases = {number: Lease(lease.ttl, dict(lease.keys)) for number, lease in self.leases.items()}
        return other

    def as_of(self, revision: int) -> State:
        """What it was then, to be read."""
        other = State(self._least_ttl)
        other.revision, other.compacted = revision, min(self.compacted, revision)
        other.events = [event for event in self.events if event.kv.mod_revision <= revision]
        other.keys = other._keys_at(revision) or {}
        return other

    def do(self, request: Any) -> Any:
        """Its response. Raises Refused."""
        self._has_written = False
        response = DOES[type(request)](self, request)
        if self._has_written:
            self.revision += 1
        return response

    @property
    def _header(self) -> ResponseHeader:
        """Of what is carried out now."""
        return ResponseHeader(revision=self.revision + self._has_written)

    # Reading ------------------------------------------------------------------------------------------------------

    def within(self, key: bytes, range_end: bytes, keys: dict[bytes, KeyValue] | None = None) -> list[KeyValue]:
        """In the order of their keys."""
        keys = self.keys if keys is None else keys
        if not range_end:
            return [keys[key]] if key in keys else []
        return [keys[each] for each in sorted(keys) if each >= key and (range_end == ALL or each < range_end)]

    def _range(self, request: RangeRequest) -> RangeResponse:
        found = self.within(request.key, request.range_end, self._keys_at(request.revision))
        total = len(found)
        if request.count_only:
            return RangeResponse(self._header, (), False, total)
        found = _sorted([kv for kv in found if _fits(request, kv)], request)
        has_more = 0 < request.limit < len(found)
        found = found[: request.limit] if has_more else found
        if request.keys_only:
            found = [kv._replace(value=b"") for kv in found]
        return RangeResponse(self._header, tuple(found), has_more, total)

    def _keys_at(self, revision: int) -> dict[bytes, KeyValue] | None:
        if revision <= 0:
            return None
        if revision > self.revision + self._has_written:
            raise Refused(OUT_OF_RANGE, FUTURE)
        if revision < self.compacted:
            raise Refused(OUT_OF_RANGE, COMPACTED)
        keys: dict[bytes, KeyValue] = {}
        for event in self.events:
            if event.kv.mod_revision > revision:
                break
            if event.type == PUT:
                keys[event.kv.key] = event.kv
            else:
                keys.pop(event.kv.key, None)
        return keys

    def _time_to_live(self, request: LeaseTimeToLiveRequest) -> LeaseTimeToLiveResponse:
        """Without the time that is left: a leader knows that."""
        lease = self.leases.get(request.id)
        if lease is None:
            return LeaseTimeToLiveResponse(self._header, request.id, -1)
        keys = tuple(sorted(lease.keys)) if request.keys else ()
        return LeaseTimeToLiveResponse(self._header, request.id, lease.ttl, lease.ttl, keys)

    def events_from(self, revision: int) -> Iterator[Event]:
        """What a watch that starts there is told first."""
        return (event for event in self.events if event.kv.mod_revision >= revision)

    # Writing ------------------------------------------------------------------------------------------------------

    def _put(self, request: PutRequest) -> PutResponse:
        self._check_lease(request)
        self._has_written = True
        key, value, lease = request.key, request.value, request.lease
        revision, before = self.revision + 1, self.keys.get(key)
        if before is not None:
            self._detach(before)
        create, version = (revision, 1) if before is None else (before.create_revision, before.version + 1)
        self.keys[key] = kv = KeyValue(key, create, revision, version, value, lease)
        if lease:
            self.leases[lease].keys[key] = None
        self.events.append(Event(PUT, kv))
        return PutResponse(self._header, before if request.prev_kv else None)

    def _check_lease(self, request: PutRequest) -> None:
        if request.lease and request.lease not in self.leases:
            raise Refused(NOT_FOUND, LEASE_NOT_FOUND)

    def _delete(self, request: DeleteRangeRequest) -> DeleteRangeResponse:
        found = self.within(request.key, request.range_end)
        for kv in found:
            self._remove(kv)
        return DeleteRangeResponse(self._header, len(found), tuple(found) if request.prev_kv else ())

    def _remove(self, kv: KeyValue) -> None:
        self._has_written = True
        self._detach(kv)
        del self.keys[kv.key]
        self.events.append(Event(DELETE, KeyValue(kv.key, mod_revision=self.revision + 1)))

    def _detach(self, kv: KeyValue) -> None:
        if kv.lease in self.leases:
            self.leases[kv.lease].keys.pop(kv.key, None)

    def _compact(self, request: CompactionRequest) -> CompactionResponse:
        if request.revision > self.revision:
            raise Refused(OUT_OF_RANGE, FUTURE)
        if request.revision <= self.compacted:
            raise Refused(OUT_OF_RANGE, COMPACTED)
        self.compacted = request.revision
        return CompactionResponse(self._header)

    # Transactions -------------------------------------------------------------------------------------------------

    def _txn(self, request: TxnRequest) -> TxnResponse:
        path = self._decided(request)
        self._check(path)
        return self._run(path)

    def _decided(self, request: TxnRequest) -> _Path:
        """All compares come before all operations, those of nested transactions as well."""
        succeeded = all(self._holds(each) for each in request.compare)
        ops = request.success if succeeded else request.failure
        return _Path(succeeded, tuple(self._decided(op) if isinstance(op, TxnRequest) else op for op in ops))

    def _holds(self, compare: Compare) -> bool:
        found = self.within(compare.key, compare.range_end)
        if not found:
            return compare.target != VALUE and _compared(compare, KeyValue())
        return all(_compared(compare, kv) for kv in found)

    def _check(self, path: _Path) -> None:
        for op in path.ops:
            if isinstance(op, _Path):
                self._check(op)
            elif isinstance(op, PutRequest):
                self._check_lease(op)
            elif isinstance(op, RangeRequest):
                self._keys_at(op.revision)

    def _run(self, path: _Path) -> TxnResponse:
        responses = tuple(self._run(op) if isinstance(op, _Path) else DOES[type(op)](self, op) for op in path.ops)
        return TxnResponse(self._header, path.succeeded, responses)

    # Leases -------------------------------------------------------------------------------------------------------

    def _grant(self, request: LeaseGrantRequest) -> LeaseGrantResponse:
        if request.id in self.leases:
            raise Refused(FAILED_PRECONDITION, LEASE_EXISTS)
        lease = self.leases[request.id] = Lease(max(request.ttl, self._least_ttl))
        return LeaseGrantResponse(self._header, request.id, lease.ttl)

    def _revoke(self, request: LeaseRevokeRequest) -> LeaseRevokeResponse:
        lease = self.leases.get(request.id)
        if lease is None:
            raise Refused(NOT_FOUND, LEASE_NOT_FOUND)
        for key in sorted(lease.keys):
            self._remove(self.keys[key])
        del self.leases[request.id]
        return LeaseRevokeResponse(self._header)


DOES: dict[type, Callable[[State, Any], Any]] = {
    RangeRequest: State._range,
    PutRequest: State._put,
    DeleteRangeRequest: State._delete,
    TxnRequest: State._txn,
    CompactionRequest: State._compact,
    LeaseGrantRequest: State._grant,
    LeaseRevokeRequest: State._revoke,
    LeaseTimeToLiveRequest: State._time_to_live,
}

_TARGETS: dict[int, Callable[[KeyValue], Any]] = {
    VERSION: lambda kv: kv.version,
    CREATE: lambda kv: kv.create_revision,
    MOD: lambda kv: kv.mod_revision,
    VALUE: lambda kv: kv.value,
    LEASE: lambda kv: kv.lease,
}
_SORTS: dict[int, Callable[[KeyValue], Any]] = {
    BY_KEY: lambda kv: kv.key,
    BY_VERSION: lambda kv: kv.version,
    BY_CREATE: lambda kv: kv.create_revision,
    BY_MOD: lambda kv: kv.mod_revision,
    BY_VALUE: lambda kv: kv.value,
}


def _compared(compare: Compare, kv: KeyValue) -> bool:
    mine: Any = _TARGETS[compare.target](kv)
    other: Any = compare.value
    if compare.result == EQUAL:
        return bool(mine == other)
    if compare.result == NOT_EQUAL:
        return bool(mine != other)
    if compare.result == GREATER:
        return bool(mine > other)
    assert compare.result == LESS
    return bool(mine < other)


def _fits(request: RangeRequest, kv: KeyValue) -> bool:
    """Whatever is 0 does not matter."""
    return (
        (not request.min_mod_revision or kv.mod_revision >= request.min_mod_revision)
        and (not request.max_mod_revision or kv.mod_revision <= request.max_mod_revision)
        and (not request.min_create_revision or kv.create_revision >= request.min_create_revision)
        and (not request.max_create_revision or kv.create_revision <= request.max_create_revision)
    )


def _sorted(found: list[KeyValue], request: RangeRequest) -> list[KeyValue]:
    order = request.sort_order
    if order == NONE:
        order = NONE if request.sort_target == BY_KEY else ASCEND
    if order == NONE:
        return found
    return sorted(found, key=_SORTS[request.sort_target], reverse=order == DESCEND)


def writes(request: Any) -> bool:
    """Whether all members have to agree upon it: a transaction that may only read is a read."""
    if isinstance(request, TxnRequest):
        return any(writes(op) for op in (*request.success, *request.failure))
    return not isinstance(request, RangeRequest | LeaseTimeToLiveRequest)
