"""The messages that Gripfast and etcd exchange, and the calls that they belong to. Pure.

Their names and values are those of etcd's API (`etcdserverpb`, `mvccpb`). Two things are simpler here: an operation of
a transaction is the request itself, and its result is the response itself; and a Compare has one `value`, whose field
follows from its target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from gripfast.stores.etcd.codec import (
    BYTES,
    VARINT,
    Field,
    Malformed,
    Read,
    Write,
    decoder,
    encoder,
    one,
    sized,
    tag,
    varint,
)

R_co = TypeVar("R_co", covariant=True)

EQUAL, GREATER, LESS, NOT_EQUAL = range(4)
"""Results of a Compare."""
VERSION, CREATE, MOD, VALUE, LEASE = range(5)
"""Targets of a Compare. In `RangeRequest.sort_target`, 0 is the key, and the others are one more than here."""
NONE, ASCEND, DESCEND = range(3)
"""Orders of a range."""
BY_KEY, BY_VERSION, BY_CREATE, BY_MOD, BY_VALUE = range(5)
"""Targets of a sort."""
NOPUT, NODELETE = range(2)
"""Filters of a watch."""
PUT, DELETE = range(2)
"""Types of events."""
OPS_MOST = 128
"""Operations in one transaction, those of nested ones included, unless the server is set up otherwise."""


class Rpc(Generic[R_co]):
    """One call that etcd offers."""

    def __init__(self, path: str, write: Write, read: Callable[[bytes], R_co], is_stream: bool = False) -> None:
        """`is_stream`: its member would answer more than one message."""
        self.path = path
        self.write = write
        self.read = read
        self.is_stream = is_stream


class Request(Protocol[R_co]):
    """What can be called. R: what is answered."""

    @property
    def rpc(self) -> Rpc[R_co]: ...


# -- what is in several messages ---------------------------------------------------------------------------------------


class ResponseHeader(NamedTuple):
    """In an operation's result within a transaction, only the revision is set."""

    cluster_id: int = 0
    member_id: int = 0
    revision: int = 0
    raft_term: int = 0


class KeyValue(NamedTuple):
    key: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    value: bytes = b""
    lease: int = 0


def reader(kind: Any, *fields: Field) -> Read:
    return decoder(kind, fields, list(kind()))


_KEY_VALUE = (
    Field(1, "bytes"), Field(2, "int64"), Field(3, "int64"), Field(4, "int64"), Field(5, "bytes"), Field(6, "int64")
)  # fmt: skip
_read_header = reader(ResponseHeader, Field(1, "uint64"), Field(2, "uint64"), Field(3, "int64"), Field(4, "uint64"))
_read_key_value = reader(KeyValue, *_KEY_VALUE)
HEADER = Field(1, "message", read=_read_header)
NO_HEADER = ResponseHeader()


def _kv(number: int, is_many: bool = False) -> Field:
    return Field(number, "message", is_many, read=_read_key_value)


# -- keys --------------------------------------------------------------------------------------------------------------


class RangeResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    kvs: tuple[KeyValue, ...] = ()
    more: bool = False
    total: int = 0
    """How many keys there are in the range, whatever the limit. (etcd calls it `count`, as tuples do a method.)"""


class RangeRequest(NamedTuple):
    key: bytes
    range_end: bytes = b""
    limit: int = 0
    revision: int = 0
    sort_order: int = NONE
    sort_target: int = BY_KEY
    serializable: bool = False
    keys_only: bool = False
    count_only: bool = False
    min_mod_revision: int = 0
    max_mod_revision: int = 0
    min_create_revision: int = 0
    max_create_revision: int = 0

    @property
    def rpc(self) -> Rpc[RangeResponse]:
        return RANGE


class PutResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    prev_kv: KeyValue | None = None


class PutRequest(NamedTuple):
    key: bytes
    value: bytes = b""
    lease: int = 0
    prev_kv: bool = False
    ignore_value: bool = False
    ignore_lease: bool = False

    @property
    def rpc(self) -> Rpc[PutResponse]:
        return PUT_KEY


class DeleteRangeResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    deleted: int = 0
    prev_kvs: tuple[KeyValue, ...] = ()


class DeleteRangeRequest(NamedTuple):
    key: bytes
    range_end: bytes = b""
    prev_kv: bool = False

    @property
    def rpc(self) -> Rpc[DeleteRangeResponse]:
        return DELETE_RANGE


class CompactionResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER


class CompactionRequest(NamedTuple):
    revision: int
    physical: bool = False

    @property
    def rpc(self) -> Rpc[CompactionResponse]:
        return COMPACT


