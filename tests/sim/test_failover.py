"""Every history of a few servers and failovers: the table of rules, and which bugs the search finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from gripfast_lab.sim.failover.model import Failovers, Rule
from gripfast_lab.sim.failover.rules import CRASHES, GOES_ON, ROWS, explored, searched
from gripfast_lab.sim.mutants import MUTANTS

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


@pytest.fixture(scope="module")
def table() -> list[str]:
    found = searched()
    assert found.violations == []
    return found.lines()


def test_the_table_of_rules_is_what_the_search_says(table: list[str]) -> None:
    assert len(table) == 2 + len(ROWS)
    assert CRASHES in table[0]
    assert GOES_ON in table[0]


def test_the_page_has_the_same_table(table: list[str]) -> None:
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in table if line not in page] == []


def test_the_queue_is_handed_to_nobody_in_a_grace() -> None:
    report = explored(Failovers("queue", Rule(1), clients=3, promotions=1, passes=1, waits=True))
    assert report.ended, str(report)
    assert not report.violations


QUEUE = {"clients": 3, "promotions": 1, "passes": 1, "waits": True}
STEPS = {
    "no marker check": (4, {}),
    "identity by run id alone": (5, {}),
    "hand-over in grace": (6, QUEUE),
    "repeated release hands over": (6, QUEUE),
    "marker kept from before the promotion": (4, {}),
    "max_ttl ignored": (4, {}),
}
"""After how many steps there are two holders, although the primary crashes."""


@pytest.mark.parametrize("name", STEPS)
def test_a_planted_bug_is_found(name: str) -> None:
    mutant = next(each for each in MUTANTS if each.name == name)
    steps, world = STEPS[name]
    with mutant.planted():
        report = explored(Failovers(name, Rule(1), **world))  # type: ignore[arg-type]
    assert report.violations, str(report)
    assert len(report.violations[0].path) == steps, str(report)
