"""The attempts for one name that is done once, held for a least time or handed over: what must not have happened.

Theory of operation. An attempt says when it asks what it is about ("once 3.0", "min_hold 2.0", "adopts OWNER"). The
server notes when it leaves a name to a marker (`kept`), and when the request of an owner frees it (`freed`). Which
attempt that was, the token tells, and its owner. Seconds that a server counts may be shorter by what clocks are
promised to be off.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from gripfast.core import rules

from .attempts import About, Attempt, Sorted, owner_of
from .excuses import Excuses
from .history import Event
from .violation import Violation

DONE = "done"
_SOONER = 1.0 - 2.5 * rules.CLOCK_RATES
_ROUNDING = 0.002


def said(attempt: Attempt) -> dict[str, str]:
    words = attempt.asked.note.split()
    return dict(zip(words[::2], words[1::2], strict=True)) if len(words) % 2 == 0 else {}


def is_once(about: About) -> bool:
    return bool(about.attempts) and "once" in said(about.attempts[0])


def judged(name: str, about: About, known: Sorted, excuses: Excuses) -> Iterator[Violation]:
    sights = {
        kind: [event for event in known.others.get(kind, ()) if event.name == name]
        for kind in ("kept", "freed", "handed", "returned")
    }
    if is_once(about):
        yield from _redone(name, about.granted, excuses)
        yield from _begun_while_done(name, about, sights, excuses)
        yield from _denied(name, about.granted, excuses)
        yield from _freed(name, about.granted, sights)
        yield from _invented(name, about)
    else:
        yield from _hurried(name, about.granted, sights, excuses)
        if not known.others.get("fault"):
            yield from _granted_within(name, about.granted, excuses)
        yield from _adopted(name, about.granted, excuses)
        yield from (
            Violation("came back", name, f"{event.who} was {event.note} at {event.at:.6f}")
            for event in sights["returned"]
        )


def _recorded(attempt: Attempt) -> Event | None:
    """When it began to record that it was done, if that was confirmed."""
    since = None
    for event in attempt.told:
        if event.note == DONE:
            if event.kind == "released":
                return since
            since = event
    return None


def _redone(name: str, granted: Sequence[Attempt], excuses: Excuses) -> Iterator[Violation]:
    for attempt in granted:
        since = _recorded(attempt)
        if since is None:
            continue
        until = since.at + since.ttl * _SOONER
        for other in granted:
            is_early = _is_later(other, attempt, excuses) and other.starts < until
            if is_early and not excuses.of_exclusion(attempt, other.starts):
                yield Violation("redone", name, f"{other} began what {attempt} has recorded as done")


def _is_later(attempt: Attempt, than: Attempt, excuses: Excuses) -> bool:
    """By their tokens, if these may be compared."""
    return attempt.token > than.token and excuses.epoch(attempt) == excuses.epoch(than) is not None


def _begun_while_done(
    name: str, about: About, sights: Mapping[str, Sequence[Event]], excuses: Excuses
) -> Iterator[Violation]:
    """By what the server saw: also if nobody has read its confirmation."""
    keep = float(said(about.attempts[0])["once"])
    by_token = {attempt.token: attempt for attempt in about.granted}
    for event in sights["kept"]:
        attempt = by_token.get(event.token)
        if attempt is None or event.at < attempt.asked.at or excuses.of_exclusion(attempt, event.at + keep):
            continue  # or tokens began anew since
        since = max(event.at - event.ttl, _asked_to_record(attempt, event.at))
        if event.until < since + keep * _SOONER - _ROUNDING:
            yield Violation("redone", name, f"{attempt}: kept for {event.until - since:.6f} s instead of {keep:g}")
        again = [each for each in sights["handed"] if event.at < each.at < since + keep * _SOONER]
        if again:
            yield Violation("redone", name, f"{again[0].who} got what {attempt} had recorded at {event.at:.6f}")


def _asked_to_record(attempt: Attempt, until: float) -> float:
    """When that was, at the latest before this moment: however old the lease is that it is kept under, `keep` counts
    from then on."""
    return max((event.at for event in attempt.told if _says_done(event) and event.at <= until), default=-math.inf)


def _freed(name: str, granted: Sequence[Attempt], sights: Mapping[str, Sequence[Event]]) -> Iterator[Violation]:
    """Given back without a record, although that was asked for, and the lease was not given back before. Another owner
    may have got the same token since, if tokens began anew."""
    for attempt in granted:
        ends = [event for event in attempt.told if event.kind in ("releasing", "lost") and event.note != "expired"]
        if ends and _says_done(ends[0]):
            owner = owner_of(attempt, sights["handed"])
            for event in sights["freed"]:
                is_its_own = event.token == attempt.token and owner in (None, event.who)
                if is_its_own and event.at > ends[0].at:
                    yield Violation("redone", name, f"{attempt}: done, and then freed at {event.at:.6f}")


def _denied(name: str, granted: Sequence[Attempt], excuses: Excuses) -> Iterator[Violation]:
    """Told that somebody else may do it again, by the holder's deadline and before its record could be over."""
    for attempt in granted:
        deadline, since = attempt.asked.at, attempt.asked
        for event in [attempt.granted, *attempt.told]:
            if event is None:
                continue
            if event.kind in ("granted", "held"):
                deadline = event.until
            elif _says_done(event):
                since = event
            elif event.note.startswith("not done"):
                is_early = event.at < min(deadline, since.at + since.ttl * _SOONER)
                if is_early and not excuses.of_loss(attempt, event.at):
                    yield Violation("robbed", name, f"{attempt}: {event.note} at {event.at:.6f}")


