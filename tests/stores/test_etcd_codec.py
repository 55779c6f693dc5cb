"""Our messages are those that protobuf writes and reads: held to it by examples that nobody chose."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from gripfast.stores.etcd import maintenance, messages
from gripfast.stores.etcd.codec import Malformed, read_varint, varint
from gripfast.stores.etcd.messages import Compare, DeleteRangeRequest, PutRequest, RangeRequest, Rpc, TxnRequest

API = """
ResponseHeader: uint64 cluster_id 1, uint64 member_id 2, int64 revision 3, uint64 raft_term 4
KeyValue: bytes key 1, int64 create_revision 2, int64 mod_revision 3, int64 version 4, bytes value 5, int64 lease 6
RangeRequest: bytes key 1, bytes range_end 2, int64 limit 3, int64 revision 4, int64 sort_order 5, int64 sort_target 6, bool serializable 7, bool keys_only 8, bool count_only 9, int64 min_mod_revision 10, int64 max_mod_revision 11, int64 min_create_revision 12, int64 max_create_revision 13
RangeResponse: ResponseHeader header 1, KeyValue* kvs 2, bool more 3, int64 count 4
PutRequest: bytes key 1, bytes value 2, int64 lease 3, bool prev_kv 4, bool ignore_value 5, bool ignore_lease 6
PutResponse: ResponseHeader header 1, KeyValue prev_kv 2
DeleteRangeRequest: bytes key 1, bytes range_end 2, bool prev_kv 3
DeleteRangeResponse: ResponseHeader header 1, int64 deleted 2, KeyValue* prev_kvs 3
Compare: int64 result 1, int64 target 2, bytes key 3, int64| version 4, int64| create_revision 5, int64| mod_revision 6, bytes| value 7, int64| lease 8, bytes range_end 64
RequestOp: RangeRequest| request_range 1, PutRequest| request_put 2, DeleteRangeRequest| request_delete_range 3, TxnRequest| request_txn 4
ResponseOp: RangeResponse| response_range 1, PutResponse| response_put 2, DeleteRangeResponse| response_delete_range 3, TxnResponse| response_txn 4
TxnRequest: Compare* compare 1, RequestOp* success 2, RequestOp* failure 3
TxnResponse: ResponseHeader header 1, bool succeeded 2, ResponseOp* responses 3
CompactionRequest: int64 revision 1, bool physical 2
CompactionResponse: ResponseHeader header 1
LeaseGrantRequest: int64 TTL 1, int64 ID 2
LeaseGrantResponse: ResponseHeader header 1, int64 ID 2, int64 TTL 3, string error 4
LeaseRevokeRequest: int64 ID 1
LeaseRevokeResponse: ResponseHeader header 1
LeaseKeepAliveRequest: int64 ID 1
LeaseKeepAliveResponse: ResponseHeader header 1, int64 ID 2, int64 TTL 3
LeaseTimeToLiveRequest: int64 ID 1, bool keys 2
LeaseTimeToLiveResponse: ResponseHeader header 1, int64 ID 2, int64 TTL 3, int64 grantedTTL 4, bytes* keys 5
Event: int64 type 1, KeyValue kv 2, KeyValue prev_kv 3
WatchCreateRequest: bytes key 1, bytes range_end 2, int64 start_revision 3, bool progress_notify 4, int64* filters 5, bool prev_kv 6, int64 watch_id 7, bool fragment 8
WatchCancelRequest: int64 watch_id 1
WatchRequest: WatchCreateRequest| create_request 1, WatchCancelRequest| cancel_request 2
WatchResponse: ResponseHeader header 1, int64 watch_id 2, bool created 3, bool canceled 4, int64 compact_revision 5, string cancel_reason 6, bool fragment 7, Event* events 11
AuthenticateRequest: string name 1, string password 2
AuthenticateResponse: ResponseHeader header 1, string token 2
StatusRequest:
StatusResponse: ResponseHeader header 1, string version 2, int64 dbSize 3, uint64 leader 4, uint64 raftIndex 5, uint64 raftTerm 6, uint64 raftAppliedIndex 7, string* errors 8, int64 dbSizeInUse 9, bool isLearner 10
AlarmRequest: int64 action 1, uint64 memberID 2, int64 alarm 3
AlarmMember: uint64 memberID 1, int64 alarm 2
AlarmResponse: ResponseHeader header 1, AlarmMember* alarms 2
DefragmentRequest:
DefragmentResponse: ResponseHeader header 1
Member: uint64 ID 1, string name 2, string* peerURLs 3, string* clientURLs 4, bool isLearner 5
MemberListRequest:
MemberListResponse: ResponseHeader header 1, Member* members 2
"""  # noqa: E501
"""etcd's API, of which enums are written as numbers."""
OTHER_NAMES = {
    "total": "count", "id": "ID", "ttl": "TTL", "granted_ttl": "grantedTTL", "db_size": "dbSize",
    "member_id": "memberID", "raft_index": "raftIndex", "raft_term": "raftTerm",
    "raft_applied_index": "raftAppliedIndex", "db_size_in_use": "dbSizeInUse", "is_learner": "isLearner",
    "peer_urls": "peerURLs", "client_urls": "clientURLs",
}  # fmt: skip
"""What we call otherwise, where etcd does."""
COMPARED = ("version", "create_revision", "mod_revision", "value", "lease")
OPS = {"RangeRe": "range", "PutRe": "put", "DeleteRangeRe": "delete_range", "TxnRe": "txn"}
KINDS = {
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}