_RANGE = (
    Field(1, "bytes"), Field(2, "bytes"), Field(3, "int64"), Field(4, "int64"), Field(5, "int64"), Field(6, "int64"),
    Field(7, "bool"), Field(8, "bool"), Field(9, "bool"),
    Field(10, "int64"), Field(11, "int64"), Field(12, "int64"), Field(13, "int64"),
)  # fmt: skip
_PUT = (
    Field(1, "bytes"), Field(2, "bytes"), Field(3, "int64"), Field(4, "bool"), Field(5, "bool"), Field(6, "bool")
)  # fmt: skip
_DELETE_RANGE = (Field(1, "bytes"), Field(2, "bytes"), Field(3, "bool"))

RANGE: Rpc[RangeResponse] = Rpc(
    "/etcdserverpb.KV/Range",
    encoder(_RANGE),
    reader(RangeResponse, HEADER, _kv(2, is_many=True), Field(3, "bool"), Field(4, "int64")),
)
PUT_KEY: Rpc[PutResponse] = Rpc("/etcdserverpb.KV/Put", encoder(_PUT), reader(PutResponse, HEADER, _kv(2)))
DELETE_RANGE: Rpc[DeleteRangeResponse] = Rpc(
    "/etcdserverpb.KV/DeleteRange",
    encoder(_DELETE_RANGE),
    reader(DeleteRangeResponse, HEADER, Field(2, "int64"), _kv(3, is_many=True)),
)
COMPACT: Rpc[CompactionResponse] = Rpc(
    "/etcdserverpb.KV/Compact", encoder((Field(1, "int64"), Field(2, "bool"))), reader(CompactionResponse, HEADER)
)


# -- transactions ------------------------------------------------------------------------------------------------------


class Compare(NamedTuple):
    """Of all keys from `key` up to `range_end`, if there is one: the target of each must fit. A key that does not
    exist has the revisions, version and lease 0; its value is never equal to anything."""

    target: int
    key: bytes
    result: int
    value: int | bytes
    range_end: bytes = b""


class TxnResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    succeeded: bool = False
    responses: tuple[Any, ...] = ()
    """A RangeResponse, PutResponse, DeleteRangeResponse or TxnResponse for each operation."""


class TxnRequest(NamedTuple):
    compare: tuple[Compare, ...] = ()
    success: tuple[Op, ...] = ()
    failure: tuple[Op, ...] = ()

    @property
    def rpc(self) -> Rpc[TxnResponse]:
        return TXN


Op = RangeRequest | PutRequest | DeleteRangeRequest | TxnRequest

_COMPARED = {
    VERSION: tag(4, VARINT), CREATE: tag(5, VARINT), MOD: tag(6, VARINT), VALUE: tag(7, BYTES), LEASE: tag(8, VARINT)
}  # fmt: skip
_RESULT, _TARGET, _KEY, _RANGE_END = tag(1, VARINT), tag(2, VARINT), tag(3, BYTES), tag(64, BYTES)


def _write_compare(compare: Compare) -> bytes:
    target, key, result, value, range_end = compare
    start = _COMPARED[target]
    written = sized(start, value) if isinstance(value, bytes) else start + varint(value)
    return b"".join(
        (
            _RESULT + varint(result) if result else b"",
            _TARGET + varint(target) if target else b"",
            sized(_KEY, key) if key else b"",
            written,
            sized(_RANGE_END, range_end) if range_end else b"",
        )
    )


def _write_op(op: Op) -> bytes:
    return _OPS[type(op)](op)


def _write_txn(request: TxnRequest) -> bytes:
    return _write_parts(request)


def _read_txn(data: bytes) -> TxnResponse:
    response: TxnResponse = _read_txn_parts(data)
    return response


def _read_result(data: bytes) -> Any:
    """The one of the union that is set. A server sends no others."""
    found = [each for each in _read_union(data) if each is not None]
    if len(found) != 1:
        raise Malformed("an operation has no single result")
    return found[0]


_write_parts = encoder(
    (
        Field(1, "message", True, write=_write_compare),
        Field(2, "message", True, write=_write_op),
        Field(3, "message", True, write=_write_op),
    )
)
_OPS: dict[type, Write] = {
    RangeRequest: one(Field(1, "message", write=RANGE.write)),
    PutRequest: one(Field(2, "message", write=PUT_KEY.write)),
    DeleteRangeRequest: one(Field(3, "message", write=DELETE_RANGE.write)),
    TxnRequest: one(Field(4, "message", write=_write_txn)),
}


def _union(*values: Any) -> tuple[Any, ...]:
    return values


_read_union = decoder(
    _union,
    (
        Field(1, "message", read=RANGE.read),
        Field(2, "message", read=PUT_KEY.read),
        Field(3, "message", read=DELETE_RANGE.read),
        Field(4, "message", read=_read_txn),
    ),
    (None, None, None, None),
)
_read_txn_parts = reader(TxnResponse, HEADER, Field(2, "bool"), Field(3, "message", True, read=_read_result))
TXN: Rpc[TxnResponse] = Rpc("/etcdserverpb.KV/Txn", _write_txn, _read_txn)


