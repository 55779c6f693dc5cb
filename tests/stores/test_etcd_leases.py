"""Which lease of etcd's a key is put under: new ones, dated by their sending, one for all claims of a while."""

import asyncio
from typing import Any

import pytest

from gripfast.core import rules
from gripfast.stores.etcd import leases
from gripfast.stores.etcd.faults import LEASE_EXISTS
from gripfast.stores.etcd.leases import EARLY, OLDEST, Lease, Leases, whole
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.messages import LeaseGrantRequest, LeaseGrantResponse

TTL = 30.0
UNTIL = 1e9


class Cluster:
    """What etcd does about leases: an id is granted once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, least: int = 2) -> None:
        self.now = 1000.0
        self.granted: dict[int, int] = {}
        self.asked = 0
        self.least = least
        self.takes = 0.0
        monkeypatch.setattr(leases, "boottime", lambda: self.now)

    async def ask(self, request: LeaseGrantRequest, until: float, each: float) -> Any:
        self.asked += 1
        self.now += self.takes
        await asyncio.sleep(0)
        if request.id in self.granted:
            return Refusal(9, LEASE_EXISTS, "here")
        self.granted[request.id] = max(request.ttl, self.least)
        return LeaseGrantResponse(id=request.id, ttl=self.granted[request.id])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def claims(cluster: Cluster, its: Leases, times: int = 1, ttl: float = TTL) -> list[Lease]:
    async def all_at_once() -> Any:
        return await asyncio.gather(*(its.for_claim(ttl, UNTIL, 1.0) for _ in range(times)))

    return list(asyncio.run(all_at_once()))


def renewal(its: Leases, ttl: float = TTL) -> Lease:
    found = asyncio.run(its.for_renewal(ttl, UNTIL, 1.0))
    assert isinstance(found, Lease)
    return found


def test_a_lease_is_dated_by_the_sending_of_its_grant(cluster: Cluster) -> None:
    cluster.takes = 5.0
    (lease,) = claims(cluster, Leases(cluster.ask))
    assert (lease.sent, lease.seconds, lease.ends) == (1000.0, 30, 1030.0)


def test_claims_share_a_lease_while_it_is_young_and_no_date_is_old(cluster: Cluster) -> None:
    its = Leases(cluster.ask)
    for _ in range(200):
        (lease,) = claims(cluster, its)
        assert cluster.now - lease.date(TTL, cluster.now) <= OLDEST * TTL
        cluster.now += TTL / 100
    assert len(cluster.granted) == pytest.approx(2 / EARLY, abs=10)


def test_claims_that_come_together_get_one_lease(cluster: Cluster) -> None:
    assert len({lease.id for lease in claims(cluster, Leases(cluster.ask), 50)}) == 1


def test_only_one_of_many_claims_gets_the_next_lease(cluster: Cluster) -> None:
    its = Leases(cluster.ask)
    claims(cluster, its)
    cluster.now += (EARLY + OLDEST) / 2 * TTL
    claims(cluster, its, 50)
    assert cluster.asked == 2


def test_a_renewal_always_lasts_for_its_whole_ttl(cluster: Cluster) -> None:
    its = Leases(cluster.ask)
    for _ in range(5):
        cluster.now += 0.001
        now = cluster.now
        assert renewal(its).date(TTL, now) >= now
    assert len(cluster.granted) == 5


@pytest.mark.parametrize("ttl", [0.01, 0.5, 1.0, 1.5, 2.0, 29.5, 30.0, 86400.0])
@pytest.mark.parametrize("age", [0.0, 0.3, 1.4])
def test_no_date_lets_a_slow_clock_outlive_a_lease_that_a_fast_one_counts(ttl: float, age: float) -> None:
    """Both may be off: the client's by the drift that it takes off, the server's by that of the whole lease."""
    lease = Lease(1, 1000.0, max(2, whole(ttl)))
    believed = rules.deadline(lease.date(ttl, 1000.0 + age), ttl)
    assert believed <= lease.ends - rules.drift(lease.seconds) + 1e-9


def test_a_lease_that_the_server_does_not_know_is_not_used_again(cluster: Cluster) -> None:
    its = Leases(cluster.ask)
    (lease,) = claims(cluster, its, ttl=1.0)  # of which the server made two seconds
    its.drop(lease)
    assert claims(cluster, its, ttl=1.0)[0].id != lease.id
