"""The attempts for one name against each other: overlaps, tokens, the fenced register, who gets the lock after faults.

Theory of operation. The tokens of two grants may be compared wherever it is known which came first: one was returned
before the other was asked for, or both were valid when they were returned, and then each was granted after the one
before it was over. The latter follows from exclusion, so it is not asked of grants for which exclusion is excused.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from .attempts import About, Attempt, Sorted, owner_of
from .excuses import Excuses
from .history import HELD_BY, Event
from .violation import Violation


def overlaps(name: str, granted: Sequence[Attempt], excuses: Excuses) -> Iterator[Violation]:
    active: list[Attempt] = []
    for attempt in granted:
        starts = attempt.starts
        if starts < attempt.ends:
            if active:
                active = [each for each in active if each.ends > starts]
                for other in active:
                    if not may_overlap(other, attempt, excuses):
                        yield Violation("overlap", name, f"{other} and {attempt}")
            active.append(attempt)


def may_overlap(first: Attempt, second: Attempt, excuses: Excuses) -> bool:
    """What counts is the older of the two. That may be the second, if it heard of its grant late: the token tells,
    unless it may be of the time before tokens began anew."""
    if excuses.of_exclusion(first, second.starts):
        return True
    may_be_older = second.token < first.token or excuses.epoch(second) is None
    return may_be_older and excuses.of_exclusion(second, second.starts)


# Tokens -------------------------------------------------------------------------------------------------------------


def unknown_tokens(name: str, about: About, handed: Iterable[Event]) -> Iterator[Violation]:
    """Where engines tell what they did: a grant has a token that one of them gave."""
    given = {event.token for event in handed if event.name == name}
    for attempt in about.granted:
        if attempt.token not in given:
            yield Violation("token", name, f"{attempt}: no engine gave this one")


def unaccepted_tokens(name: str, about: About, accepted: Iterable[Event], needed: int) -> Iterator[Violation]:
    """Where there are several nodes: so many of them have accepted the token of a grant before it was returned."""
    by_token: dict[int, list[Event]] = {}
    for event in accepted:
        if event.name == name:
            by_token.setdefault(event.token, []).append(event)
    for attempt in about.granted:
        nodes = {event.note for event in by_token.get(attempt.token, ()) if event.at <= attempt.starts}
        if len(nodes) < needed:
            yield Violation("token", name, f"{attempt}: accepted by {len(nodes)} nodes, and {needed} are needed")


def tokens(name: str, about: About, excuses: Excuses, is_shared: bool = False) -> Iterator[Violation]:
    """`is_shared`: several may be valid at once."""
    if not excuses.have_epochs(name):
        yield from _tokens_of_an_epoch(name, about.attempts, about.granted, excuses, is_shared)
        return
    epochs: dict[int, list[Attempt]] = {}
    for attempt in about.granted:
        if (epoch := excuses.epoch(attempt)) is not None:
            epochs.setdefault(epoch, []).append(attempt)
    for granted in epochs.values():
        attempts = sorted(granted, key=lambda attempt: attempt.asked.at)
        yield from _tokens_of_an_epoch(name, attempts, granted, excuses, is_shared)


def _tokens_of_an_epoch(
    name: str, attempts: Sequence[Attempt], granted: Sequence[Attempt], excuses: Excuses, is_shared: bool
) -> Iterator[Violation]:
    owners: dict[int, Attempt] = {}
    for attempt in granted:
        if (other := owners.setdefault(attempt.token, attempt)) is not attempt:
            yield Violation("token", name, f"the same for {other} and {attempt}")
    asked = [each for each in attempts if each.granted is not None]
    yield from _not_growing(name, granted, asked, lambda each: each.asked.at)
    if is_shared:
        return
    alone = [each for each in granted if each.starts < each.ends and not excuses.of_exclusion(each, each.starts)]
    yield from _not_growing(name, alone, alone, lambda each: each.starts)


def _not_growing(
    name: str, granted: Sequence[Attempt], judged: Iterable[Attempt], since: Callable[[Attempt], float]
) -> Iterator[Violation]:
    """Whoever was granted before another's `since` must have the smaller token. Both are in the order of time."""
    before = 0
    highest: Attempt | None = None
    for attempt in judged:
        moment = since(attempt)
        while before < len(granted) and (other := granted[before]).starts < moment:
            if highest is None or other.token > highest.token:
                highest = other
            before += 1
        if highest is not None and highest.token > attempt.token:
            yield Violation("token", name, f"not grown from {highest} to {attempt}")


