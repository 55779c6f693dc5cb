"""What must not have happened: pure, over the events of a history, real or simulated.

Theory of operation. The history is sorted out once (`attempts`); then each attempt is judged for itself, here, all
attempts for one name against each other (`rivals`), and what engines and resources saw by itself. Every rule has its
sentence in `RULES`. Declared faults excuse what they must (`excuses`).
"""

import math
from collections.abc import Collection, Iterable, Mapping

from gripfast.core import rules

from . import once, permits, rivals
from .attempts import Attempt, Sorted, sort_out
from .excuses import Excuses
from .history import GRACE, HALF_OPEN, OF_FOLLOWER, Event
from .reach import Reach
from .violation import Violation

__all__ = ["RULES", "Violation", "overlaps", "violations"]

_LONGER = 1.0 + 2 * rules.CLOCK_RATES
"""By how much longer it may seem to a client than it is."""
_TIME_FOR_OTHERS = 1.0
"""Seconds of a ttl that are enough to leave a member that fails, and to renew at the next."""
WAKES_WITHIN = 0.3
"""Seconds from a release until one who waits has the lock, with several nodes or members."""

RULES: Mapping[str, str] = {
    "overlap": "Two leases of the same name are never valid at the same time (measured by one clock for all).",
    "exceeded": "All holders together never believe that they have more permits than the limit.",
    "slot": "No two holders believe at the same time that they have the same slot.",
    "redone": "What is recorded as done is not begun again for `keep` seconds.",
    "invented": "Nobody is told that something is done before it is done.",
    "hurried": "A granted lease keeps others out for its `min_hold`, however it ends, unless its process dies.",
    "adopted": "A detached lease is adopted once.",
    "came back": "An owner id that was detached never gets the lock again, and never frees it.",
    "token": "Tokens are unique, grow strictly in real time, and stay the same while a lease lives.",
    "lost update": "A fenced register loses no update, and its tokens never go down, even when exclusion was broken.",
    "late": "No lease counts as held after its deadline.",
    "revived": "No lease counts as held after its release or loss.",
    "boasted": "No lease says that it has more time left than its ttl.",
    "robbed": "No lease is lost before its deadline, except by a declared fault.",
    "outlived": "No lease counts as held for longer than the engine keeps the lock.",
    "misled": "A holder is notified of a loss at once, releasing a lost lease raises an error, and `max_hold` is kept.",
    "neglected": "No lease that is renewed expires while no fault is in the way.",
    "confirmed": "The server accepts a renewal only from the holder.",
    "stolen": "A request never takes a lock away from its holder.",
    "hasty": "A server that was just promoted, or just started, grants nothing before its grace is over.",
    "passed": "Nobody overtakes a waiter that is alive and first in the queue.",
    "overtaken": "No attempt is refused because of a lease that its client has released, while no fault is in the way.",
    "idle": "A free lock is handed to a waiter, if there is one.",
    "overdue": "No attempt lasts longer than its wait while no fault is in the way.",
    "impatient": "No attempt ends without a lease before its wait is over.",
    "unreachable": 'No request fails as "unreachable" if there is no fault, or if all faults are over.',
    "unanswered": "Every attempt gets an answer, and every lease ends.",
    "failed": "No internal error reaches a caller.",
    "stuck": "After the faults are over, each lock is soon acquired again.",
    "left behind": "No thread, task, connection, key or ledger entry is left behind.",
}


