"""A failing plan is made as small as it gets."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripfast_lab.sim.checks import Violation
from gripfast_lab.sim.runner import CRASHED, Stop, ran_seed
from gripfast_lab.sim.shrink import Shrunk, shrunk, smallest
from sim.fake_scenario import ITEMS, Plan, Scenario, needs_two, raises

SEED = 33


def minimised(scenario: Any, seed: int = SEED, **limits: int) -> Shrunk:
    return shrunk(scenario, ran_seed(scenario, seed), Stop(), **limits)


@given(st.integers(0, 40), st.data())
def test_exactly_what_is_needed_is_left(count: int, data: st.DataObject) -> None:
    items = range(count)
    needed = data.draw(st.sets(st.sampled_from(items))) if count else set()
    assert smallest(items, lambda some: needed <= set(some)) == tuple(sorted(needed))


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 30))
def test_without_any_one_of_them_it_is_not_enough(items: list[int], wanted: int) -> None:
    def is_enough(some: tuple[int, ...]) -> bool:
        return sum(some) % 31 == wanted

    kept = smallest(items, is_enough)
    if is_enough(tuple(items)):
        assert is_enough(kept)
        assert not any(is_enough(kept[:place] + kept[place + 1 :]) for place in range(len(kept)))


def test_one_of_many_is_found_in_few_tries() -> None:
    tries = []
    assert smallest(range(1000), lambda some: bool(tries.append(some)) or 700 in some) == (700,)
    assert len(tries) < 50


def test_equal_items_are_told_apart_by_their_place() -> None:
    assert smallest([1, 1, 1, 1], lambda some: len(some) >= 2) == (1, 1)


def test_the_plan_keeps_what_breaks_the_first_rule_and_its_settings() -> None:
    result: Any = minimised(Scenario("bad", needs_two))
    assert result.after.plan == Plan(SEED, (3, 7))
    assert [violation.rule for violation in result.after.violations] == ["overlap"]
    assert (len(result.before.history), len(result.after.history)) == (len(ITEMS), 2)
    assert result.rule == "overlap"


def test_another_rule_does_not_count() -> None:
    def judge(plan: Plan) -> list[Violation]:
        return [Violation("overlap" if 3 in plan.items else "token", "a", "always something")]

    assert minimised(Scenario("swaps", judge)).after.plan.items == (3,)


def test_what_fails_without_any_item_is_left_with_none() -> None:
    result = minimised(Scenario("always", lambda plan: [Violation("late", "a", "always")]))
    assert (result.after.plan.items, result.runs) == ((), 1)


def test_a_plan_that_raises_is_made_smaller_too() -> None:
    result = minimised(Scenario("raises", raises), seed=4)
    assert (result.rule, result.after.plan.items) == (CRASHED, (5,))


def test_a_seed_without_a_plan_stays_as_it_is() -> None:
    @dataclass(frozen=True)
    class Planless(Scenario):
        def plan(self, seed: int) -> Plan:
            raise LookupError(seed)

    result = minimised(Planless("planless", needs_two))
    assert (result.rule, result.runs) == (CRASHED, 0)


@pytest.mark.parametrize("runs", [0, 1, 5])
def test_after_so_many_runs_the_smallest_so_far_is_taken(runs: int) -> None:
    result = minimised(Scenario("bad", needs_two), runs_at_most=runs)
    assert result.runs == runs
    assert {3, 7} <= set(result.after.plan.items)


def test_a_stop_ends_it_with_the_smallest_so_far() -> None:
    stop = Stop()

    def judge(plan: Plan) -> list[Violation]:
        if len(plan.items) < len(ITEMS):
            stop.ask()
        return [Violation("late", "a", "always")]

    scenario: Any = Scenario("stops", judge)
    failing = scenario.run(scenario.plan(SEED))
    result = shrunk(scenario, failing, stop)
    assert (result.runs, result.after.plan.items) == (1, ())
