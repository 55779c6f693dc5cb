"""Semaphores and read/write locks on 300 seeds, and planted bugs of theirs: each is caught, and taken out again."""

from __future__ import annotations

from functools import cache

import pytest

from gripfast_lab.sim.mutants import Mutant
from gripfast_lab.sim.report import minimised
from gripfast_lab.sim.runner import Chunk, Stop, Tally, Task, Worker, collector_off, ran_seed
from gripfast_lab.sim.scenarios import SCENARIOS
from gripfast_lab.sim.shrink import shrunk
from sim.mutants_caught import check_that_it_is_caught, mutants_in

CHUNK = 150
SEEDS = 300
PERMITS = SCENARIOS["permits"]

each_mutant = pytest.mark.parametrize("mutant", mutants_in("permits"), ids=lambda mutant: mutant.name)


@cache
def run(first: int) -> Tally:
    with collector_off():
        return Worker(Stop()).run(Chunk(Task(PERMITS.name), range(first, first + CHUNK)))


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_nothing_that_must_not_happen_does(first: int) -> None:
    tally = run(first)
    if tally.failures:
        seed = tally.failures[0].seed
        smallest = shrunk(PERMITS, ran_seed(PERMITS, seed), Stop())
        pytest.fail(minimised(Task(PERMITS.name), seed, smallest))
    assert tally.seeds == CHUNK
    assert tally.grants >= 10 * CHUNK


def test_every_kind_of_fault_happens() -> None:
    assert {kind for first in range(0, SEEDS, CHUNK) for kind in run(first).faults} == set(PERMITS.faults)


@pytest.mark.in_turn(4)
@each_mutant
def test_it_is_caught_by_a_rule_and_only_with_the_bug_of_which_nothing_stays(mutant: Mutant) -> None:
    check_that_it_is_caught(mutant)
