"""What the simulation has found in the production code, each as the smallest plan that showed it.

Plans, not seeds: what a seed becomes changes whenever the scenario draws something new.
"""

from __future__ import annotations

import gc
import weakref

import pytest

from holdfast.core.lease import LeaseState, Want
from holdfast.errors import StoreUnavailable
from holdfast.sim.plan import Errand, Fault, Host, Item, Plan
from holdfast.sim.scenarios import SCENARIOS, Outcome
from holdfast.sim.stage import Stage

ERRAND = Errand(
    actor="p0/a",
    name="job",
    after=0.0,
    ttl=0.5,
    wait=None,
    renews=True,
    max_hold=None,
    works=0.1,
    looks=1,
    writes=True,
    extends=None,
    ending="release",
)


def plan(*items: Item) -> Plan:
    return Plan(
        seed=1,
        items=items,
        hosts=tuple(Host(f"p{number}", 1000.0, 1.0, shares=number == 1) for number in range(2)),
        node=Host("node", 1.7e9, 1.0, False),
        names=("job",),
        request_timeout=0.3,
        connect_patience=2.0,
        heals_at=5.0,
        closes_at_once=False,
        is_warm=True,
    )


def run(*items: Item) -> Outcome:
    outcome = SCENARIOS["redis"].run(plan(*items))
    assert outcome.violations == []
    return outcome


@pytest.mark.parametrize("ttl", [0.4, 0.5, 0.8])
def test_a_failed_extend_does_not_keep_a_lease_that_is_not_to_be_renewed(ttl: float) -> None:
    """Seed 11897: it was tried again, and then renewed in every round of the watchdog, without a pause, for ever."""
    outcome = run(
        ERRAND._replace(renews=False, works=1.2, looks=6, extends=ttl),
        Fault("node loading", at=0.15, lasts=0.1, target="", size=0.0),
    )
    assert [event.note for event in outcome.history if event.kind == "lost"] == ["expired", "expired"]


def test_an_attempt_that_could_not_reach_the_engine_leaves_no_cycle_behind() -> None:
    """Found by a history that differed with the collector on: the error kept the frames, and these the lease."""
    stage = Stage(plan())
    runtime = stage.runtimes["p0"]
    states: list[weakref.ref[LeaseState]] = []
    enter = runtime.env.ledger.enter

    def watched(state: LeaseState) -> object:
        states.append(weakref.ref(state))
        return enter(state)

    runtime.env.ledger.enter = watched  # type: ignore[method-assign, assignment]
    stage.node.crash()

    async def ask() -> None:
        with pytest.raises(StoreUnavailable):
            await runtime.acquire(Want("job", 1.0, True, None, None), None)

    gc.disable()
    try:
        runtime.process.start("p0/a", ask())
        stage.world.run(60.0)
        assert [state() for state in states] == [None]
    finally:
        gc.enable()
