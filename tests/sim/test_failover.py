"""Every history of a few servers and failovers: the table of rules, and which bugs the search finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gripfast_lab.sim.failover.model import Failovers, Rule
from gripfast_lab.sim.failover.rules import CRASHES, GOES_ON, ROWS, explored, searched
from gripfast_lab.sim.mutants import MUTANTS
from gripfast_lab.sim.mutants.planting import Mutant, Rewrite

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
    report = explored(Failovers("queue", Rule(1), clients=3, promotions=1, passes=0, waits=True))
    assert report.ended, str(report)
    assert not report.violations


def test_a_stranger_acknowledges_nothing() -> None:
    report = explored(Failovers("strangers", Rule(2), goes_on=True, promotions=1, passes=2, strangers=True))
    assert report.ended, str(report)
    assert not report.violations


NO_OP = Mutant(
    "no-op renewal",
    "failover",
    "A renewal that finds enough time left writes nothing, and WAIT has nothing to wait for.",
    (
        Rewrite(
            "redis.call('PEXPIRE', KEYS[1], math.max(left, ARGV[2]))",
            "if left >= tonumber(ARGV[2]) then\n  return 1\nend\nredis.call('PEXPIRE', KEYS[1], ARGV[2])",
        ),
    ),
)
"""Only here: the world of the seeds would have to repeat a renewal within the same millisecond."""
QUEUE = {"clients": 3, "promotions": 1, "passes": 0, "waits": True}
SPLIT = {"goes_on": True, "promotions": 1, "passes": 3}
STRANGERS = {"goes_on": True, "promotions": 1, "passes": 1, "strangers": True}
STEPS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "no marker check": (4, 1, {}),
    "identity by run id alone": (7, 1, {}),
    "marker kept from before the promotion": (4, 1, {}),
    "max_ttl ignored": (4, 1, {}),
    "hand-over in grace": (7, 1, QUEUE),
    "repeated release hands over": (8, 1, QUEUE),
    "claims unconfirmed": (5, 2, SPLIT),
    "renewals unconfirmed": (8, 2, SPLIT),
    "no-op renewal": (10, 2, SPLIT),
    "a follower too many": (5, 2, STRANGERS),
    "followers counted before WAIT only": (7, 2, STRANGERS),
    "followers by number": (5, 2, STRANGERS),
}
"""After how many steps there are two holders, at which level, in which world."""


@pytest.mark.parametrize("name", STEPS)
def test_a_planted_bug_is_found(name: str) -> None:
    mutant = next((each for each in MUTANTS if each.name == name), NO_OP)
    steps, level, world = STEPS[name]
    with mutant.planted():
        report = explored(Failovers(name, Rule(level), **world))
    assert report.violations, str(report)
    assert len(report.violations[0].path) == steps, str(report)
