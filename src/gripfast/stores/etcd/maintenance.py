"""More messages, as in `messages.py`: who may call, and what there is to know about members. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gripfast.stores.etcd.codec import Field, encoder
from gripfast.stores.etcd.messages import HEADER, NO_HEADER, ResponseHeader, Rpc, reader

NOSPACE, CORRUPT = 1, 2
"""Alarms."""


class AuthenticateResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    token: str = ""


class AuthenticateRequest(NamedTuple):
    name: str
    password: str

    @property
    def rpc(self) -> Rpc[AuthenticateResponse]:
        return AUTHENTICATE


class StatusResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    version: str = ""
    db_size: int = 0
    leader: int = 0
    """0: it knows of none."""
    raft_index: int = 0
    raft_term: int = 0
    raft_applied_index: int = 0
    errors: tuple[str, ...] = ()
    db_size_in_use: int = 0
    is_learner: bool = False


class StatusRequest(NamedTuple):
    """About the member that is asked, which needs no leader to answer."""

    @property
    def rpc(self) -> Rpc[StatusResponse]:
        return STATUS


class Alarm(NamedTuple):
    member_id: int = 0
    alarm: int = 0


class AlarmResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    alarms: tuple[Alarm, ...] = ()


class AlarmRequest(NamedTuple):
    """Without values: which alarms there are."""

    action: int = 0
    member_id: int = 0
    alarm: int = 0

    @property
    def rpc(self) -> Rpc[AlarmResponse]:
        return ALARM


class DefragmentResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER


class DefragmentRequest(NamedTuple):
    @property
    def rpc(self) -> Rpc[DefragmentResponse]:
        return DEFRAGMENT


class Member(NamedTuple):
    id: int = 0
    name: str = ""
    peer_urls: tuple[str, ...] = ()
    client_urls: tuple[str, ...] = ()
    is_learner: bool = False


class MemberListResponse(NamedTuple):
    header: ResponseHeader = NO_HEADER
    members: tuple[Member, ...] = ()


class MemberListRequest(NamedTuple):
    @property
    def rpc(self) -> Rpc[MemberListResponse]:
        return MEMBER_LIST


AUTHENTICATE: Rpc[AuthenticateResponse] = Rpc(
    "/etcdserverpb.Auth/Authenticate",
    encoder((Field(1, "string"), Field(2, "string"))),
    reader(AuthenticateResponse, HEADER, Field(2, "string")),
)
STATUS: Rpc[StatusResponse] = Rpc(
    "/etcdserverpb.Maintenance/Status",
    encoder(()),
    reader(
        StatusResponse,
        HEADER,
        Field(2, "string"),
        Field(3, "int64"),
        Field(4, "uint64"),
        Field(5, "uint64"),
        Field(6, "uint64"),
        Field(7, "uint64"),
        Field(8, "string", True),
        Field(9, "int64"),
        Field(10, "bool"),
    ),
)
_ALARM = (Field(1, "uint64"), Field(2, "int64"))
ALARM: Rpc[AlarmResponse] = Rpc(
    "/etcdserverpb.Maintenance/Alarm",
    encoder((Field(1, "int64"), Field(2, "uint64"), Field(3, "int64"))),
    reader(AlarmResponse, HEADER, Field(2, "message", True, read=reader(Alarm, *_ALARM))),
)
DEFRAGMENT: Rpc[DefragmentResponse] = Rpc(
    "/etcdserverpb.Maintenance/Defragment", encoder(()), reader(DefragmentResponse, HEADER)
)
MEMBER_LIST: Rpc[MemberListResponse] = Rpc(
    "/etcdserverpb.Cluster/MemberList",
    encoder(()),
    reader(
        MemberListResponse,
        HEADER,
        Field(
            2,
            "message",
            True,
            read=reader(
                Member,
                Field(1, "uint64"),
                Field(2, "string"),
                Field(3, "string", True),
                Field(4, "string", True),
                Field(5, "bool"),
            ),
        ),
    ),
)
