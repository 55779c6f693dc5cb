"""What the simulation has found in the production code, each as the smallest plan that showed it.

Plans, not seeds: what a seed becomes changes whenever the scenario draws something new.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from dataclasses import replace

import pytest

from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Entry
from gripfast.errors import StoreUnavailable
from gripfast_lab.sim.plan import Errand, Fault, Host, Item, Plan, Quorum
from gripfast_lab.sim.runner import ran_seed
from gripfast_lab.sim.scenarios import SCENARIOS, Outcome
from gripfast_lab.sim.stage import Stage

ERRAND = Errand(
    actor="p0/a",
    name="job",
    after=0.0,
    ttl=0.5,
    wait=None,
    renews=True,
    max_hold=None,
    works=0.1,
    heeds=True,
    looks=1,
    writes=True,
    extends=None,
    ending="release",
)


def plan(*items: Item, seed: int = 1) -> Plan:
    return Plan(
        seed=seed,
        items=items,
        hosts=tuple(Host(f"p{number}", 1000.0, 1.0, shares=number == 1) for number in range(2)),
        nodes=(Host("node", 1.7e9, 1.0, False),),
        names=("job",),
        request_timeout=0.3,
        connect_patience=2.0,
        heals_at=5.0,
        closes_at_once=False,
        is_warm=True,
    )


def run(*items: Item, seed: int = 1) -> Outcome:
    outcome = SCENARIOS["redis"].run(plan(*items, seed=seed))
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

    def watched(state: LeaseState, entry: Entry) -> object:
        states.append(weakref.ref(state))
        return enter(state, entry)

    runtime.env.ledger.enter = watched  # type: ignore[method-assign, assignment]
    stage.nodes[0].crash()

    async def ask() -> None:
        with pytest.raises(StoreUnavailable):
            await runtime.acquire(Want("job", "job", 1.0, True, None, None), None)

    gc.disable()
    try:
        runtime.process.start("p0/a", ask())
        stage.world.run(60.0)
        assert [state() for state in states] == [None]
    finally:
        gc.enable()


def test_a_release_under_way_while_its_client_is_closed_does_not_fail() -> None:
    """Seed 3347: asked again on a connection that was closed, it raised that the client is closed."""
    outcome = run(
        ERRAND._replace(actor="p1/a", wait=0.0, works=0.05),
        Fault("connections half open", at=0.02, lasts=0.0, target="p1", size=0.0),
        Fault("client closed", at=0.15, lasts=0.0, target="p1", size=0.0),
    )
    assert [event.kind for event in outcome.history if event.who == "p1/a"][-2:] == ["releasing", "released"]


@pytest.mark.parametrize("process", ["p0", "p1"])
def test_a_claim_under_way_while_its_client_is_closed_leaves_no_place_in_line(process: str) -> None:
    """Seed 59: it had to subscribe anew, and then found its client closed, with its place already taken."""
    for seed in range(20):
        run(
            ERRAND._replace(actor="p0/holder" if process == "p1" else "p1/holder", ttl=9.0, works=20.0),
            ERRAND._replace(actor=f"{process}/a", after=0.2, ttl=9.0),
            ERRAND._replace(actor=f"{process}/b", after=0.3, ttl=9.0),
            Fault("process paused", at=1.5, lasts=8.0, target=process, size=0.0),
            Fault("client closed", at=4.5, lasts=0.0, target=process, size=0.0),
            Fault("reset at one end", at=5.5, lasts=0.0, target=process, size=0.0),
            seed=seed,
        )


@pytest.mark.parametrize("process", ["p0", "p1"])
def test_closing_a_client_under_a_release_does_not_make_it_a_loss(process: str) -> None:
    """Seed 3549: the close had given the lock back before the release came, which took that for a loss."""
    for seed in range(100):
        outcome = run(
            ERRAND._replace(actor=f"{process}/a", works=0.05, writes=False),
            Fault("slow network", at=0.04, lasts=0.2, target=process, size=0.05),
            Fault("client closed", at=0.055, lasts=0.0, target=process, size=0.0),
            seed=seed,
        )
        assert not [event for event in outcome.history if event.kind == "lost"]


def test_a_lease_that_has_run_out_when_its_client_is_closed_is_told_as_lost() -> None:
    """Seed 2011788: a process wakes up too late and closes its client first, and on_lost was never called."""
    outcome = run(
        ERRAND._replace(actor="p0/a", ttl=1.0, works=3.0, looks=3),
        Fault("process paused", at=0.5, lasts=2.0, target="p0", size=0.0),
        Fault("client closed", at=0.6, lasts=0.0, target="p0", size=0.0),
    )
    assert [event.note for event in outcome.history if event.kind == "lost"][:1] == ["expired"]


@pytest.mark.parametrize("process", ["p0", "p1"])
def test_a_short_max_hold_counts_from_the_grant_and_not_from_the_last_time_the_waiter_asked(process: str) -> None:
    """Seed 2042164: it was over when the lock was handed over, so the waiter gave it back and lost its place."""
    outcome = run(
        ERRAND._replace(actor="p1/holder" if process == "p0" else "p0/holder", ttl=12.0, works=2.8),
        ERRAND._replace(actor=f"{process}/a", after=0.1, ttl=12.0, max_hold=0.5, works=0.1),
    )
    assert [event.who for event in outcome.history if event.kind == "granted"][1:] == [f"{process}/a"]
    assert len([event for event in outcome.history if event.kind == "handed"]) == 2


@pytest.mark.parametrize("keep", [None, 60.0])
@pytest.mark.parametrize("process", ["p0", "p1"])
def test_a_clean_up_behind_an_unanswered_claim_does_not_free_what_could_not_be_kept_yet(
    process: str, keep: float | None
) -> None:
    """The server was loading: the name was not left to a marker, but the clean-up of a late claim was sent."""
    other = "p1" if process == "p0" else "p0"
    for gap in (0.02, 0.05, 0.1):
        lock = ERRAND._replace(writes=False, ttl=3.0, keep=keep)
        items = (
            lock._replace(actor=f"{other}/holder", works=1.6, ending="fail"),
            lock._replace(actor=f"{process}/a", after=0.1, works=0.05, min_hold=None if keep else 6.0),
            Fault("late request", at=1.0, lasts=1.2, target=process, size=0.0),
            Fault("node loading", at=1.63, lasts=0.677 - gap, target="", size=0.0),
        )
        outcome = SCENARIOS["once"].run(replace(plan(*items), has_family=True))
        assert outcome.violations == []
        assert [event.who for event in outcome.history if event.kind == "kept"] == [f"{process}/a#1"]


@pytest.mark.parametrize("process", ["p0", "p1"])
def test_a_late_claim_does_not_bring_back_the_owner_of_a_detached_lease(process: str) -> None:
    """Seed 1982 of once: it arrived when the detached lease was over, and nobody knew of what it got."""
    other = "p1" if process == "p0" else "p0"
    items = (
        ERRAND._replace(actor=f"{other}/holder", ttl=3.0, works=1.6, writes=False),
        ERRAND._replace(actor=f"{process}/a", after=0.1, ttl=3.0, ending="detach", detaches=0.2, writes=False),
        Fault("late request", at=1.0, lasts=1.2, target=process, size=0.0),
    )
    outcome = SCENARIOS["once"].run(replace(plan(*items), has_family=True))
    assert outcome.violations == []
    handed = [event.who for event in outcome.history if event.kind == "handed"]
    assert handed == [f"{other}/holder#1", f"{process}/a#1", f"{process}/a#1"]


@pytest.mark.parametrize("process", ["p0", "p1"])
def test_a_waiter_of_a_closed_client_does_not_ask_again_after_it_has_subscribed(process: str) -> None:
    """Seed 72402 of once: its client had given everything back, and then could not be reached any more."""
    other = "p1" if process == "p0" else "p0"
    for place, (after, cut) in enumerate(itertools.product(range(60), (0.0005, 0.001, 0.002, 0.003))):
        at = 0.2 + after * 0.0001
        run(
            ERRAND._replace(actor=f"{other}/holder", ttl=9.0, works=20.0),
            ERRAND._replace(actor=f"{process}/a", after=0.2, ttl=9.0),
            Fault("client closed", at=at, lasts=0.0, target=process, size=0.0),
            Fault("cut there", at=at + cut, lasts=5.0, target=process, size=0.9),
            seed=place,
        )


def test_a_node_that_falls_silent_between_the_rounds_of_redlock_does_not_cost_the_attempt() -> None:
    """Seed 88003944 of redlock5: the second round asked nobody but the three who had answered the first one soonest."""
    for paused_at in range(71, 76):
        first = ERRAND._replace(actor="p1/b", after=0.028, ttl=0.05, works=0.0)
        second = ERRAND._replace(actor="p0/b", after=0.07, ttl=0.05, wait=0.0, works=0.0)
        pause = Fault("node paused", at=paused_at / 1000, lasts=0.05, target="", size=0.0, nodes=(3,))
        outcome = SCENARIOS["redlock5"].run(five_nodes(first, second, pause))
        assert outcome.violations == []
        assert outcome.grants == 2


def five_nodes(*items: Item) -> Plan:
    """The first process to come is ahead of the other by its clock: who comes second needs a second round."""
    walls = {"p0": 1.6999e9, "p1": 1.7e9, "witness": 1.7e9}
    return replace(
        plan(*items, seed=88003944),
        hosts=tuple(Host(name, 1000.0, 1.0, shares=False, wall=wall) for name, wall in walls.items()),
        nodes=tuple(Host(f"n{number}", 1.7e9, 1.0, shares=False, wall=1.7e9) for number in range(5)),
        request_timeout=0.05,
        heals_at=1.0,
        quorum=Quorum(grace=0.125, is_established=True),
    )


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        ("once", 75387),  # after a jump of the server's clock it is not known where a waiter stands
        ("once", 81070),  # the reply of a release was lost, and the rest of its min_hold was over when it was repeated
        ("once", 26144),  # a waiter that joined late, and died, was forgotten before its time: the queue expired
        ("once", 74268),  # the same, of one that was paused
        ("permits", 59897),  # a client was closed while its downgrade was under way, which the holder did not expect
        ("permits", 70729),  # a waiter that was not seen for too long, but not dropped yet, kept its position
        ("etcd", 3771),  # a claim was granted by the key that a restored backup had of it: no renewal
        ("etcd", 5000428),  # with a short request_timeout, one member that was paused took all of it
        ("permits", 41592),  # a timer that was set while a clock was slow fired late when it was right again
    ],
)
def test_a_seed_that_failed_once_does_not_fail_again(scenario: str, seed: int) -> None:
    outcome = ran_seed(SCENARIOS[scenario], seed)
    assert outcome.violations == []