def violations(
    history: Iterable[Event],
    *,
    may_be_unreachable: bool = False,
    recover_within: float | None = None,
    reacts_within: float | None = None,
    reach: Reach | None = None,
    notifies: bool = False,
    with_others: Collection[str] = (),
) -> list[Violation]:
    """All there are. `recover_within`: seconds from `healed` until every lock has a holder. `reacts_within`: seconds
    that a request may take although no fault is in the way; all faults must be in the history, with their ends.
    `reach`: what was in the way of each node, where there are several. `notifies`: the engine does not hand the lock to
    the next one itself, but those who wait are notified. `with_others`: processes that know other members of a cluster
    if one fails."""
    known = sort_out(history)
    way = _Way(known, reach, with_others)
    excuses = Excuses(known.others.get("forgot", ()), known.others.get("jumped", ()))
    found: list[Violation] = []
    healed_at = max([event.at for event in known.others.get("healed", ())], default=math.inf)
    for attempt in known.attempts:
        # Once the faults are over it must be reached, by whoever has the patience to find that a connection is dead.
        asked = attempt.asked
        is_healed = asked.at >= healed_at and asked.patience - asked.at >= (reacts_within or 0.0)
        may_be = may_be_unreachable and way.may_be_unreachable(attempt, is_healed, reacts_within or 0.0)
        _judge_end(attempt, may_be, excuses, way, found)
        if reacts_within is not None and attempt.granted is None:
            _judge_patience(attempt, way, reacts_within, excuses, found)
        if attempt.granted is not None:
            _judge_words(attempt, attempt.granted, excuses, found)
            if reacts_within is not None:
                _judge_renewal(attempt, known, way, reacts_within, found)
    handed = known.others.get("handed")
    broke_at = min([event.at for event in known.others.get("fault", ())], default=math.inf)
    for name, about in known.names.items():
        is_shared = bool(about.attempts) and permits.wanted(about.attempts[0]) is not None
        if is_shared:
            resized = known.others.get("resized", ())
            found += permits.exceeded(name, about.granted, excuses, handed or (), resized)
            found += permits.misfits(name, about.attempts, resized)
        else:
            found += rivals.overlaps(name, about.granted, excuses)
        found += rivals.tokens(name, about, excuses, is_shared)
        if handed:
            found += rivals.unknown_tokens(name, about, handed)
        if handed and reacts_within is not None and reach is None:
            for attempt, released in rivals.overtaken(name, about, handed, excuses):
                since, until = released.at - reacts_within, attempt.asked.at + reacts_within
                is_blocked = way.is_blocked(attempt, since, until, but="scripts forgotten")
                is_repeated = attempt.asked.at > released.at + reacts_within  # the release, by then
                if not is_blocked and (is_repeated or not way.is_cut_unawares(released, since)):
                    what = f"refused by the lease that {released.who} had released at {released.at:.6f}"
                    found.append(_violation("overtaken", attempt, what))
        if reach is not None or (notifies and not any(map(once.said, about.attempts))):
            found += rivals.idle(name, about, broke_at, WAKES_WITHIN)
        if reach is not None:
            found += rivals.unaccepted_tokens(name, about, known.others.get("accepted", ()), reach.needed)
        if about.writes:
            found += rivals.lost_updates(name, about, excuses)
        found += once.judged(name, about, known, excuses)
        if recover_within is not None and once.is_once(about):
            found += once.recovery(name, about, known, recover_within)
        elif recover_within is not None:
            found += rivals.recovery(name, about.granted, known, recover_within)
    for event in known.others.get("displaced", ()):
        if not way.is_disturbed(event.at - event.ttl - (reacts_within or 0.0), event.at):
            found.append(Violation("passed", event.name, f"{event.who} lost its place in the queue at {event.at:.6f}"))
    _judge_sights(known, found)
    return found


def overlaps(history: Iterable[Event]) -> list[Violation]:
    """All there are, excused or not."""
    names = sort_out(history).names
    return [each for name, about in names.items() for each in rivals.overlaps(name, about.granted, Excuses())]


