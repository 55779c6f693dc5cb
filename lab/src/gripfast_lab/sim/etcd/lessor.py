"""When a member has leases revoked: only a leader does, by its own clock, or one that takes itself for the leader.

A leader counts a lease from when it has applied its grant. A new one begins anew, in full. A keep-alive begins anew at
this member alone: nobody else is asked, and nobody else knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gripfast.stores.etcd.messages import LeaseRevokeRequest
from gripfast_lab.sim.etcd.cluster import ELECTION, Proposal

if TYPE_CHECKING:
    from gripfast_lab.sim.etcd.member import Member

LOOKS_EVERY = 0.5
RETRY = 3.0
"""Seconds after which a revocation is proposed again."""


class Lessor:
    def __init__(self, member: Member) -> None:
        self._member = member
        self._cluster = member.cluster
        self.leads = False
        """As far as it knows."""
        self.ends: dict[int, float] = {}
        """By its clock."""

    def promote(self) -> None:
        self.leads = True
        self.ends.clear()
        extra = ELECTION * self._cluster.chance.random()
        for number, lease in self._cluster.state.leases.items():
            self._count(number, lease.ttl + extra)

    def demote(self) -> None:
        self.leads = False
        self.ends.clear()

    def granted(self, number: int, ttl: int) -> None:
        if self.leads:
            self._count(number, ttl)

    def revoked(self, number: int) -> None:
        self.ends.pop(number, None)

    def keep_alive(self, number: int) -> int:
        """Its ttl; 0: there is no such lease."""
        ends = self.ends.get(number)
        if ends is None or ends <= self._member.now():
            return 0
        lease = self._cluster.state.leases.get(number)
        ttl = lease.ttl if lease is not None else 1  # it was revoked, but not here
        self._count(number, ttl)
        return ttl

    def left(self, number: int) -> float:
        return self.ends.get(number, 0.0) - self._member.now()

    def _count(self, number: int, seconds: float) -> None:
        self.ends[number] = self._member.now() + seconds
        self._look_at(number, self.ends[number])

    def _look_at(self, number: int, local: float) -> None:
        late = LOOKS_EVERY * self._cluster.chance.random()
        self._cluster.world.at(self._member.clock.true_at(local) + late, self._member.do, self._look, number)

    def _look(self, number: int) -> None:
        ends = self.ends.get(number)
        if ends is None or not self.leads or not self._member.is_up or ends > self._member.now():
            return
        self._cluster.propose(self._member, Proposal(LeaseRevokeRequest(number)))
        self._look_at(number, self._member.now() + RETRY)
