"""How a request is sent: at which member, how long each may take, what its answer tells of the cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gripfast.core.ports import Unreachable, unreachable
from gripfast.machine import boottime
from gripfast.stores.etcd import meeting
from gripfast.stores.etcd.faults import fault_of
from gripfast.stores.etcd.keys import Keys
from gripfast.stores.etcd.leases import Lease, Leases, is_unknown_lease
from gripfast.stores.etcd.link import Link, Refusal, Told
from gripfast.stores.etcd.meeting import Cluster, Known
from gripfast.stores.faults import Fault

TRY = 1 / 8
"""Of a ttl: how long one member may take. It may be cut off, stopped, or about to lose its leader."""
TRY_LEAST = 0.1
"""Seconds, however short the ttl is."""
TRY_MOST = 1 / 2
"""Of the time that a request has, however short that is: one silent member leaves enough for the next."""


class Requests:
    def __init__(self, link: Link, cluster: Cluster, keys: Keys) -> None:
        self.link = link
        self.keys = keys
        self.cluster = cluster
        self.leases = Leases(self.ask)
        self._is_alone = len(link.endpoints) == 1

    def each(self, ttl: float) -> float:
        """How long one try may take. One member alone gets all the time: to leave it would lead back to it."""
        return math.inf if self._is_alone else min(max(TRY_LEAST, ttl * TRY), self.link.timeout * TRY_MOST)

    def until(self) -> float:
        return boottime() + self.link.timeout

    async def ask(self, request: Any, until: float, each: float = math.inf) -> Any:
        """The response, a Refusal or a Fault. May be repeated."""
        known = self.cluster.known
        answer = await self.link.call(request, until, min(each, self.each(math.inf)))
        return self._noticed(request, answer, known)

    async def ask_once(self, request: Any, until: float, each: float = math.inf) -> Told:
        """May be repeated as well, but whoever asks has to know."""
        known = self.cluster.known
        told = await self.link.call_told(request, until, min(each, self.each(math.inf)))
        return told._replace(answer=self._noticed(request, told.answer, known))

    async def ask_many(self, requests: Sequence[Any], until: float, each: float = math.inf) -> list[Any]:
        known = self.cluster.known
        each = min(each, self.each(math.inf))
        answers = await self.link.call_many(requests, until, each) if requests else []
        return [self._noticed(*pair, known) for pair in zip(requests, answers, strict=True)]

    def _noticed(self, request: Any, answer: Any, known: Known) -> Any:
        if not isinstance(answer, Fault | Refusal):
            epoch = self.cluster.epoch
            self.cluster.notice(request, answer, known)
            if self.cluster.epoch != epoch:
                self.leases.drop_all()
        return answer

    async def meet(self, until: float, each: float = math.inf, writes: bool = True) -> Unreachable | None:
        """None if the layout is this version's, or, without `writes`, if there is none yet."""
        cluster = self.cluster
        epoch = cluster.epoch
        if cluster.met == epoch:
            return None
        answer = await self.ask(meeting.request(self.keys.layout, writes), until, each)
        if isinstance(answer, Fault | Refusal):
            return failed(answer, was_sent=False)
        refusal = meeting.refusal(cluster.where, self.keys.root, answer)
        if refusal is None and writes:
            cluster.met = epoch
        return refusal

    def lost_lease(self, answer: Any, lease: Lease) -> bool:
        """The server does not know this lease: another one may do."""
        if not is_unknown_lease(answer):
            return False
        self.leases.drop(lease)
        return True


def failed(answer: Any, was_sent: bool | None = None) -> Unreachable:
    """`was_sent`: if that is not what the answer says."""
    fault = fault_of(answer) if isinstance(answer, Refusal) else answer
    sent = fault.was_sent if was_sent is None else was_sent
    return unreachable(fault.error, sent, fault.was_refused, fault.is_permanent)
