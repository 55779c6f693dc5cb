"""The rotation of the sample: every test runs over memory and one more store, and the turns leave nothing out."""

from collections import Counter
from fnmatch import fnmatch

import pytest

from quality.tree import ROOT
from support.colours import COLOURS
from support.sample import OTHERS, TURNS, file_turns, is_in_turn, is_one_of
from support.stores import STORES

EVERYTHING = {(store.name, colour) for store in STORES for colour in COLOURS}
ROUND = range(len(OTHERS))


def chosen(step: int) -> set[tuple[str, str]]:
    return {(store, colour) for store, colour in EVERYTHING if is_in_turn(step, store, colour)}


def test_the_steps_and_memory_are_everything_and_none_is_there_twice() -> None:
    assert Counter([*OTHERS, *(("memory", colour) for colour in COLOURS)]) == Counter(EVERYTHING)


@pytest.mark.parametrize("step", ROUND)
def test_a_test_runs_over_memory_in_both_and_over_one_more_store(step: int) -> None:
    assert chosen(step) == {*(("memory", colour) for colour in COLOURS), OTHERS[step]}


@pytest.mark.parametrize("step", ROUND)
def test_a_test_of_one_colour_runs_over_two_stores(step: int) -> None:
    assert len([store for store in STORES if is_in_turn(step, store.name, None)]) == 2


def test_the_turns_of_one_test_leave_nothing_out() -> None:
    assert set().union(*map(chosen, ROUND)) == EVERYTHING


def test_the_readme_tells_the_last_turn() -> None:
    for readme in ("README.md", "README.zh.md"):
        assert f"`SAMPLE={ROUND[-1]}`" in (ROOT / readme).read_text(encoding="utf-8"), readme


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


FILES = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*/test_*.py")]


def test_each_file_that_takes_turns_has_one_in_every_round() -> None:
    """Whatever file it is: its own turns are 0, 1, 2 …, and nothing is left out for ever."""
    turns = [file_turns(FILES, turn) for turn in range(6 * 4)]
    for file in turns[0]:
        own = [number for turn in turns if (number := turn[file]) is not None]
        assert own in ([*range(8)], [*range(12)]), file


def test_one_parameter_of_a_marked_test_after_the_other_runs_in_a_file_that_takes_turns() -> None:
    file = next(
        file for file, own in file_turns(FILES, 0).items() if own is not None and file.startswith("tests/stores/")
    )
    own = [file_turns(FILES, turn)[file] for turn in range(9)]
    taken = {number for turn in own if turn is not None for number in range(3) if is_one_of(3, number, turn)}
    assert taken == {0, 1, 2}


@pytest.mark.parametrize("pattern", TURNS)
def test_the_files_of_a_folder_are_spread_over_the_turns(pattern: str) -> None:
    of = TURNS[pattern]
    folder = [file for file in FILES if fnmatch(file, pattern)]
    for turn in range(of):
        turns = file_turns(folder, turn)
        assert abs(sum(own is not None for own in turns.values()) - len(folder) / of) < of