@cache
def api() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="etcd.proto", package="etcd", syntax="proto3")
    for line in API.strip().splitlines():
        name, _, fields = line.partition(":")
        message = file.message_type.add(name=name)
        for field in filter(None, fields.strip().split(", ")):
            kind, field_name, number = field.split(" ")
            added = message.field.add(name=field_name, number=int(number))
            added.label = added.LABEL_REPEATED if kind.endswith("*") else added.LABEL_OPTIONAL
            if kind.endswith("|"):
                if not message.oneof_decl:
                    message.oneof_decl.add(name="union")
                added.oneof_index = 0
            kind = kind.rstrip("*|")
            added.type = KINDS.get(kind, added.TYPE_MESSAGE)
            if kind not in KINDS:
                added.type_name = f".etcd.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def theirs(name: str) -> Any:
    return message_factory.GetMessageClass(api().FindMessageTypeByName(f"etcd.{name}"))()


def as_theirs(ours: Any) -> Any:
    """The same message, as protobuf has it."""
    kind = {"WatchCreate": "WatchCreateRequest", "WatchCancel": "WatchCancelRequest", "Alarm": "AlarmMember"}
    made = theirs(kind.get(type(ours).__name__, type(ours).__name__))
    if isinstance(ours, Compare):
        made.result, made.target, made.key, made.range_end = ours.result, ours.target, ours.key, ours.range_end
        setattr(made, COMPARED[ours.target], ours.value)
        return made
    known = {field.name for field in made.DESCRIPTOR.fields}
    for name, value in ours._asdict().items():
        their_name = name if name in known else OTHER_NAMES[name]
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            for each in value:
                put = getattr(made, their_name)
                put.append(each) if not hasattr(each, "_fields") else put.append(wrapped(made, their_name, each))
        elif hasattr(value, "_fields"):
            getattr(made, their_name).CopyFrom(as_theirs(value))
        elif value is not None:
            setattr(made, their_name, value)
    return made


def wrapped(message: Any, name: str, each: Any) -> Any:
    """An operation of a transaction, and its result, are in a union."""
    wrapper: str = message.DESCRIPTOR.fields_by_name[name].message_type.name
    inner = as_theirs(each)
    if wrapper not in ("RequestOp", "ResponseOp"):
        return inner
    op = theirs(wrapper)
    stem, side = type(each).__name__.removesuffix("quest").removesuffix("sponse"), wrapper.removesuffix("Op").lower()
    getattr(op, f"{side}_{OPS[stem]}").CopyFrom(inner)
    return op


int64 = st.integers(-(2**63), 2**63 - 1)
uint64 = st.integers(0, 2**64 - 1)
data = st.binary(max_size=20)
text = st.text(max_size=8)
header = st.builds(messages.ResponseHeader, uint64, uint64, int64, uint64)
kv = st.builds(messages.KeyValue, data, int64, int64, int64, data, int64)
kvs = st.lists(kv, max_size=3).map(tuple)
flag = st.booleans()
ranges = st.builds(
    RangeRequest, data, data, int64, int64, st.integers(0, 2), st.integers(0, 4), flag, flag, flag, int64, int64, int64,
    int64,
)  # fmt: skip
puts = st.builds(PutRequest, data, data, int64, flag, flag, flag)
deletes = st.builds(DeleteRangeRequest, data, data, flag)
results = st.integers(0, 3)
compares = st.one_of(
    st.builds(Compare, st.sampled_from((0, 1, 2, 4)), data, results, int64, data),
    st.builds(Compare, st.just(3), data, results, data, data),
)


def txns_of(ops: Any) -> Any:
    many = st.lists(ops, max_size=3).map(tuple)
    return st.builds(TxnRequest, st.lists(compares, max_size=3).map(tuple), many, many)


