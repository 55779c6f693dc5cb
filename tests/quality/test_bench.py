"""The benchmarks' own arithmetic: a wrong ruler measures nothing."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import report
from bench.__main__ import main
from bench.catalogue import CATALOGUE
from bench.hand_off import Entry, figures, while_all_are_at_it
from bench.scenario import Contestant, Sample, Scenario, Spread, run


def contestant(name: str, values: list[float], turns: list[str]) -> Contestant:
    """One that takes these values in its rounds, the first of which is the warm-up, and writes down its turns."""
    left = iter(values)

    @contextmanager
    def opened(folder: Path) -> Iterator[Callable[[], Sample]]:
        def measure() -> Sample:
            turns.append(name)
            return {"µs": next(left)}

        yield measure

    return Contestant(name, opened)


def scenario(*contestants: Contestant, **at_most: float) -> Scenario:
    return Scenario("planted", "a test", contestants, "µs", contestants[-1].name, at_most, rounds=3)


def test_contestants_take_turns_after_a_warm_up(tmp_path: Path) -> None:
    turns: list[str] = []
    run(scenario(contestant("a", [1.0] * 4, turns), contestant("b", [1.0] * 4, turns)), tmp_path)
    assert "".join(turns) == "ab" + "ab" + "ba" + "ab"


def test_the_ratio_is_the_median_of_the_rounds_without_the_warm_up(tmp_path: Path) -> None:
    mine, other = contestant("a", [900, 2, 30, 4], []), contestant("b", [1, 1, 10, 1], [])
    first, second = run(scenario(mine, other, a=2.0), tmp_path)
    assert (first.ratio.median, second.ratio.median) == (3, 1)
    assert first.figures["µs"].median == 4


@pytest.mark.parametrize(("promise", "kept"), [(3.0, True), (2.9, False)])
def test_a_broken_promise_is_told(promise: float, kept: bool, tmp_path: Path) -> None:
    planted = scenario(contestant("a", [3] * 4, []), contestant("b", [1] * 4, []), a=promise)
    standings = run(planted, tmp_path)
    assert [each.kept for each in standings] == [kept, True]
    assert ("BROKEN" in report.table(planted, standings)) is not kept


def test_a_spread_leaves_out_the_outer_tenths() -> None:
    assert Spread.of([float(value) for value in range(21, 0, -1)]) == Spread(median=11, low=3, high=19, most=21)


def test_only_a_change_of_process_is_a_hand_off() -> None:
    told = figures([Entry(0.0, 0.0, 1), Entry(0.0, 0.5, 1), Entry(0.5, 1.0, 2), Entry(0.5, 2.0, 1)])
    assert told["hand-offs/s"] == 1
    assert told["wait max ms"] == 1500
    assert told["wait p50 ms"] == 500


def test_only_the_time_when_all_processes_are_at_it_counts() -> None:
    early, late = [Entry(0, time, 1) for time in (1, 2, 4, 6)], [Entry(0, time, 2) for time in (3, 5, 7)]
    assert [entry.entered for entry in while_all_are_at_it([early, late])] == [3, 4, 5, 6]


def test_every_scenario_compares_with_one_of_its_own() -> None:
    assert len({each.name for each in CATALOGUE}) == len(CATALOGUE)
    for each in CATALOGUE:
        assert {each.against, *each.at_most} <= {contestant.name for contestant in each.contestants}


def test_a_run_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "--rounds", "1", "--results", str(tmp_path)]) == 0
    assert "with lock" in capsys.readouterr().out
    (written,) = tmp_path.iterdir()
    assert json.loads(written.read_text(encoding="utf-8"))["scenarios"][0]["name"] == "memory pair"


def test_an_unknown_scenario_is_refused_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing of that name"]) == 2
    assert "embedded pair" in capsys.readouterr().err
