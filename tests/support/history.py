"""What happened to some locks, and what of it must not have happened: pure, over a list of events.

Theory of operation. Everyone who asks for a lock (`who`: a thread or a task, which does one thing at a time) notes what
it does and what it is told, with the time of the one clock that all share. An attempt is what `who` notes from one
`asked` to the next. Its *validity* is what it was entitled to believe: from the return of acquire until the first of
these: it calls release, it hears of a loss, its deadline, its death. Times are noted so that a validity is rather too
short than too long (a grant after acquire returned, a release before it is called). So an overlap in the history was
one in the world, and nothing here depends on how fast the notes were taken.

Faults that are *declared* excuse what they must, and nothing else. After a loss of memory (`forgot`) the server may
grant again what someone who asked before still holds: only such a pair may overlap, and only such a lease may be lost
before its time. Tokens are never excused.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal[
    "asked",  # `until`: no refusal may come before; `patience`: no `unreachable` may; `ttl`: what is asked for
    "granted",  # `token`; `until`: the deadline
    "held",  # told so; `token`; `until`: the deadline that this tells of
    "refused",  # None, or LockTimeout
    "unreachable",  # StoreUnavailable
    "cancelled",  # the caller gave up
    "releasing",  # release is about to be called
    "released",
    "lost",  # LeaseLost; `note`: the reason
    "failed",  # anything else was raised; `note`: what
    "died",  # all whose name begins with `who`
    "forgot",  # the server lost its memory between `at` and `until`
    "broke",  # a fault begins
    "healed",  # no fault any more
]
ENDS = ("refused", "unreachable", "cancelled", "released", "lost", "failed", "died")
WORLD = "world"


class Event(NamedTuple):
    at: float
    who: str
    name: str
    kind: Kind
    token: int = 0
    until: float = 0.0
    ttl: float = 0.0
    patience: float = 0.0
    renews: bool = False
    note: str = ""


class Violation(NamedTuple):
    rule: str
    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.name!r}, {self.what}"


@dataclass
class Attempt:
    """One `asked` and what came of it."""

    asked: Event
    granted: Event | None = None
    ends: float = math.inf
    """Of its validity."""
    closed_by: Event | None = None
    told: list[Event] = field(default_factory=list)
    """Everything after the grant, in order."""

    @property
    def starts(self) -> float:
        return self.granted.at if self.granted else math.inf

    @property
    def is_valid(self) -> bool:
        """It was, for a while; a caller that was not scheduled in time may get a lease that is over."""
        return self.starts < self.ends

    @property
    def token(self) -> int:
        return self.granted.token if self.granted else 0

    def __str__(self) -> str:
        return f"{self.asked.who} token {self.token} from {self.starts:.6f} to {self.ends:.6f}"


def violations(
    history: Iterable[Event], *, may_be_unreachable: bool = False, recover_within: float | None = None
) -> list[Violation]:
    """Everything that must not have happened. `recover_within`: seconds from `healed` until every lock has a holder."""
    events = sorted(history, key=lambda event: event.at)
    attempts = attempts_of(events)
    forgot = [event for event in events if event.kind == "forgot"]
    found = [violation for attempt in attempts for violation in _alone(attempt, forgot, may_be_unreachable)]
    for name, group in _by_name(attempts).items():
        found += _overlaps(name, group, forgot)
        found += _tokens(name, group, forgot)
        if recover_within is not None:
            found += _recovery(name, group, events, recover_within)
    return found


def attempts_of(events: Sequence[Event]) -> list[Attempt]:
    """In the order in which they began; the events must be in the order of time."""
    found: list[Attempt] = []
    current: dict[str, Attempt] = {}
    for event in events:
        if event.kind == "asked":
            current[event.who] = Attempt(event)
            found.append(current[event.who])
        elif event.kind == "died":
            for who, attempt in current.items():
                if who.startswith(event.who):
                    _add(attempt, event)
        elif event.who in current:
            _add(current[event.who], event)
    return found


def _add(attempt: Attempt, event: Event) -> None:
    if event.kind == "granted":
        attempt.granted = event
        attempt.ends = event.until
        return
    if attempt.granted is not None:
        attempt.told.append(event)
        if event.kind == "held":
            attempt.ends = event.until
        elif event.kind in ("releasing", "lost", "died"):
            attempt.ends = min(attempt.ends, event.at)
    if event.kind in ENDS and attempt.closed_by is None:
        attempt.closed_by = event


def _by_name(attempts: Sequence[Attempt]) -> dict[str, list[Attempt]]:
    groups: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        groups[attempt.asked.name].append(attempt)
    return groups


# One attempt --------------------------------------------------------------------------------------------------------


def _alone(attempt: Attempt, forgot: Sequence[Event], may_be_unreachable: bool) -> Iterator[Violation]:
    complain = _complaints_of(attempt)
    closed = attempt.closed_by
    if closed is None:
        yield complain("unanswered", "never heard of it again")
    elif closed.kind == "failed":
        yield complain("failed", closed.note)
    elif closed.kind == "unreachable" and not may_be_unreachable:
        yield complain("unreachable", closed.note)
    elif closed.kind in ("refused", "unreachable"):
        patience = attempt.asked.until if closed.kind == "refused" else attempt.asked.patience
        if closed.at < patience:
            yield complain("impatient", f"{closed.kind} {patience - closed.at:.6f} s before its patience was over")
    if attempt.granted is not None:
        yield from _truth(attempt, attempt.granted, forgot, complain)


def _truth(
    attempt: Attempt, granted: Event, forgot: Sequence[Event], complain: Callable[[str, str], Violation]
) -> Iterator[Violation]:
    """Whether the lease said nothing but the truth about itself."""
    ttl, deadline = attempt.asked.ttl, granted.until
    is_over = ""
    if deadline > granted.at + ttl:
        yield complain("boasted", f"granted for {deadline - granted.at:.6f} s with a ttl of {ttl:g} s")
    for event in attempt.told:
        if event.kind == "held":
            if is_over:
                yield complain("revived", f"told held at {event.at:.6f} after it was {is_over}")
            if event.at > deadline and not attempt.asked.renews:
                yield complain("late", f"told held {event.at - deadline:.6f} s after its deadline")
            if event.until > event.at + max(ttl, event.ttl):
                yield complain("boasted", f"told held for {event.until - event.at:.6f} s with a ttl of {ttl:g} s")
            if event.token != granted.token:
                yield complain("token", f"its token changed from {granted.token} to {event.token}")
            ttl, deadline = max(ttl, event.ttl), event.until
        elif event.kind == "lost" and event.at < deadline and not _remembers_no_more(attempt, event, forgot):
            yield complain("robbed", f"lost ({event.note}) {deadline - event.at:.6f} s before its deadline")
        if event.kind in ("lost", "releasing"):
            is_over = event.kind


def _remembers_no_more(attempt: Attempt, lost: Event, forgot: Sequence[Event]) -> bool:
    return any(attempt.asked.at <= each.until and lost.at >= each.at for each in forgot)


def _complaints_of(attempt: Attempt) -> Callable[[str, str], Violation]:
    return lambda rule, what: Violation(rule, attempt.asked.name, f"{attempt}: {what}")


# All attempts for one name ------------------------------------------------------------------------------------------


def _overlaps(name: str, attempts: Sequence[Attempt], forgot: Sequence[Event]) -> Iterator[Violation]:
    active: list[Attempt] = []
    for attempt in sorted((each for each in attempts if each.is_valid), key=lambda each: each.starts):
        active = [each for each in active if each.ends > attempt.starts]
        for other in active:
            if not any(other.asked.at <= each.until and attempt.starts >= each.at for each in forgot):
                yield Violation("overlap", name, f"{other} and {attempt}")
        active.append(attempt)


def _tokens(name: str, attempts: Sequence[Attempt], forgot: Sequence[Event]) -> Iterator[Violation]:
    granted = sorted((each for each in attempts if each.granted), key=lambda each: each.starts)
    owners: dict[int, Attempt] = {}
    for attempt in granted:
        if (other := owners.setdefault(attempt.token, attempt)) is not attempt:
            yield Violation("token", name, f"the same for {other} and {attempt}")
    yield from _not_growing(name, granted, lambda each: each.asked.at)
    # Of those that were valid when they were returned, each was granted after the one before it was over. Who heard of
    # its grant only after the server had lost its memory may be the older of two that overlap.
    alone = [each for each in granted if each.is_valid and not _is_heard_late(each, forgot)]
    yield from _not_growing(name, alone, lambda each: each.starts)


def _is_heard_late(attempt: Attempt, forgot: Sequence[Event]) -> bool:
    return any(attempt.asked.at <= each.until and attempt.starts >= each.at for each in forgot)


def _not_growing(name: str, granted: Sequence[Attempt], since: Callable[[Attempt], float]) -> Iterator[Violation]:
    """Whoever was granted before another's `since` must have the smaller token."""
    before = 0
    highest: Attempt | None = None
    for attempt in sorted(granted, key=since):
        while before < len(granted) and granted[before].starts < since(attempt):
            if highest is None or granted[before].token > highest.token:
                highest = granted[before]
            before += 1
        if highest is not None and highest.token > attempt.token:
            yield Violation("token", name, f"not grown from {highest} to {attempt}")


def _recovery(name: str, attempts: Sequence[Attempt], events: Sequence[Event], within: float) -> Iterator[Violation]:
    """Where the history tells: it must go on for so long, and without another fault."""
    for healed in (event for event in events if event.kind == "healed"):
        limit = healed.at + within
        if events[-1].at < limit or any(each.kind == "broke" and healed.at < each.at < limit for each in events):
            continue
        valid = [each for each in attempts if each.is_valid and each.ends > healed.at]
        first = min((each.starts for each in valid), default=math.inf)
        if first > limit:
            yield Violation("stuck", name, f"nobody had it until {first - healed.at:.6f} s after the faults were over")
