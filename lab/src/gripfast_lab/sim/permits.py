"""The attempts for one semaphore or read/write lock against each other: what is instead of exclusion there.

Theory of operation. What all believers have together grows only when somebody is granted something. So it is counted at
these moments, as overlaps are found. An attempt says when it asks how much of what it wants ("2 of 3"); its grant says
which slots it got ("0,1"). A writer says with `held` ("1 left") that it became a reader, before it requests that.
"""

from collections.abc import Iterable, Iterator, Sequence

from .attempts import Attempt
from .excuses import Excuses
from .history import Event
from .rivals import may_overlap
from .violation import Violation

ANOTHER_LIMIT = "another limit"
"""Why a claim was refused: the note of the attempt."""


def wanted(attempt: Attempt) -> tuple[int, int] | None:
    """Permits, and their limit; None if it is a lock that was asked for."""
    n, is_share, limit = attempt.asked.note.partition(" of ")
    return (int(n), int(limit)) if is_share else None


def exceeded(
    name: str, granted: Sequence[Attempt], excuses: Excuses, handed: Iterable[Event] = (), resized: Iterable[Event] = ()
) -> Iterator[Violation]:
    """`handed`, `resized`: what the engine saw. What all have must fit the limit that was in force when the last of
    them was granted something; before that, they had theirs."""
    moments = {event.token: event.at for event in handed if event.name == name}
    limits = [event for event in resized if event.name == name]
    active: list[Attempt] = []
    for attempt in granted:
        starts = attempt.starts
        if starts >= attempt.ends:
            continue
        active = [each for each in active if each.ends > starts]
        others = [each for each in active if not may_overlap(each, attempt, excuses)]
        believed = _n_at(attempt, starts) + sum(_n_at(each, starts) for each in others)
        last = max([moments.get(each.token, each.starts) for each in (*others, attempt)])
        limit = _limit_at(last, limits) or (wanted(attempt) or (0, 0))[1]
        if believed > limit:
            who = ", ".join(map(str, [*others, attempt]))
            yield Violation("exceeded", name, f"{believed} of {limit} permits: {who}")
        for other in others:
            if _slots(attempt) & _slots(other):
                yield Violation("slot", name, f"{other} and {attempt}: both have {_slots(attempt) & _slots(other)}")
        active.append(attempt)


def misfits(name: str, attempts: Iterable[Attempt], resized: Iterable[Event]) -> Iterator[Violation]:
    """Who was told that another limit is in force, although there was none."""
    limits = [event for event in resized if event.name == name]
    for attempt in attempts:
        closed, own = attempt.closed_by, (wanted(attempt) or (0, 0))[1]
        if closed is not None and closed.note == ANOTHER_LIMIT:
            others = [event for event in limits if event.at <= closed.at and event.token != own]
            if not others:
                yield Violation("failed", name, f"{attempt.asked.who} was told of another limit at {closed.at:.6f}")


def _limit_at(moment: float, resized: Sequence[Event]) -> int | None:
    """The largest, if it was changed at this very moment: what came first is not known."""
    then = [event.token for event in resized if event.at == moment]
    before = [event.token for event in resized if event.at < moment]
    return max([*then, *before[-1:]], default=None)


def _n_at(attempt: Attempt, moment: float) -> int:
    """What it believes to have."""
    n = (wanted(attempt) or (0, 0))[0]
    return 1 if any(event.note == "1 left" and event.at <= moment for event in attempt.told) else n


def _slots(attempt: Attempt) -> set[str]:
    return set(filter(None, attempt.granted.note.split(","))) if attempt.granted is not None else set()
