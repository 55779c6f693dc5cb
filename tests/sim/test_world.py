"""Virtual time, clocks, processes and chance: what everything else in the world stands on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripfast_lab.sim.chance import Chance
from gripfast_lab.sim.clocks import Clock
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.world import Promise, World


def process(world: World, offset: float = 0.0, rate: float = 1.0) -> Process:
    return Process(world, "p", Clock(offset, rate))


# Chance -------------------------------------------------------------------------------------------------------------


def test_the_numbers_of_a_seed_are_known_for_ever() -> None:
    """Another Python, another machine: if these change, no seed means what it meant."""
    chance = Chance(7)
    assert [chance.below(1000) for _ in range(5)] == [524, 302, 940, 883, 663]
    assert Chance(7).fork("x").random() == 0.8451655092156418


def test_a_fork_draws_nothing_and_is_another_stream() -> None:
    chance, other = Chance(1), Chance(1)
    chance.fork("a").random()
    assert chance.random() == other.random()
    assert Chance(1).fork("a").random() != Chance(1).fork("b").random()


@given(st.integers(0, 2**63), st.integers(1, 50))
def test_what_is_drawn_stays_within_its_bounds(seed: int, limit: int) -> None:
    chance = Chance(seed)
    for _ in range(20):
        assert 0.0 <= chance.random() < 1.0
        assert 0 <= chance.below(limit) < limit
        assert 2.0 <= chance.between(2.0, 3.0) < 3.0


# Clocks -------------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1e6), st.floats(0.9, 1.1), st.floats(0, 1e4))
def test_a_clock_reads_back_what_it_was_asked_for(offset: float, rate: float, ahead: float) -> None:
    clock = Clock(offset, rate)
    assert clock.read(clock.true_at(offset + ahead)) == pytest.approx(offset + ahead)


def test_faults_of_a_clock_may_overlap_and_are_over_in_any_order() -> None:
    clock = Clock(100.0)
    clock.stop(1.0)
    clock.speed_up(2.0, 0.5)
    assert clock.read(3.0) == 101.0
    assert clock.true_at(102.0) == math.inf
    clock.go_on(3.0)
    assert clock.read(5.0) == 102.0
    clock.speed_up(5.0, 2.0)
    assert clock.read(6.0) == 103.0


def test_a_jump_moves_the_clock_and_not_its_rate() -> None:
    clock = Clock(0.0, 2.0)
    clock.jump(1.0, -5.0)
    assert clock.read(2.0) == -1.0


# The world ----------------------------------------------------------------------------------------------------------


def test_moments_come_in_order_and_equal_ones_as_they_were_put() -> None:
    world = World()
    seen: list[tuple[float, str]] = []
    for moment, what in [(2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")]:
        world.at(moment, lambda what=what: seen.append((world.now, what)))
    world.run(10.0)
    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d")]


def test_a_run_stops_at_its_limit_and_goes_on_from_there() -> None:
    world = World()
    seen: list[float] = []
    world.at(5.0, lambda: seen.append(world.now))
    world.run(3.0)
    assert (seen, world.now) == ([], 3.0)
    world.run(10.0)
    assert seen == [5.0]


def test_what_goes_round_in_circles_is_ended() -> None:
    world = World()

    def again() -> None:
        world.at(world.now, again)

    again()
    with pytest.raises(RuntimeError, match="does not end"):
        world.run(1.0)


def test_everyone_who_waits_for_a_promise_goes_on_at_once() -> None:
    world = World()
    p = process(world)
    promise: Promise[str] = Promise()
    heard: list[str] = []

    async def wait() -> None:
        heard.append(await promise)

    for _ in range(2):
        p.start("waits", wait())
    promise.keep("now")
    promise.keep("too late")
    assert heard == ["now", "now"]
    assert not p.tasks


def test_a_cancelled_task_runs_its_clean_up_and_hears_nothing_more() -> None:
    p = process(World())
    promise: Promise[None] = Promise()
    seen: list[str] = []

    async def wait() -> None:
        try:
            await promise
            seen.append("heard")
        finally:
            seen.append("cleaned up")

    p.start("waits", wait()).cancel()
    promise.keep(None)
    assert seen == ["cleaned up"]


# Processes ----------------------------------------------------------------------------------------------------------


def test_a_timer_fires_when_the_process_s_own_clock_says_so() -> None:
    world = World()
    p = process(world, offset=50.0, rate=0.5)
    fired: list[float] = []
    p.at(51.0, lambda: fired.append(world.now))
    world.run(10.0)
    assert fired == [pytest.approx(2.0)]
    assert p.now() >= 51.0


def test_a_cancelled_timer_does_not() -> None:
    world = World()
    p = process(world)
    p.at(1.0, lambda: pytest.fail("it was cancelled")).cancel()
    world.run(10.0)


def test_what_a_paused_process_missed_happens_in_order_when_it_goes_on() -> None:
    world = World()
    p = process(world)
    seen: list[tuple[str, float]] = []
    p.at(1.0, lambda: seen.append(("a", world.now)))
    p.at(2.0, lambda: seen.append(("b", world.now)))
    p.pause()
    world.at(5.0, p.go_on)
    world.run(10.0)
    assert seen == [("a", 5.0), ("b", 5.0)]


def test_a_timer_of_a_machine_that_stood_still_comes_later_by_that() -> None:
    world = World()
    p = process(world)
    fired: list[float] = []
    p.at(2.0, lambda: fired.append(world.now))
    p.pause()
    p.clock.stop(0.0)

    def over() -> None:
        p.clock.go_on(world.now)
        p.go_on()

    world.at(5.0, over)
    world.run(10.0)
    assert fired == [pytest.approx(7.0)]


def test_the_dead_do_nothing() -> None:
    world = World()
    p = process(world)
    p.at(1.0, lambda: pytest.fail("it is dead"))
    p.die()
    world.run(10.0)


def test_timers_follow_a_clock_whose_rate_changes() -> None:
    world = World()
    one = process(world)
    fired: list[float] = []
    one.speed_up(0.5)
    for local in (1.0, 3.0):
        one.at(local, lambda: fired.append(world.now))
    world.at(1.0, one.speed_up, 4.0)  # it shows 0.5 then, and goes twice as fast as the world
    world.run(10.0)
    assert fired == pytest.approx([1.25, 2.25])