# -- leases ------------------------------------------------------------------------------------------------------------


class LeaseGrantResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    id: int = 0
    ttl: int = 0
    """Seconds; the server may grant more than was requested."""
    error: str = ""


class LeaseGrantRequest(NamedTuple):
    ttl: int
    id: int = 0
    """0: the server chooses one."""

    @property
    def rpc(self) -> Rpc[LeaseGrantResponse]:
        return LEASE_GRANT


class LeaseRevokeResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER


class LeaseRevokeRequest(NamedTuple):
    id: int

    @property
    def rpc(self) -> Rpc[LeaseRevokeResponse]:
        return LEASE_REVOKE


class LeaseKeepAliveResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    id: int = 0
    ttl: int = 0
    """0: there is no such lease."""


class LeaseKeepAliveRequest(NamedTuple):
    """No lock is kept alive: the answer proves nothing. It is here for those that show this. A stream to etcd, from
    which one answer is taken."""

    id: int

    @property
    def rpc(self) -> Rpc[LeaseKeepAliveResponse]:
        return LEASE_KEEP_ALIVE


class LeaseTimeToLiveResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    id: int = 0
    ttl: int = 0
    """−1: there is no such lease."""
    granted_ttl: int = 0
    keys: tuple[bytes, ...] = ()


class LeaseTimeToLiveRequest(NamedTuple):
    id: int
    keys: bool = False

    @property
    def rpc(self) -> Rpc[LeaseTimeToLiveResponse]:
        return LEASE_TIME_TO_LIVE


_ID_AND_TTL = (HEADER, Field(2, "int64"), Field(3, "int64"))
LEASE_GRANT: Rpc[LeaseGrantResponse] = Rpc(
    "/etcdserverpb.Lease/LeaseGrant",
    encoder((Field(1, "int64"), Field(2, "int64"))),
    reader(LeaseGrantResponse, *_ID_AND_TTL, Field(4, "string")),
)
LEASE_REVOKE: Rpc[LeaseRevokeResponse] = Rpc(
    "/etcdserverpb.Lease/LeaseRevoke", encoder((Field(1, "int64"),)), reader(LeaseRevokeResponse, HEADER)
)
LEASE_KEEP_ALIVE: Rpc[LeaseKeepAliveResponse] = Rpc(
    "/etcdserverpb.Lease/LeaseKeepAlive",
    encoder((Field(1, "int64"),)),
    reader(LeaseKeepAliveResponse, *_ID_AND_TTL),
    is_stream=True,
)
LEASE_TIME_TO_LIVE: Rpc[LeaseTimeToLiveResponse] = Rpc(
    "/etcdserverpb.Lease/LeaseTimeToLive",
    encoder((Field(1, "int64"), Field(2, "bool"))),
    reader(LeaseTimeToLiveResponse, *_ID_AND_TTL, Field(4, "int64"), Field(5, "bytes", True)),
)


# -- watches -----------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    type: int = PUT
    kv: KeyValue = KeyValue()
    """Of a deleted key: the key alone, and as `mod_revision` the revision of the deletion."""
    prev_kv: KeyValue | None = None


class WatchResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    watch_id: int = 0
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    """Not 0: what came before this revision is compacted, and the watch was cancelled because it started there."""
    cancel_reason: str = ""
    fragment: bool = False
    """More of the same revision follows."""
    events: tuple[Event, ...] = ()


class WatchCreate(NamedTuple):
    key: bytes
    range_end: bytes = b""
    start_revision: int = 0
    progress_notify: bool = False
    filters: tuple[int, ...] = ()
    prev_kv: bool = False
    watch_id: int = 0
    fragment: bool = False


class WatchCancel(NamedTuple):
    watch_id: int


_write_create = one(
    Field(
        1,
        "message",
        write=encoder(
            (
                Field(1, "bytes"), Field(2, "bytes"), Field(3, "int64"), Field(4, "bool"), Field(5, "int64", True),
                Field(6, "bool"), Field(7, "int64"), Field(8, "bool"),
            )
        ),
    )
)  # fmt: skip
_write_cancel = one(Field(2, "message", write=encoder((Field(1, "int64"),))))


def write_watch(request: WatchCreate | WatchCancel) -> bytes:
    return _write_create(request) if isinstance(request, WatchCreate) else _write_cancel(request)


WATCH: Rpc[WatchResponse] = Rpc(
    "/etcdserverpb.Watch/Watch",
    write_watch,
    reader(
        WatchResponse,
        HEADER,
        Field(2, "int64"),
        Field(3, "bool"),
        Field(4, "bool"),
        Field(5, "int64"),
        Field(6, "string"),
        Field(7, "bool"),
        Field(11, "message", True, read=reader(Event, Field(1, "int64"), _kv(2), _kv(3))),
    ),
)