class _Way:
    """What was in somebody's way: on one server, whatever happened to anyone; with several nodes, what `reach` says."""

    def __init__(self, known: Sorted, reach: Reach | None, with_others: Collection[str]) -> None:
        self._faults = known.others.get("fault", ())
        self._attempts = known.attempts
        self._reach = reach
        self._with_others = with_others

    def is_blocked(self, attempt: Attempt, since: float, until: float, but: str = "no fault") -> bool:
        """`but`: a fault that does not count."""
        if self._reach is not None:
            return self._reach.is_in_the_way(_process(attempt), since, until)
        return self.is_disturbed(since, until, but)

    def is_disturbed(self, since: float, until: float, but: str = "no fault") -> bool:
        """By whatever happened to anyone."""
        faults = (fault for fault in self._faults if fault.at <= until and fault.until >= since)
        return any(not fault.note.startswith(but) for fault in faults)

    def is_left_to_others(self, attempt: Attempt, since: float, until: float) -> bool:
        """All that was wrong was one follower, and there was time to find that out, and to ask another member."""
        if attempt.asked.ttl < _TIME_FOR_OTHERS:
            return False
        notes = {fault.note for fault in self._faults if fault.at <= until and fault.until >= since}
        members = {note.split()[-4] for note in notes if note.endswith(OF_FOLLOWER)}
        is_one = len(members) == 1 and all(note.endswith(OF_FOLLOWER) for note in notes)
        return is_one and _process(attempt) in self._with_others

    def is_cut_unawares(self, event: Event, since: float) -> bool:
        """A half-open connection looks sound until the next request on it: this process sent none before `since`."""
        process = event.who.partition("/")[0]
        cuts = [fault.at for fault in self._faults if fault.note == HALF_OPEN and fault.who == process]
        cut = max((at for at in cuts if at <= event.at), default=math.inf)
        own = (each.asked.at for each in self._attempts if _process(each) == process)
        return cut < math.inf and not any(cut < at < since for at in own)

    def is_in_grace(self, attempt: Attempt, beyond: float = 0.0) -> bool:
        """Who can't wait for its end is told so: it is `beyond` its patience, or seems so because an answer is late."""
        closed = attempt.closed_by
        since, until = attempt.asked.at, math.inf if closed is None else closed.at
        graces = [each for each in self._faults if each.note == GRACE and each.at <= until and each.until >= since]
        if any((grace.until - until) * _LONGER >= beyond - until for grace in graces):
            return True
        others = (each for each in self._faults if each.note != GRACE)
        return bool(graces) and any(each.at <= until and each.until >= graces[0].at for each in others)

    def may_be_unreachable(self, attempt: Attempt, is_healed: bool, within: float) -> bool:
        """A fault at so few nodes that the others are a majority excuses nothing, once it is known."""
        reach, closed = self._reach, attempt.closed_by
        asked = attempt.asked
        has_time = closed is not None and asked.patience - asked.at >= within
        if closed is not None and has_time and self.is_left_to_others(attempt, asked.at - within, closed.at):
            return False
        if reach is None or closed is None:
            return not is_healed or self.is_in_grace(attempt)
        since = attempt.asked.at - within
        if not reach.is_quorate(since, closed.at):
            return True
        return not is_healed and not reach.has_majority(_process(attempt), since, closed.at)


def _process(attempt: Attempt) -> str:
    return attempt.asked.who.partition("/")[0]


def _judge_end(attempt: Attempt, may_be_unreachable: bool, excuses: Excuses, way: _Way, found: list[Violation]) -> None:
    closed = attempt.closed_by
    if closed is None:
        found.append(_violation("unanswered", attempt, "the history does not show how it ended"))
    elif closed.kind == "failed":
        found.append(_violation("failed", attempt, closed.note))
    elif closed.kind == "unreachable" and not may_be_unreachable:
        found.append(_violation("unreachable", attempt, closed.note))
    elif closed.kind == "refused" or closed.kind == "unreachable":
        # Whoever does not wait takes a connection that can't be made for an answer.
        is_told = attempt.asked.until <= attempt.asked.at and closed.note.partition(":")[0] == "StoreUnavailable"
        patience = attempt.asked.until if closed.kind == "refused" or is_told else attempt.asked.patience
        if closed.note in (once.DONE, permits.ANOTHER_LIMIT) and closed.kind == "refused":
            return  # nobody waits for that
        if closed.kind == "unreachable" and way.is_in_grace(attempt, attempt.asked.until):
            return  # nor for that
        if closed.at < patience and not excuses.of_time(attempt, closed.at):
            what = f"{closed.kind} {patience - closed.at:.6f} s before its wait was over"
            found.append(_violation("impatient", attempt, what))


def _judge_words(attempt: Attempt, granted: Event, excuses: Excuses, found: list[Violation]) -> None:
    """Whether the lease said nothing but the truth about itself."""
    ttl, deadline, is_over = attempt.asked.ttl, granted.until, ""
    if deadline > granted.at + ttl and not excuses.of_time(attempt, granted.at):
        what = f"granted for {deadline - granted.at:.6f} s with a ttl of {ttl:g} s"
        found.append(_violation("boasted", attempt, what))
    for event in attempt.told:
        kind = event.kind
        if kind == "held":
            if is_over:
                found.append(_violation("revived", attempt, f"counted as held at {event.at:.6f} {is_over}"))
            if event.token != granted.token:
                found.append(_violation("token", attempt, f"its token changed from {granted.token} to {event.token}"))
            _judge_times(attempt, event, ttl, deadline, excuses, found)
            ttl, deadline = max(ttl, event.ttl), event.until
        elif kind == "lost" and event.at < deadline and not excuses.of_loss(attempt, event.at):
            what = f"lost ({event.note}) {deadline - event.at:.6f} s before its deadline"
            found.append(_violation("robbed", attempt, what))
        elif kind == "outlived" and not excuses.of_absence(attempt, event.at):
            what = f"counted as held at {event.at:.6f}, but the engine keeps it only until {event.until:.6f}"
            found.append(_violation("outlived", attempt, what))
        elif kind == "misled" and not excuses.of_time(attempt, event.at):
            found.append(_violation("misled", attempt, event.note))
        if kind == "lost" or kind == "releasing":
            is_over = "after its loss" if kind == "lost" else "after its release began"


