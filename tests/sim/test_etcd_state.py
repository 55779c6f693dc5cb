"""The simulated etcd answers as a real one does: random requests, transactions, leases, watches, compactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gripfast.stores.etcd.messages import (
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    RangeRequest,
    RangeResponse,
    TxnRequest,
    TxnResponse,
)
from gripfast_lab.sim.etcd.state import DOES, State
from gripfast_lab.sim.etcd.watcher import Watcher
from sim.etcd_pair import Pair, compare, pair_with_etcd


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with pair_with_etcd() as pair:
        yield pair


@pytest.mark.parametrize("seed", range(0, 30, 10))
def test_the_answers_are_those_of_a_real_etcd(pair: Pair, seed: int) -> None:
    for each in range(seed, seed + 10):
        compare(pair, each)


# The comparison would notice ------------------------------------------------------------------------------------------


def compares_come_late(patch: pytest.MonkeyPatch) -> None:
    """A nested transaction is decided when the operations before it are done."""

    def run_txn(state: State, request: TxnRequest) -> TxnResponse:
        succeeded = all(state._holds(each) for each in request.compare)
        ops = request.success if succeeded else request.failure
        responses = tuple(run_txn(state, op) if isinstance(op, TxnRequest) else DOES[type(op)](state, op) for op in ops)
        return TxnResponse(state._header, succeeded, responses)

    patch.setitem(DOES, TxnRequest, run_txn)


def counts_what_fits(patch: pytest.MonkeyPatch) -> None:
    original = State._range
    patch.setitem(DOES, RangeRequest, lambda state, request: _counted(original(state, request), request))


def _counted(response: RangeResponse, request: RangeRequest) -> RangeResponse:
    return response if request.count_only else response._replace(total=len(response.kvs))


def revocations_have_no_revision(patch: pytest.MonkeyPatch) -> None:
    original = State._revoke

    def revoke(state: State, request: LeaseRevokeRequest) -> LeaseRevokeResponse:
        response = original(state, request)
        state._has_written = False
        return response

    patch.setitem(DOES, LeaseRevokeRequest, revoke)


def a_lease_is_granted_twice(patch: pytest.MonkeyPatch) -> None:
    original = State._grant

    def grant(state: State, request: LeaseGrantRequest) -> LeaseGrantResponse:
        state.leases.pop(request.id, None)
        return original(state, request)

    patch.setitem(DOES, LeaseGrantRequest, grant)


def a_put_stays_on_its_old_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "_detach", lambda state, kv: None)


def deletions_survive_a_compaction(patch: pytest.MonkeyPatch) -> None:
    original = Watcher.begin
    patch.setattr(Watcher, "begin", lambda watcher, state, loses_deletes: original(watcher, state, False))


@pytest.mark.parametrize(
    "plant",
    [
        compares_come_late,
        counts_what_fits,
        revocations_have_no_revision,
        a_lease_is_granted_twice,
        a_put_stays_on_its_old_lease,
        deletions_survive_a_compaction,
    ],
    ids=lambda plant: plant.__name__.replace("_", " "),
)
@pytest.mark.in_turn(2)
def test_a_planted_difference_is_caught(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    monkeypatch.setattr("sim.etcd_pair.SLOW_WATCH", 1.0)
    with monkeypatch.context() as patch, pytest.raises((AssertionError, KeyError)):
        plant(patch)
        for seed in range(1000, 1100):
            compare(pair, seed)
