"""The lock on etcd on 150 seeds, and planted bugs of it: each is caught.

`python -m gripfast_lab.sim --scenario etcd --seeds 100000` runs more.
"""

from __future__ import annotations

from functools import cache

import pytest

from gripfast.machine import boottime, shared_boottime
from gripfast_lab.sim.etcd.faults import AFTER
from gripfast_lab.sim.mutants import Mutant
from gripfast_lab.sim.plan import WITNESS, Errand
from gripfast_lab.sim.report import minimised
from gripfast_lab.sim.runner import Chunk, Stop, Tally, Task, Worker, collector_off, ran_seed
from gripfast_lab.sim.scenarios import SCENARIOS
from gripfast_lab.sim.shrink import shrunk
from sim.mutants_caught import check_that_it_is_caught, mutants_in

SEEDS = 150
ETCD = SCENARIOS["etcd"]

each_mutant = pytest.mark.parametrize("mutant", mutants_in("etcd"), ids=lambda mutant: mutant.name)


@cache
def run() -> Tally:
    with collector_off():
        return Worker(Stop()).run(Chunk(Task(ETCD.name), range(SEEDS)))


def test_nothing_that_must_not_happen_does() -> None:
    tally = run()
    if tally.failures:
        seed = tally.failures[0].seed
        pytest.fail(minimised(Task(ETCD.name), seed, shrunk(ETCD, ran_seed(ETCD, seed), Stop())))
    assert tally.seeds == SEEDS
    assert tally.grants >= 5 * SEEDS
    assert sum(tally.faults.values()) >= 3 * SEEDS


def test_every_kind_of_fault_happens() -> None:
    assert set(run().faults) == set(ETCD.faults)


def test_the_clock_of_this_process_is_its_own_again() -> None:
    run()
    assert abs(boottime() - shared_boottime()) < 1.0


def test_the_last_errands_begin_when_an_election_may_be_over() -> None:
    """Otherwise one could be done before it counts, and nobody would ask for its lock again."""
    for plan in map(ETCD.plan, range(100)):
        last = [item for item in plan.items if isinstance(item, Errand) and item.actor.startswith(WITNESS)]
        assert last
        assert all(errand.after > plan.heals_at + AFTER for errand in last)


def test_the_plans_have_every_kind_of_cluster() -> None:
    found = [plan.cluster for plan in map(ETCD.plan, range(100)) if plan.cluster is not None]
    assert len(found) == 100
    assert {cluster.leader for cluster in found} == {0, 1, 2}
    assert {cluster.least_ttl for cluster in found} == {1, 2}
    assert {cluster.loses_deletes for cluster in found} == {True, False}
    assert {len(known) for cluster in found for _, known in cluster.endpoints} == {1, 3}


@pytest.mark.in_turn(4)
@each_mutant
def test_it_is_caught_by_a_rule_and_only_with_the_bug_of_which_nothing_stays(mutant: Mutant) -> None:
    check_that_it_is_caught(mutant)
