"""What is announced while the one that looks is looking is not forgotten, wherever the threads are switched."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import gripfast.core
from core.upkeep_stage import Scene
from gripfast.core.soonest import Soonest
from support.switching import at_every_opcode

CORE = Path(gripfast.core.__file__).parent
DUE_SOON = 3.0
DUE_LATE = 30.0


def forgotten(begin: Callable[[Scene], Callable[[], object]], is_seen: Callable[[Scene], bool]) -> list[str]:
    """The places at which a lease that is granted right there is forgotten."""
    scenes: list[Scene] = []

    def begin_anew() -> tuple[Callable[[], object], Callable[[], object]]:
        scenes.append(Scene())
        return begin(scenes[-1]), scenes[-1].grant("soon", DUE_SOON)

    switches = [(where, is_seen(scenes[-1])) for where in at_every_opcode(CORE, begin_anew)]
    assert len(switches) > 20
    return [where for where, seen in switches if not seen]


def test_a_lease_granted_at_any_point_of_a_round_of_the_watchdog_is_renewed() -> None:
    def begin(scene: Scene) -> Callable[[], object]:
        scene.now = scene.granted("late", DUE_LATE).renew_at
        return scene.go_round

    assert forgotten(begin, Scene.renews_what_is_due_soon) == []


def test_so_is_one_granted_during_a_round_that_finds_nothing_left_to_renew() -> None:
    def begin(scene: Scene) -> Callable[[], object]:
        state = scene.granted("late", DUE_LATE)
        scene.now = state.renew_at
        state.finish("released")
        return scene.go_round

    assert forgotten(begin, Scene.renews_what_is_due_soon) == []


def test_the_loss_of_a_lease_granted_while_losses_are_told_is_told() -> None:
    def begin(scene: Scene) -> Callable[[], object]:
        scene.now = scene.granted("late", DUE_LATE).deadline
        scene.granted("later", DUE_LATE)
        return scene.notices.tell

    assert forgotten(begin, Scene.tells_what_is_lost_soon) == []


def test_of_two_leases_granted_at_once_the_one_that_is_due_first_counts() -> None:
    def begin(scene: Scene) -> Callable[[], object]:
        return scene.grant("late", DUE_LATE)

    assert forgotten(begin, Scene.renews_what_is_due_soon) == []
    assert forgotten(begin, Scene.tells_what_is_lost_soon) == []


def test_a_look_that_was_broken_off_is_made_again() -> None:
    soonest = Soonest()
    soonest.announce(5.0)
    soonest.begin()
    soonest.announce(9.0)
    assert soonest.next() == -math.inf
    soonest.begin()
    soonest.end(7.0)
    assert soonest.next() == 7.0


def test_what_is_announced_in_vain_leaves_nothing_behind() -> None:
    soonest = Soonest()
    for moment in range(1000, 2000):
        soonest.announce(float(moment))
    assert len(soonest._moments) == 2
    assert soonest.next() == 1000.0