simple_ops = st.one_of(ranges, puts, deletes)
txns = txns_of(st.recursive(simple_ops, lambda ops: st.one_of(simple_ops, txns_of(ops)), max_leaves=6))
range_responses = st.builds(messages.RangeResponse, header, kvs, flag, int64)
put_responses = st.builds(messages.PutResponse, header, st.none() | kv)
delete_responses = st.builds(messages.DeleteRangeResponse, header, int64, kvs)


def txn_responses_of(results: Any) -> Any:
    return st.builds(messages.TxnResponse, header, flag, st.lists(results, max_size=3).map(tuple))


simple_results = st.one_of(range_responses, put_responses, delete_responses)
txn_responses = txn_responses_of(
    st.recursive(simple_results, lambda inner: st.one_of(simple_results, txn_responses_of(inner)), max_leaves=6)
)
watch_creates = st.builds(
    messages.WatchCreate, data, data, int64, flag, st.lists(st.integers(0, 1), max_size=2).map(tuple), flag, int64, flag
)
events = st.builds(messages.Event, st.integers(0, 1), kv, st.none() | kv)
texts = st.lists(text, max_size=3).map(tuple)

REQUESTS = {
    "range": (messages.RANGE, ranges),
    "put": (messages.PUT_KEY, puts),
    "delete": (messages.DELETE_RANGE, deletes),
    "txn": (messages.TXN, txns),
    "compact": (messages.COMPACT, st.builds(messages.CompactionRequest, int64, flag)),
    "grant": (messages.LEASE_GRANT, st.builds(messages.LeaseGrantRequest, int64, int64)),
    "revoke": (messages.LEASE_REVOKE, st.builds(messages.LeaseRevokeRequest, int64)),
    "keep alive": (messages.LEASE_KEEP_ALIVE, st.builds(messages.LeaseKeepAliveRequest, int64)),
    "time to live": (messages.LEASE_TIME_TO_LIVE, st.builds(messages.LeaseTimeToLiveRequest, int64, flag)),
    "authenticate": (maintenance.AUTHENTICATE, st.builds(maintenance.AuthenticateRequest, text, text)),
    "status": (maintenance.STATUS, st.builds(maintenance.StatusRequest)),
    "alarm": (maintenance.ALARM, st.builds(maintenance.AlarmRequest, st.integers(0, 2), uint64, st.integers(0, 2))),
    "defragment": (maintenance.DEFRAGMENT, st.builds(maintenance.DefragmentRequest)),
    "members": (maintenance.MEMBER_LIST, st.builds(maintenance.MemberListRequest)),
}
RESPONSES = {
    "range": (messages.RANGE, range_responses),
    "put": (messages.PUT_KEY, put_responses),
    "delete": (messages.DELETE_RANGE, delete_responses),
    "txn": (messages.TXN, txn_responses),
    "compact": (messages.COMPACT, st.builds(messages.CompactionResponse, header)),
    "grant": (messages.LEASE_GRANT, st.builds(messages.LeaseGrantResponse, header, int64, int64, text)),
    "revoke": (messages.LEASE_REVOKE, st.builds(messages.LeaseRevokeResponse, header)),
    "keep alive": (messages.LEASE_KEEP_ALIVE, st.builds(messages.LeaseKeepAliveResponse, header, int64, int64)),
    "time to live": (
        messages.LEASE_TIME_TO_LIVE,
        st.builds(
            messages.LeaseTimeToLiveResponse, header, int64, int64, int64, st.lists(data, max_size=3).map(tuple)
        ),
    ),
    "watch": (
        messages.WATCH,
        st.builds(
            messages.WatchResponse, header, int64, flag, flag, int64, text, flag,
            st.lists(events, max_size=3).map(tuple),
        ),
    ),
    "authenticate": (maintenance.AUTHENTICATE, st.builds(maintenance.AuthenticateResponse, header, text)),
    "status": (
        maintenance.STATUS,
        st.builds(
            maintenance.StatusResponse, header, text, int64, uint64, uint64, uint64, uint64, texts, int64, flag
        ),
    ),
    "alarm": (
        maintenance.ALARM,
        st.builds(
            maintenance.AlarmResponse,
            header,
            st.lists(st.builds(maintenance.Alarm, uint64, st.integers(0, 2)), max_size=3).map(tuple),
        ),
    ),
    "defragment": (maintenance.DEFRAGMENT, st.builds(maintenance.DefragmentResponse, header)),
    "members": (
        maintenance.MEMBER_LIST,
        st.builds(
            maintenance.MemberListResponse,
            header,
            st.lists(st.builds(maintenance.Member, uint64, text, texts, texts, flag), max_size=3).map(tuple),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
@given(drawn=st.data())
def test_protobuf_reads_what_we_write(name: str, drawn: st.DataObject) -> None:
    rpc, strategy = REQUESTS[name]
    ours = drawn.draw(strategy)
    read = theirs(type(ours).__name__)
    read.ParseFromString(rpc.write(ours))
    assert read == as_theirs(ours)
    assert ours.rpc is rpc


@given(ours=st.one_of(watch_creates, st.builds(messages.WatchCancel, int64)))
def test_protobuf_reads_the_requests_of_watches(ours: Any) -> None:
    read = theirs("WatchRequest")
    read.ParseFromString(messages.WATCH.write(ours))
    expected = theirs("WatchRequest")
    side = expected.create_request if isinstance(ours, messages.WatchCreate) else expected.cancel_request
    side.SetInParent()
    side.CopyFrom(as_theirs(ours))
    assert read == expected


@pytest.mark.parametrize("name", RESPONSES)
@given(drawn=st.data())
def test_we_read_what_protobuf_writes(name: str, drawn: st.DataObject) -> None:
    rpc, strategy = RESPONSES[name]
    ours = drawn.draw(strategy)
    assert rpc.read(as_theirs(ours).SerializeToString()) == ours


def test_a_union_of_the_default_is_written() -> None:
    """ "It does not exist" is the comparison with 0: left out, it would be that with nothing."""
    read = theirs("Compare")
    read.ParseFromString(messages._write_compare(Compare(messages.CREATE, b"a", messages.EQUAL, 0)))
    assert read.WhichOneof("union") == "create_revision"


@pytest.mark.parametrize("name", ["txn", "watch", "status", "time to live"])
@given(drawn=st.data())
def test_a_message_that_is_cut_off_anywhere_is_read_as_protobuf_reads_it(name: str, drawn: st.DataObject) -> None:
    rpc, strategy = RESPONSES[name]
    ours = drawn.draw(strategy)
    whole = as_theirs(ours).SerializeToString()
    for end in range(len(whole)):
        expected = theirs(type(ours).__name__)
        try:
            expected.ParseFromString(whole[:end])
        except DecodeError:
            with pytest.raises(Malformed):
                rpc.read(whole[:end])
        else:
            assert as_theirs(rpc.read(whole[:end])).SerializeToString() == completed(expected).SerializeToString()


def completed(message: Any) -> Any:
    """With those parts that ours always have."""
    for field in message.DESCRIPTOR.fields:
        if field.name in ("header", "kv"):
            getattr(message, field.name).SetInParent()
        elif field.message_type is not None and field.name in ("events", "responses", "alarms"):
            for each in getattr(message, field.name):
                completed(each)
        elif field.name.startswith("response_") and message.HasField(field.name):
            completed(getattr(message, field.name))
    return message


@pytest.mark.parametrize("rpc", [messages.TXN, messages.WATCH, maintenance.STATUS, messages.RANGE])
@given(garbage=st.binary(max_size=200))
def test_garbage_is_malformed_or_read_and_nothing_else(rpc: Rpc[Any], garbage: bytes) -> None:
    try:
        rpc.read(garbage)
    except Malformed:
        pass


@given(drawn=st.data())
def test_a_flipped_bit_is_malformed_or_read_and_nothing_else(drawn: st.DataObject) -> None:
    whole = bytearray(as_theirs(drawn.draw(txn_responses)).SerializeToString())
    for _ in range(drawn.draw(st.integers(1, 4)) if whole else 0):
        whole[drawn.draw(st.integers(0, len(whole) - 1))] ^= 1 << drawn.draw(st.integers(0, 7))
    try:
        messages.TXN.read(bytes(whole))
    except Malformed:
        pass


def test_what_a_newer_server_adds_is_skipped() -> None:
    newer = theirs("RangeResponse")
    newer.ParseFromString(as_theirs(messages.RangeResponse(total=3)).SerializeToString())
    unknown = b"\xa0\x06\x05" + b"\xaa\x06\x03abc" + b"\xb1\x06" + bytes(8) + b"\xbd\x06" + bytes(4)
    assert messages.RANGE.read(newer.SerializeToString() + unknown).total == 3


@given(value=int64 | uint64)
def test_numbers_of_all_sizes(value: int) -> None:
    written = varint(value)
    assert read_varint(written, 0) == (value % 2**64, len(written))
    assert len(written) <= 10


@pytest.mark.parametrize("written", [b"\x80", b"\xff" * 11, b"\xff" * 10 + b"\x01"])
def test_a_number_that_does_not_end_is_malformed(written: bytes) -> None:
    with pytest.raises(Malformed):
        read_varint(written, 0)
