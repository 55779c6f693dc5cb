"""The picture of a violation: of a long history, what a reader needs to see how the rule was broken."""

from __future__ import annotations

from collections.abc import Sequence

from gripfast_lab.seeds import story_of
from gripfast_lab.sim.attempts import Attempt, attempts_of
from gripfast_lab.sim.history import ANY, WORLD, Event
from gripfast_lab.sim.violation import Violation
from gripfast_lab.story import Story

GRAVEST = ("overlap", "exceeded", "slot", "lost update", "token", "late", "revived", "robbed")
"""What is drawn, if several rules are broken: the first of these."""
ATTEMPTS_MOST = 6
BEFORE = 0.5
"""Seconds before what is not about attempts."""


def gravest_first(found: Sequence[Violation]) -> list[Violation]:
    return sorted(found, key=lambda each: GRAVEST.index(each.rule) if each.rule in GRAVEST else len(GRAVEST))


def story_of_violation(title: str, history: Sequence[Event], violation: Violation) -> Story:
    return story_of("verify", title, excerpt(history, violation), [violation], [])


def excerpt(history: Sequence[Event], violation: Violation) -> list[Event]:
    """The attempts that the violation is about, the last ones for the same name beside them, and what was done to
    these."""
    own = [event for event in history if event.name in (violation.name, ANY)]
    attempts = attempts_of(own)
    involved = [each for each in attempts if str(each) in violation.what] or attempts[-ATTEMPTS_MOST // 2 :]
    since = min((each.asked.at for each in involved), default=0.0)
    last = max((_last(each) for each in involved), default=0.0)
    until = min((_last(each) for each in involved), default=last)
    beside = [each for each in attempts if each.granted and since <= each.starts <= until and each not in involved]
    shown = [*involved, *beside[-max(0, ATTEMPTS_MOST - len(involved)) :]]
    return [event for event in own if any(_belongs(event, each, since - BEFORE, last) for each in shown)]


def _last(attempt: Attempt) -> float:
    """The last thing that it noted, or was entitled to believe."""
    ends = attempt.ends if attempt.granted is not None else attempt.asked.at
    return max([ends, *(event.at for event in attempt.told)])


def _belongs(event: Event, attempt: Attempt, since: float, last: float) -> bool:
    if event.who == WORLD or event.who != attempt.asked.who:
        return False
    if event.kind == "fault":
        return event.until >= since and event.at <= last
    return attempt.asked.at <= event.at <= _last(attempt)
