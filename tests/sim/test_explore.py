"""The explorer, on models small enough to count by hand."""

from collections.abc import Iterator
from dataclasses import dataclass

from click.testing import CliRunner

from gripfast_lab.sim.__main__ import main
from gripfast_lab.sim.etcd.small import WORLDS as OF_ETCD
from gripfast_lab.sim.explore import EXPLORATIONS, explore
from gripfast_lab.sim.failover.rules import EXPLORATIONS as TABLES
from gripfast_lab.sim.fence import MODELS
from gripfast_lab.sim.small.worlds import WORLDS

Counters = tuple[int, ...]


@dataclass
class Counting:
    """A few counters, each of which goes up to a limit: limit + 1 to the power of how many states, in any order."""

    limit: int
    counters: int = 2
    forbidden: Counters | None = None
    name: str = "counting"

    def starts(self) -> Iterator[Counters]:
        yield (0,) * self.counters

    def steps(self, state: Counters) -> Iterator[tuple[int, Counters]]:
        for place, count in enumerate(state):
            if count < self.limit:
                yield place, (*state[:place], count + 1, *state[place + 1 :])

    def wrong(self, state: Counters) -> str | None:
        return f"at {state}" if state == self.forbidden else None

    def tell(self, label: int) -> str:
        return f"counter {label} goes up"


def test_equal_states_are_one_and_it_ends() -> None:
    report = explore(Counting(limit=9))
    assert (report.states, report.transitions, report.depth) == (100, 180, 18)
    assert report.ended
    assert not report.violations
    assert (
        str(report) == "counting: 100 states, 180 transitions, 18 steps deep at most; complete: no other states exist"
    )


def test_what_is_wrong_comes_with_a_shortest_path() -> None:
    report = explore(Counting(limit=9, forbidden=(2, 1)))
    (found,) = report.violations
    assert found.what == "at (2, 1)"
    assert sorted(found.path) == ["counter 0 goes up", "counter 0 goes up", "counter 1 goes up"]
    assert not report.ended
    assert "stopped at a violation\nwrong after 3 steps: at (2, 1)\n    1  counter" in str(report)


def test_a_start_may_be_wrong() -> None:
    report = explore(Counting(limit=3, forbidden=(0, 0)))
    assert [found.path for found in report.violations] == [()]
    assert report.states == 1


def test_a_limit_is_kept_and_told() -> None:
    report = explore(Counting(limit=9), most_states=50)
    assert 50 <= report.states <= 52
    assert not report.ended
    assert str(report).endswith("not complete: there are more states")


def test_a_limit_that_is_not_reached_is_none() -> None:
    assert explore(Counting(limit=9), most_states=101).ended


def test_hundreds_of_thousands_of_states_are_no_trouble() -> None:
    report = explore(Counting(limit=17, counters=4))
    assert report.ended
    assert report.states == 18**4


def test_each_small_world_can_be_explored_by_name() -> None:
    assert list(EXPLORATIONS) == [*WORLDS, *MODELS, *OF_ETCD, *TABLES]
    done = CliRunner().invoke(main, ["--explore", "queue"])
    assert done.exit_code == 0
    assert done.stdout.startswith("queue (a process dies while three want the lock; ")
    assert "complete: no other states exist" in done.stdout
