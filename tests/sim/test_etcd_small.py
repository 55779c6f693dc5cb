"""Every history of the queue on etcd that a few requests allow, and which planted bugs the search finds."""

from __future__ import annotations

import pytest

from gripfast_lab.sim.etcd.small import WORLDS, Queue, explored
from gripfast_lab.sim.explore import explore
from gripfast_lab.sim.mutants import MUTANTS

STEPS = {"no mod compare": 12, "woken is granted": 6}
"""After how many steps something is wrong."""


@pytest.mark.in_turn(2)
def test_there_are_no_two_holders_and_the_search_ends() -> None:
    report = explored("etcd")
    assert report.ended, str(report)
    assert not report.violations
    assert report.states > 100_000


def test_a_smaller_one_is_searched_every_time() -> None:
    report = explore(Queue("smaller", sends=(2, 1), ends=2))
    assert report.ended, str(report)
    assert not report.violations
    assert set(WORLDS) == {"etcd", "etcd-large"}


@pytest.mark.parametrize("name", STEPS)
def test_a_planted_bug_is_found(name: str) -> None:
    mutant = next(each for each in MUTANTS if each.name == name)
    with mutant.planted():
        report = explore(Queue(name))
    assert report.violations, str(report)
    assert len(report.violations[0].path) == STEPS[name], str(report)
