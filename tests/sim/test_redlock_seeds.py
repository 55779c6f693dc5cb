"""Redlock on three and on five simulated nodes: some seeds of each, every time, with every fault of the world.

`python -m gripfast_lab.sim --scenario redlock5 --seeds 100000` runs more.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from gripfast_lab.sim.plan import Fault, Plan, Quorum
from gripfast_lab.sim.report import minimised
from gripfast_lab.sim.runner import Chunk, Stop, Tally, Task, Worker, collector_off, ran_seed
from gripfast_lab.sim.scenarios import SCENARIOS
from gripfast_lab.sim.shrink import shrunk

CHUNK = 50
GRANTS = {"redlock3": 8, "redlock5": 6}
"""A run, on average; with five nodes there are fewer errands."""
CHUNKS = {"redlock3": 3, "redlock5": 2}
each_scenario = pytest.mark.parametrize("name", CHUNKS)


@cache
def run(name: str, first: int) -> Tally:
    with collector_off():
        return Worker(Stop()).run(Chunk(Task(name), range(first, first + CHUNK)))


@pytest.mark.parametrize(
    ("name", "first"), [(name, CHUNK * at) for name, chunks in CHUNKS.items() for at in range(chunks)]
)
def test_nothing_that_must_not_happen_does(name: str, first: int) -> None:
    tally = run(name, first)
    if tally.failures:
        seed = tally.failures[0].seed
        smallest = shrunk(SCENARIOS[name], ran_seed(SCENARIOS[name], seed), Stop())
        pytest.fail(minimised(Task(name), seed, smallest))
    assert tally.seeds == CHUNK
    assert tally.grants >= GRANTS[name] * CHUNK
    assert sum(tally.faults.values()) >= 3 * CHUNK


@each_scenario
def test_every_kind_of_fault_happens(name: str) -> None:
    fired = {kind for at in range(CHUNKS[name]) for kind in run(name, CHUNK * at).faults}
    assert fired == set(SCENARIOS[name].faults)


@each_scenario
def test_the_plans_have_every_kind_of_trouble(name: str) -> None:
    plans = [SCENARIOS[name].plan(seed) for seed in range(300)]
    assert {len(plan.nodes) for plan in plans} == {SCENARIOS[name].nodes}
    assert {bool(plan.quorum and plan.quorum.grace) for plan in plans} == {True, False}
    assert {bool(plan.quorum and plan.quorum.is_established) for plan in plans} == {True, False}
    affected = {len(fault.nodes) for plan in plans for fault in plan.faults if fault.nodes}
    assert affected == set(range(1, SCENARIOS[name].nodes + 1)) - ({4} if name == "redlock5" else set())
    assert max(map(clocks_off, plans)) > 24 * 3600.0


def clocks_off(plan: Plan) -> float:
    """Seconds between the wall clocks of its processes."""
    walls = [host.wall for host in plan.hosts]
    return max(walls) - min(walls)


@pytest.mark.parametrize("kind", ["node crashed", "node paused", "node loading", "memory lost"])
def test_who_asks_is_never_told_that_a_majority_is_out_of_reach_while_one_node_of_three_is(kind: str) -> None:
    redlock = SCENARIOS["redlock3"]
    for seed in range(8):
        drawn = redlock.plan(seed)
        fault = Fault(kind, 0.0, drawn.heals_at, "", 0.0, nodes=(seed % 3,))
        quorum = Quorum(drawn.longest_ttl, is_established=True)
        outcome = redlock.run(replace(drawn, items=(*drawn.errands, fault), quorum=quorum))
        assert outcome.violations == []
        assert [event for event in outcome.history if event.kind == "unreachable"] == []
        assert outcome.grants >= len(drawn.names)