# The register -------------------------------------------------------------------------------------------------------


def lost_updates(name: str, about: About, excuses: Excuses) -> Iterator[Violation]:
    """Each write must have read what the one before it wrote; the first one, 0."""
    epochs = _epochs_of_writers(about.granted, excuses) if excuses.have_epochs(name) else None
    value, last = "0", None
    for write in about.writes:
        read, written = write.note.split()
        if last is None or epochs is None or _same_epoch(epochs, last, write):
            if read != value:
                yield Violation("lost update", name, f"{_text(write)} read {read}, but {_text(last)} wrote {value}")
            elif last is not None and write.token < last.token:
                yield Violation("lost update", name, f"{_text(write)} was accepted after {_text(last)}")
        value, last = written, write


Epochs = dict[tuple[str, int], int | None]
"""By who wrote, and with which token."""


def _epochs_of_writers(granted: Sequence[Attempt], excuses: Excuses) -> Epochs:
    return {(each.asked.who, each.token): excuses.epoch(each) for each in granted}


def _same_epoch(epochs: Epochs, first: Event, second: Event) -> bool:
    one, other = epochs.get((first.who, first.token)), epochs.get((second.who, second.token))
    return one is not None and one == other


def _text(write: Event | None) -> str:
    return f"{write.who} with token {write.token} at {write.at:.6f}" if write else "the beginning"


# Waking -------------------------------------------------------------------------------------------------------------


def idle(name: str, about: About, broke_at: float, within: float) -> Iterator[Violation]:
    """Where nobody is handed the lock, but woken: while nothing has gone wrong yet, one who waits has it soon after a
    release, unless somebody else came first."""
    for attempt in about.granted:
        released = next((event for event in attempt.told if event.kind == "released"), None)
        if released is not None and released.note == "detached":  # it is held for whoever adopts it
            continue
        if released is None or released.at + within >= broke_at:
            continue
        since, until = released.at, released.at + within
        waiting = [each for each in about.attempts if _waits(each, since - within, until)]
        is_had = any(each.starts <= until and each.ends > since for each in about.granted if each is not attempt)
        if waiting and not is_had:
            who = " ".join(each.asked.who for each in waiting)
            what = f"released at {since:.6f}, and nobody got it within {within:g} s while the queue was: {who}"
            yield Violation("idle", name, what)


def _waits(attempt: Attempt, since: float, until: float) -> bool:
    """From one moment to the other, and it would have gone on."""
    closed = attempt.closed_by
    has_time = attempt.asked.at < since and attempt.asked.until > until and attempt.starts > until
    return has_time and (closed is None or closed.at > until)


# A client and its own releases ----------------------------------------------------------------------------------------


def overtaken(name: str, about: About, handed: Iterable[Event], excuses: Excuses) -> Iterator[tuple[Attempt, Event]]:
    """Who was refused by a lease that its own client had released before, and that release. A restored backup may have
    brought the lease back."""
    of_name = [event for event in handed if event.name == name]
    granted = {owner_of(attempt, of_name): attempt for attempt in about.granted}
    for attempt in about.attempts:
        closed = attempt.closed_by
        if closed is None or closed.kind != "refused" or not closed.note.startswith(HELD_BY):
            continue
        holder = granted.get(closed.note.removeprefix(HELD_BY))
        released = None if holder is None else holder.closed_by
        if holder is not None and excuses.of_return(holder, closed.at):
            continue
        if released is not None and released.kind == "released" and not released.note:
            is_own = _process(released.who) == _process(attempt.asked.who)
            if is_own and released.at <= attempt.asked.at:
                yield attempt, released


def _process(who: str) -> str:
    return who.partition("/")[0]


# Recovery -----------------------------------------------------------------------------------------------------------


def recovery(name: str, granted: Sequence[Attempt], known: Sorted, within: float) -> Iterator[Violation]:
    """Where the history tells: it must go on for so long, and without another fault."""
    for healed in known.others.get("healed", ()):
        limit = healed.at + within
        broke = known.others.get("broke", ())
        if known.ends < limit or any(healed.at < each.at < limit for each in broke):
            continue
        valid = (each.starts for each in granted if each.starts < each.ends and each.ends > healed.at)
        first = min(valid, default=math.inf)
        if first > limit:
            yield Violation("stuck", name, f"nobody had it until {first - healed.at:.6f} s after the faults were over")
