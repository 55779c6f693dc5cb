"""A history, sorted out in one pass: attempts, the names they are about, declared faults, what engines saw.

Theory of operation. An attempt is what `who` notes from one `asked` to the next. Its *validity* is what it was entitled
to believe: from the return of acquire until the first of these: it calls release, it hears of a loss, its deadline, its
death.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from .history import Event

ENDS = frozenset(("refused", "unreachable", "cancelled", "released", "lost", "failed", "died"))
TOLD = ENDS - {"died"} | {"granted", "held", "releasing", "misled", "outlived"}
"""To one caller: these belong to its attempt."""
CUTS_SHORT = frozenset(("releasing", "lost", "died"))


@dataclass(slots=True, eq=False)
class Attempt:
    """One `asked` and what came of it."""

    asked: Event
    granted: Event | None = None
    token: int = 0
    starts: float = math.inf
    """Of its validity, as `ends`."""
    ends: float = math.inf
    closed_by: Event | None = None
    told: list[Event] = field(default_factory=list)
    """Everything after the grant, in order."""

    def __str__(self) -> str:
        return f"{self.asked.who} token {self.token} from {self.starts:.6f} to {self.ends:.6f}"


@dataclass(slots=True)
class About:
    """Everything about one name."""

    attempts: list[Attempt] = field(default_factory=list)
    """In the order in which they asked."""
    granted: list[Attempt] = field(default_factory=list)
    """In the order in which they were."""
    writes: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class Sorted:
    ends: float = 0.0
    attempts: list[Attempt] = field(default_factory=list)
    names: defaultdict[str, About] = field(default_factory=lambda: defaultdict(About))
    others: defaultdict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    """By kind: what neither belongs to an attempt nor is a write."""


def owner_of(attempt: Attempt, handed: Iterable[Event]) -> str | None:
    """Whom the engine gave the lock to, if it tells. The token alone says nothing where tokens began anew."""
    since, until = attempt.asked.at, attempt.starts
    owners = [each.who for each in handed if each.token == attempt.token and since <= each.at <= until]
    return owners[-1] if owners else None


def attempts_of(history: Iterable[Event]) -> list[Attempt]:
    """In the order in which they began."""
    return sort_out(history).attempts


def sort_out(history: Iterable[Event]) -> Sorted:
    events = sorted(history, key=itemgetter(0))
    result = Sorted(events[-1].at if events else 0.0)
    attempts, names, others = result.attempts, result.names, result.others
    current: dict[str, Attempt] = {}
    for event in events:
        kind = event.kind
        if kind in TOLD:
            attempt = current.get(event.who)
            if attempt is None:
                continue
            if kind == "granted" and attempt.granted is None:
                attempt.granted, attempt.token = event, event.token
                attempt.starts, attempt.ends = event.at, event.until
                names[attempt.asked.name].granted.append(attempt)
            else:
                _add(attempt, event)
        elif kind == "asked":
            current[event.who] = attempt = Attempt(event)
            attempts.append(attempt)
            names[event.name].attempts.append(attempt)
        elif kind == "wrote":
            names[event.name].writes.append(event)
        else:
            others[kind].append(event)
            if kind == "died":
                _bury(current, event)
    return result


def _bury(current: dict[str, Attempt], died: Event) -> None:
    for who, attempt in current.items():
        if who.startswith(died.who):
            _add(attempt, died)


def _add(attempt: Attempt, event: Event) -> None:
    kind = event.kind
    if attempt.granted is not None:
        attempt.told.append(event)
        if kind == "held":
            attempt.ends = event.until
        elif kind in CUTS_SHORT and event.at < attempt.ends:
            attempt.ends = event.at
    if attempt.closed_by is None and kind in ENDS:
        attempt.closed_by = event
