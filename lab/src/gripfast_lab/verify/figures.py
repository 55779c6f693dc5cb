"""What a run comes to, in figures: from what observers told, and from the history. All pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gripfast_lab.sim.attempts import Attempt, attempts_of
from gripfast_lab.sim.history import Event
from gripfast_lab.sim.permits import wanted
from gripfast_lab.sim.violation import Violation

HEAD_START = 0.1
"""Seconds by which somebody must have come earlier, to count as passed over: requests overtake each other."""
OBSERVED = "Observers are told of every grant, with its token."
"""The rule of `unobserved`; the others are the simulation's."""


class Told(NamedTuple):
    """What an observer was told."""

    kind: str
    who: str
    name: str
    token: int | None
    waited: float
    margin: float
    reason: str | None
    request: str | None


class Figures(NamedTuple):
    entries: int
    """Grants."""
    refused: int
    unreachable: int
    """Claims that ended so."""
    waits: Mapping[str, float]
    """Seconds until a grant: p50, p99, max."""
    passed_over: int
    """Times that somebody got a lock although somebody else, who was not paused, had waited for it for longer."""
    losses: Mapping[str, int]
    """By reason."""
    renewals: int
    least_margin: float | None
    """Seconds that were left at a renewal."""
    tokens: int
    """How many different ones."""


def figures(history: Sequence[Event], told: Sequence[Told]) -> Figures:
    kinds = Counter(event.kind for event in told)
    attempts = attempts_of(history)
    return Figures(
        entries=kinds["granted"],
        refused=kinds["refused"],
        unreachable=sum(event.kind == "unreachable" and event.request == "claim" for event in told),
        waits=percentiles([event.waited for event in told if event.kind == "granted"]),
        passed_over=sum(1 for _ in passed_over(attempts, history)),
        losses=dict(sorted(Counter(event.reason or "" for event in told if event.kind == "lost").items())),
        renewals=kinds["renewed"],
        least_margin=min((event.margin for event in told if event.kind == "renewed"), default=None),
        tokens=len({(attempt.asked.name, attempt.token) for attempt in attempts if attempt.granted}),
    )


def percentiles(seconds: Iterable[float]) -> dict[str, float]:
    ordered = sorted(seconds) or [0.0]
    return {"p50": _at(ordered, 50), "p99": _at(ordered, 99), "max": ordered[-1]}


def _at(ordered: Sequence[float], percent: int) -> float:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def passed_over(attempts: Iterable[Attempt], history: Iterable[Event]) -> Iterator[tuple[Attempt, Attempt]]:
    """Who was granted a lock, and who had waited for it for longer and was neither paused nor dead meanwhile."""
    paused = [event for event in history if event.kind == "fault"]
    waiting: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        queue = waiting.setdefault(attempt.asked.name, [])
        granted, asked = attempt.granted, attempt.asked
        queue[:] = [each for each in queue if _ended(each) > asked.at]
        if granted is not None and wanted(attempt) is None:
            for other in queue:
                is_earlier = other.asked.at + HEAD_START < asked.at and _ended(other) > granted.at
                if is_earlier and not _is_paused(other, granted.at, paused):
                    yield attempt, other
        queue.append(attempt)


def _ended(attempt: Attempt) -> float:
    """When its wait was over."""
    if attempt.granted is not None:
        return attempt.granted.at
    return attempt.closed_by.at if attempt.closed_by is not None else attempt.asked.until


def _is_paused(attempt: Attempt, until: float, paused: Iterable[Event]) -> bool:
    who, since = attempt.asked.who, attempt.asked.at
    return any(event.who == who and event.at <= until and event.until >= since for event in paused)


def unobserved(history: Sequence[Event], told: Iterable[Told]) -> Iterator[Violation]:
    """Grants that callers got and no observer was told of. A process that was killed had no time to tell."""
    known = {(event.who, event.name, event.token) for event in told if event.kind == "granted"}
    dead = {event.who for event in history if event.kind == "died"}
    for attempt in attempts_of(history):
        who, name = attempt.asked.who, attempt.asked.name
        if attempt.granted is not None and who not in dead and (who, name, attempt.token) not in known:
            yield Violation("unobserved", name, f"{attempt}: no observer was told of it")


def as_dict(found: Figures) -> dict[str, Any]:
    rounded = {name: round(seconds, 6) for name, seconds in found.waits.items()}
    margin = found.least_margin and round(found.least_margin, 6)
    return {**found._asdict(), "waits": rounded, "least_margin": margin}
