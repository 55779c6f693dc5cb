"""A primary with replicas, and failovers: what each level lets happen, and planted bugs of theirs.

`python -m gripfast_lab.sim --scenario failover-2 --seeds 100000` runs more.
"""

from __future__ import annotations

from functools import cache

import pytest

from gripfast_lab.sim.mutants import Mutant
from gripfast_lab.sim.report import minimised
from gripfast_lab.sim.runner import Chunk, Stop, Tally, Task, Worker, collector_off, ran_seed
from gripfast_lab.sim.scenarios import SCENARIOS
from gripfast_lab.sim.shrink import shrunk
from sim.mutants_caught import check_that_it_is_caught, mutants_in

CHUNK = 60
LEVELS = ["failover-0", "failover-1", "failover-2"]
TWO_HOLDERS = {"failover-0": (5, CHUNK), "failover-1": (0, 4), "failover-2": (0, 0)}
"""In how many of the seeds there are, least and most."""

each_level = pytest.mark.parametrize("name", LEVELS)
each_mutant = pytest.mark.parametrize("mutant", mutants_in("failover"), ids=lambda mutant: mutant.name)


@cache
def run(name: str) -> Tally:
    with collector_off():
        return Worker(Stop()).run(Chunk(Task(name), range(CHUNK)))


@each_level
def test_nothing_that_must_not_happen_does(name: str) -> None:
    tally = run(name)
    if tally.failures:
        seed = tally.failures[0].seed
        smallest = shrunk(SCENARIOS[name], ran_seed(SCENARIOS[name], seed), Stop())
        pytest.fail(minimised(Task(name), seed, smallest))
    assert tally.seeds == CHUNK
    assert tally.grants >= 4 * CHUNK
    least, most = TWO_HOLDERS[name]
    assert least <= tally.two_holders <= most


def test_every_kind_of_fault_happens() -> None:
    fired = {kind for name in LEVELS for kind in run(name).faults}
    assert fired == set(SCENARIOS["failover-0"].faults)


def test_the_plans_have_every_kind_of_group() -> None:
    plans = [SCENARIOS["failover-1"].plan(seed) for seed in range(100)]
    assert {len(plan.nodes) for plan in plans} == {2, 3}
    assert {plan.copies is not None and plan.copies.is_established for plan in plans} == {True, False}
    assert all(any(fault.kind.startswith(("primary", "failed")) for fault in plan.faults) for plan in plans)


@pytest.mark.in_turn(3)
@each_mutant
def test_it_is_caught_by_a_rule_and_only_with_the_bug_of_which_nothing_stays(mutant: Mutant) -> None:
    check_that_it_is_caught(mutant)
