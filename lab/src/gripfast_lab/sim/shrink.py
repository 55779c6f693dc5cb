"""A failing plan made as small as it gets while it still breaks the same rule.

Theory of operation. Delta debugging: leave out all items, then each half, each quarter, and so on down to single ones;
whatever can be left out stays out. The single ones are tried again until none of them can go. A smaller plan counts if
a run of it breaks the same rule, whoever breaks it and whenever: what is wanted is a short history of the same bug.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from gripfast_lab.sim.plan import Item
from gripfast_lab.sim.runner import Outcome, Scenario, Stop, ran, rules_of

T = TypeVar("T")

RUNS_AT_MOST = 2000


class Shrunk(NamedTuple):
    before: Outcome
    after: Outcome
    rule: str
    runs: int


def shrunk(scenario: Scenario, failing: Outcome, stop: Stop, runs_at_most: int = RUNS_AT_MOST) -> Shrunk:
    """The smallest outcome found until there were so many runs, or a stop was asked for."""
    rule = rules_of(failing)[0]
    plan, best, runs = failing.plan, failing, 0
    if plan is None:
        return Shrunk(failing, failing, rule, runs)

    def still_breaks_it(items: tuple[Item, ...]) -> bool:
        nonlocal best, runs
        if stop.asked or runs >= runs_at_most:
            return False
        runs += 1
        outcome = ran(scenario, replace(plan, items=items))
        if rule not in rules_of(outcome):
            return False
        best = outcome
        return True

    smallest(plan.items, still_breaks_it)
    return Shrunk(failing, best, rule, runs)


def smallest(items: Sequence[T], is_enough: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Some of the items, in their order, that are enough, while without any one of them they are not."""
    kept = tuple(items)
    size = len(kept)
    while size > 1:
        kept = _without_parts(kept, size, is_enough)
        size = min(size // 2, len(kept))
    before = -1
    while before != len(kept):
        before, kept = len(kept), _without_parts(kept, 1, is_enough)
    return kept


def _without_parts(kept: tuple[T, ...], size: int, is_enough: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    start = 0
    while start < len(kept):
        fewer = kept[:start] + kept[start + size :]
        if is_enough(fewer):
            kept = fewer
        else:
            start += size
    return kept
