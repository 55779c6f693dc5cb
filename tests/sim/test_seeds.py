"""The production code on 500 seeds. A failing one is told with how to replay it.

`make sim` runs a million.
"""

from __future__ import annotations

from functools import cache

import pytest

from gripfast_lab.sim.report import minimised
from gripfast_lab.sim.runner import Chunk, Stop, Tally, Task, Worker, collector_off, ran_seed
from gripfast_lab.sim.scenarios import SCENARIOS
from gripfast_lab.sim.shrink import shrunk

CHUNK = 250
SEEDS = 500
REDIS = SCENARIOS["redis"]


@cache
def run(first: int) -> Tally:
    with collector_off():
        return Worker(Stop()).run(Chunk(Task(REDIS.name), range(first, first + CHUNK)))


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_nothing_that_must_not_happen_does(first: int) -> None:
    tally = run(first)
    if tally.failures:
        seed = tally.failures[0].seed
        smallest = shrunk(REDIS, ran_seed(REDIS, seed), Stop())
        pytest.fail(minimised(Task(REDIS.name), seed, smallest))
    assert tally.seeds == CHUNK
    assert tally.grants >= 10 * CHUNK
    assert sum(tally.faults.values()) >= 3 * CHUNK


def test_every_kind_of_fault_happens() -> None:
    assert {kind for first in (0, CHUNK) for kind in run(first).faults} == set(REDIS.faults)
