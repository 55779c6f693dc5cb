"""The rotation of the sample: every test runs over memory and two more stores, and the turns leave nothing out."""

from collections import Counter

import pytest

from support.colours import COLOURS
from support.sample import FAR, NEAR, is_in_turn, is_one_of
from support.stores import STORES

EVERYTHING = {(store.name, colour) for store in STORES for colour in COLOURS}
ROUND = range(len(FAR))


def chosen(step: int) -> set[tuple[str, str]]:
    return {(store, colour) for store, colour in EVERYTHING if is_in_turn(step, store, colour)}


def test_the_steps_and_memory_are_everything_and_none_is_there_twice() -> None:
    assert Counter([*NEAR, *FAR, *(("memory", colour) for colour in COLOURS)]) == Counter(EVERYTHING)


@pytest.mark.parametrize("step", ROUND)
def test_a_test_runs_over_memory_in_both_and_over_two_more_stores(step: int) -> None:
    assert chosen(step) == {*(("memory", colour) for colour in COLOURS), NEAR[step % len(NEAR)], FAR[step]}


@pytest.mark.parametrize("step", ROUND)
def test_a_test_of_one_colour_runs_over_three_stores(step: int) -> None:
    assert len([store for store in STORES if is_in_turn(step, store.name, None)]) == 3


def test_the_turns_of_one_test_leave_nothing_out() -> None:
    assert set().union(*map(chosen, ROUND)) == EVERYTHING


def test_neighbours_run_over_different_stores() -> None:
    assert all(chosen(step).isdisjoint(chosen(step + 1) - {("memory", colour) for colour in COLOURS}) for step in ROUND)


@pytest.mark.parametrize("many", [2, 3, 4])
def test_what_takes_turns_is_there_in_one_of_so_many_turns(many: int) -> None:
    for number in range(20):
        assert [is_one_of(many, number, turn) for turn in range(many)].count(True) == 1


def test_the_second_of_two_parameters_takes_turns_too() -> None:
    both = [(fault, engine) for fault in range(6) for engine in ("a", "b")]
    taken = [pair for number, pair in enumerate(both) if is_one_of(2, number, 0)]
    assert {fault for fault, _ in taken} == set(range(6))
    assert Counter(engine for _, engine in taken) == {"a": 3, "b": 3}