def _invented(name: str, about: About) -> Iterator[Violation]:
    """Told done, although nobody has said so. Nothing excuses it."""
    said_so = [event.at for attempt in about.granted for event in attempt.told if _says_done(event)]
    for attempt in about.attempts:
        closed = attempt.closed_by
        is_told = closed is not None and closed.kind == "refused" and closed.note == DONE
        if closed is not None and is_told and not any(at <= closed.at for at in said_so):
            yield Violation("invented", name, f"{attempt.asked.who} was told so at {closed.at:.6f}")


def _says_done(event: Event) -> bool:
    return event.kind == "releasing" and event.note == DONE


def _hurried(
    name: str, granted: Sequence[Attempt], sights: Mapping[str, Sequence[Event]], excuses: Excuses
) -> Iterator[Violation]:
    for attempt in granted:
        seconds = float(said(attempt).get("min_hold", 0.0))
        until = attempt.starts + seconds * _SOONER - _ROUNDING
        if seconds == 0.0 or excuses.of_exclusion(attempt, until):
            continue
        for event in sights["freed"]:
            if event.token == attempt.token and attempt.asked.at <= event.at < until:
                yield Violation("hurried", name, f"{attempt}: freed at {event.at:.6f}, and not before {until:.6f}")
        for event in sights["kept"]:
            if event.at < attempt.asked.at:  # tokens began anew since
                continue
            if event.token == attempt.token and event.until < until:
                yield Violation("hurried", name, f"{attempt}: kept until {event.until:.6f}, and not {until:.6f}")
            if event.token == attempt.token:
                again = [each for each in sights["handed"] if event.at < each.at < until]
                if again:
                    yield Violation("hurried", name, f"{again[0].who} got what {attempt} keeps until {until:.6f}")


def _granted_within(name: str, granted: Sequence[Attempt], excuses: Excuses) -> Iterator[Violation]:
    """Where nothing goes wrong, a release reaches the server, and leaves the name to the marker."""
    for attempt in granted:
        if "min_hold" not in said(attempt):
            continue
        until = attempt.starts + float(said(attempt)["min_hold"]) * _SOONER - _ROUNDING
        early = [each for each in granted if _is_later(each, attempt, excuses) and each.starts < until]
        if early and _is_released(attempt) and not excuses.of_exclusion(attempt, until):
            yield Violation("hurried", name, f"{early[0]} got it before the min_hold of {attempt} was over")


def _is_released(attempt: Attempt) -> bool:
    """Before its time was over."""
    events = [event for event in attempt.told if event.kind in ("released", "lost", "died")]
    believed = [
        event.until for event in (attempt.granted, *attempt.told) if event and event.kind in ("granted", "held")
    ]
    return [event.kind for event in events] == ["released"] and events[0].note == "" and events[0].at < believed[-1]


def _adopted(name: str, granted: Sequence[Attempt], excuses: Excuses) -> Iterator[Violation]:
    adopters: dict[str, Attempt] = {}
    for attempt in granted:
        former = said(attempt).get("adopts")
        other = attempt if former is None else adopters.setdefault(former, attempt)
        if other is not attempt and not excuses.of_exclusion(other, attempt.starts):
            yield Violation("adopted", name, f"{other} and {attempt} have both adopted it from {former}")


def recovery(name: str, about: About, known: Sorted, within: float) -> Iterator[Violation]:
    """Somebody is soon told that it is done, or has done it."""
    for healed in known.others.get("healed", ()):
        limit = healed.at + within
        if known.ends >= limit and not any(_is_settled(each, healed.at, limit) for each in about.attempts):
            yield Violation("stuck", name, f"nobody did it, or was told that it was done, until {limit:.6f}")


def _is_settled(attempt: Attempt, since: float, limit: float) -> bool:
    closed = attempt.closed_by
    is_told = closed is not None and closed.note == DONE and since < closed.at <= limit
    return is_told or (attempt.starts <= limit and attempt.ends > since)
