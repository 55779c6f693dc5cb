"""Each entry of the lab, searched once in a test process, and what the tests find out without the lab's own help."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from gripfast_lab.entries import BY_NAME, ENTRIES
from gripfast_lab.entry import Entry
from gripfast_lab.model import Lab
from gripfast_lab.sim.explore import Found, Report, explore
from gripfast_lab.story import Story
from gripfast_lab.telling import told
from gripfast_lab.verdicts import MOST_STATES
from gripfast_lab.world import Protocol, State, Step

NAMES = [entry.name for entry in ENTRIES]
RULES = ("exclusion", "limit", "token", "progress", "permit", "turn", "again", "never")
BROKEN_BY = {rule: [entry.name for entry in ENTRIES if entry.breaks == rule] for rule in RULES}
TOO_MANY = BROKEN_BY["exclusion"] + BROKEN_BY["limit"]


class Searched(NamedTuple):
    entry: Entry
    lab: Lab
    report: Report
    found: Found
    story: Story

    @property
    def last(self) -> State:
        return self.path[-1]

    @property
    def path(self) -> list[State]:
        """All states of the history but the first."""
        return [after for _, after in self.found.trail]


@cache
def searched(name: str) -> Searched:
    entry = BY_NAME[name]
    lab = Lab(name, entry.protocol())
    report = explore(lab, MOST_STATES)
    assert report.violations, f"{name} is not broken: {report}"
    found = report.violations[0]
    return Searched(entry, lab, report, found, told(lab, found, entry.title))


def said_of(protocol: Protocol) -> str:
    """What is wrong with it; nothing if there is nothing, in all that can happen."""
    report = explore(Lab("control", protocol), MOST_STATES)
    if report.violations:
        return report.violations[0].what
    assert report.ended, report
    return ""


def without_faults(state: State) -> State:
    return state._replace(left=(0,) * len(state.left))


def reachable(lab: Lab, start: State) -> Iterator[tuple[State, Step]]:
    """Every step that can come of a state."""
    seen, open_ = {start}, [start]
    while open_:
        before = open_.pop()
        for step in lab.steps(before):
            yield before, step
            if step[1] not in seen:
                seen.add(step[1])
                open_.append(step[1])


def somebody_gets_in(lab: Lab, start: State) -> bool:
    """Or gets more than it has."""
    return any(
        now.n > was.n
        for before, (_, after) in reachable(lab, start)
        for was, now in zip(before.clients, after.clients, strict=True)
    )


def is_wrong_within(steps: int, lab: Lab) -> bool:
    """Level by level."""
    level = set(lab.starts())
    seen = set(level)
    for _ in range(steps):
        if any(lab.wrong(state) for state in level):
            return True
        level = {after for state in level for _, after in lab.steps(state)} - seen
        seen |= level
    return any(lab.wrong(state) for state in level)
