"""Declared faults, and what each of them excuses: that, and nothing else.

Theory of operation. A fault stands between an attempt and a later moment if the attempt had begun before the fault was
over, and the moment comes after the fault began. Who asked before a loss of memory (`forgot`) may have been granted
what the server then grants again; who asked before a clock was right again (`jumped`) may have been granted, dated or
expired by the wrong time. So only such a lease may be lost before its time, or overlap another one, and only a clock
excuses what a client says of the time. A fault of one name, or of one process, excuses nothing elsewhere: an operator's
force release is a `forgot` of one name, a wrong clock of a client a `jumped` of its process.

Tokens hold although clocks jump and memory is lost. Only a node that came back without its memory *and* with a clock
behind the old one (`forgot`, noted `tokens`) starts a new *epoch* of them: what was granted after it is not compared
with what was granted before, and what may be either is not compared at all.

One of several nodes that came back empty (`forgot`, noted `only tokens`) has forgotten which tokens it had accepted,
and starts such an epoch. It does not vote before every lease that it may have forgotten is over: so a lease may be lost
early, because too few nodes are left that know it, but overlap another it may not.

A failover is such a loss of memory, from the promotion until the old primary has stopped. What it excuses depends on
what is done against it (`replicated`): with nothing, everything; with grace, tokens and losses, unless the old primary
goes on for longer than it is said to; with acknowledgements, no more than that a lease is lost early (`only losses`),
because the clock of the new primary is ahead.
"""

import math
from collections.abc import Sequence

from .attempts import Attempt
from .history import ANY, ONLY_LOSSES, ONLY_TOKENS, TOKENS, WORLD, Event


class Excuses:
    __slots__ = ("_absent", "_backwards", "_epochs", "_forgot", "_jumped", "_lost")

    def __init__(self, forgot: Sequence[Event] = (), jumped: Sequence[Event] = ()) -> None:
        self._lost = forgot
        self._absent = [fault for fault in forgot if fault.note != ONLY_TOKENS]
        self._forgot = [fault for fault in forgot if fault.note not in (ONLY_TOKENS, ONLY_LOSSES)]
        self._jumped = jumped
        self._backwards = [fault for fault in forgot if fault.note == TOKENS]
        self._epochs = [fault for fault in forgot if fault.note in (TOKENS, ONLY_TOKENS)]

    def of_exclusion(self, attempt: Attempt, at: float) -> bool:
        """Whether at that moment the attempt may be overlapped by a younger one."""
        return _between(self._forgot, attempt, at) or _between(self._jumped, attempt, at)

    def of_loss(self, attempt: Attempt, at: float) -> bool:
        """Whether at that moment the attempt may be robbed."""
        return _between(self._lost, attempt, at) or _between(self._jumped, attempt, at)

    def of_absence(self, attempt: Attempt, at: float) -> bool:
        """Whether at that moment no engine may have the attempt's lock any more, although it is believed in."""
        return _between(self._absent, attempt, at) or _between(self._jumped, attempt, at)

    def of_return(self, attempt: Attempt, at: float) -> bool:
        """Whether at that moment the engine may have the attempt's lock again, although it was released: only if the
        engine went back to an earlier state after the release had begun."""
        since = next((event.at for event in attempt.told if event.kind == "releasing"), math.inf)
        name = attempt.asked.name
        return any(since <= fault.until and fault.at <= at and fault.name in (ANY, name) for fault in self._backwards)

    def of_time(self, attempt: Attempt, at: float) -> bool:
        """Whether at that moment its client may be wrong about the time."""
        return _between(self._jumped, attempt, at)

    def have_epochs(self, name: str) -> bool:
        return any(fault.name in (ANY, name) for fault in self._epochs)

    def epoch(self, attempt: Attempt) -> int | None:
        """Which epoch the token of this grant belongs to, or None if nobody can tell."""
        if _between(self._epochs, attempt, attempt.starts):
            return None
        asked = attempt.asked
        return len([fault for fault in self._epochs if fault.until < asked.at and fault.name in (ANY, asked.name)])


def _between(faults: Sequence[Event], attempt: Attempt, at: float) -> bool:
    if not faults:
        return False
    asked = attempt.asked
    return any(
        fault.at <= at
        and asked.at <= fault.until
        and fault.name in (ANY, asked.name)
        and (fault.who == WORLD or asked.who.startswith(fault.who))
        for fault in faults
    )
