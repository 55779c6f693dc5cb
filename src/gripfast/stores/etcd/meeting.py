"""Which cluster answers, and whether it still is the one that has granted: what a client remembers of it.

Every answer has the id of its cluster and a revision. A write that is answered with a smaller revision than one that
was known *before it was sent* was made by a cluster that has forgotten: a backup was restored. Another id is another
cluster, at the same address. Both may grant to others what this client holds, so all its leases are over. An answer
that comes late has a smaller revision, too, and means nothing: it is compared with what was known when it was sent.

If the cluster was found to be another one while a request was under way, its answer may be of the time before that, or
its revision be compared with one of that time. Such an answer tells nothing, unless its cluster was never seen before.
Otherwise one restored backup would end leases twice: also those that were granted after it was noticed.

The number of the layout (`stores/layout.py`) is looked at once for each cluster: it stays what it is as long as the
cluster does.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from gripfast.core.ports import Unreachable, unreachable
from gripfast.stores import layout
from gripfast.stores.etcd.messages import (
    CREATE,
    EQUAL,
    Compare,
    DeleteRangeRequest,
    LeaseGrantRequest,
    PutRequest,
    RangeRequest,
    RangeResponse,
    TxnRequest,
    TxnResponse,
)

_log = logging.getLogger("gripfast.connection")

_ANOTHER = (
    "%s is another cluster than before, or has gone back to revision %d (a restored backup?): all leases of this "
    "client are lost. Tokens may be smaller than earlier ones: reset the fences that are kept elsewhere (docs/etcd.md)"
)


class Known(NamedTuple):
    """Of the cluster, when a request was sent."""

    epoch: int
    revision: int


class Cluster:
    """As far as its answers tell. Many threads may look at it."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.id = 0
        self.revision = 0
        """The largest that was seen."""
        self.epoch = 0
        """Grows when it has become another one."""
        self._seen: set[int] = set()
        """The ids that it has had."""
        self.met = -1
        """The epoch in which its layout was seen to be ours."""

    @property
    def known(self) -> Known:
        return Known(self.epoch, self.revision)

    def notice(self, request: Any, answer: Any, known: Known) -> None:
        """`known`: before the request was sent. Reads may be answered by a member that is behind."""
        header = answer.header
        if known.epoch != self.epoch and header.cluster_id in self._seen:
            return
        has_forgotten = header.revision < known.revision and writes(request)
        if self.id not in (0, header.cluster_id) or has_forgotten:
            _log.warning(_ANOTHER, self.where, header.revision)
            self.revision = header.revision
            self.epoch += 1
        self.id = header.cluster_id
        self._seen.add(self.id)
        if header.revision > self.revision:
            self.revision = header.revision


def writes(request: Any) -> bool:
    """A majority has agreed upon its answer."""
    if isinstance(request, TxnRequest):
        return any(map(writes, request.success)) or any(map(writes, request.failure))
    return isinstance(request, PutRequest | DeleteRangeRequest | LeaseGrantRequest)


def request(key: bytes, writes: bool) -> TxnRequest | RangeRequest:
    """What is the number of the layout at this key? Whoever is the first writes ours."""
    look = RangeRequest(key)
    if not writes:
        return look
    ours = PutRequest(key, str(layout.ETCD).encode())
    return TxnRequest((Compare(CREATE, key, EQUAL, 0),), (ours,), (look,))


def refusal(where: str, root: str, answer: TxnResponse | RangeResponse) -> Unreachable | None:
    """None if it is ours, or if there is none yet."""
    looked: RangeResponse
    if isinstance(answer, TxnResponse):
        if answer.succeeded:
            return None
        looked = answer.responses[0]
    else:
        looked = answer
    found = [kv.value.decode(errors="replace") for kv in looked.kvs]
    if not found or found[0] == str(layout.ETCD):
        return None
    error = layout.refusal(where, found[0], layout.ETCD, f"another root than {root!r}")
    return unreachable(error, was_sent=False, is_permanent=True)