def _judge_times(
    attempt: Attempt, held: Event, ttl: float, deadline: float, excuses: Excuses, found: list[Violation]
) -> None:
    """`ttl`, `deadline`: what it was told before. A lease that renews itself may have got another deadline since."""
    at, until = held.at, held.until
    if (at > until or (at > deadline and not attempt.asked.renews)) and not excuses.of_time(attempt, at):
        past = until if at > until else deadline
        found.append(_violation("late", attempt, f"counted as held {at - past:.6f} s after its deadline"))
    if until > at + max(ttl, held.ttl) and not excuses.of_time(attempt, at):
        found.append(_violation("boasted", attempt, f"said {until - at:.6f} s were left with a ttl of {ttl:g} s"))


def _judge_renewal(attempt: Attempt, known: Sorted, way: _Way, within: float, found: list[Violation]) -> None:
    """Whatever is in the way, on the side of anybody, excuses it: faults have effects on others."""
    others = known.others
    if not attempt.asked.renews or others.get("forgot") or others.get("jumped"):
        return
    ttl = attempt.asked.ttl
    for event in attempt.told:
        if event.kind == "held":
            ttl = max(ttl, event.ttl)
        elif event.kind == "lost":
            since = event.at - rules.renew_retry(ttl) - within  # there was time for another try after that
            if since < attempt.starts:
                since = event.at - ttl - within
            is_blocked = way.is_blocked(attempt, since, event.at)
            is_blocked = is_blocked and not way.is_left_to_others(attempt, event.at - ttl - within, event.at)
            if event.note == "expired" and not is_blocked:
                found.append(_violation("neglected", attempt, f"expired at {event.at:.6f}"))
            return


def _judge_patience(attempt: Attempt, way: _Way, within: float, excuses: Excuses, found: list[Violation]) -> None:
    closed, until = attempt.closed_by, attempt.asked.until
    if closed is None or closed.kind != "refused" or closed.at <= until + within or closed.note == once.DONE:
        return
    if not way.is_blocked(attempt, until - within, closed.at) and not excuses.of_time(attempt, closed.at):
        found.append(_violation("overdue", attempt, f"refused {closed.at - until:.6f} s after its wait was over"))


def _violation(rule: str, attempt: Attempt, what: str) -> Violation:
    return Violation(rule, attempt.asked.name, f"{attempt}: {what}")


def _judge_sights(known: Sorted, found: list[Violation]) -> None:
    """What engines saw, and what whoever tidied up found. Nothing excuses these."""
    for event in known.others.get("handed", ()):
        if event.note and not f"{event.note} ".startswith(f"{event.who} "):
            what = f"handed to {event.who} at {event.at:.6f} while the queue was: {event.note}"
            found.append(Violation("passed", event.name, what))
    for event in known.others.get("removed", ()):
        if event.who != event.note:
            what = f"{event.who} took it away from {event.note} at {event.at:.6f}"
            found.append(Violation("stolen", event.name, what))
    for event in known.others.get("lowered", ()):
        what = f"a node accepted {event.token} from {event.who} at {event.at:.6f}, although {event.note}"
        found.append(Violation("token", event.name, what))
    for event in known.others.get("idle", ()):
        what = f"left free by {event.who} at {event.at:.6f} while the queue was: {event.note}"
        found.append(Violation("idle", event.name, what))
    for event in known.others.get("hasty", ()):
        what = f"granted to {event.who} at {event.at:.6f} in a grace that lasts until {event.until:.6f}"
        found.append(Violation("hasty", event.name, what))
    for event in known.others.get("confirmed", ()):
        what = f"a renewal of {event.who} was accepted at {event.at:.6f} while the holder was {event.note}"
        found.append(Violation("confirmed", event.name, what))
    left = known.others.get("left", ())
    found += [Violation("left behind", event.name, f"{event.who}: {event.note}") for event in left]
