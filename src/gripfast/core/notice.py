"""How a loss is noticed and reported: by looking at the clock, and at the sessions of leases that have one. Nothing
here waits, so no I/O and no slow callback can delay a report."""

from __future__ import annotations

import logging
import math

from gripfast.core import rules
from gripfast.core.lease import LeaseState
from gripfast.core.ports import Env
from gripfast.core.soonest import Soonest
from gripfast.errors import Reason

_log = logging.getLogger("gripfast.lease")

NOTICED_LATE = 0.5
"""Seconds after the deadline, from which on the log says what may have been the cause."""


class Notices:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._next_deadline = Soonest()
        self._has_sessions = env.store.capabilities.session

    def announce(self, state: LeaseState) -> float:
        """A lease was granted, or its deadline lowered, or it is over. The moment at which to look."""
        moment = -math.inf if state.endings else state.deadline
        self._next_deadline.announce(moment)
        return min(moment, self._env.now() + rules.LOOK_AT_SESSIONS) if self._has_sessions else moment

    def tell(self) -> float:
        """Tell every loss that was not told yet; the moment of the next deadline. Before that none is looked at."""
        now = self._env.now()
        looks_at = self._see_sessions(now) if self._has_sessions else math.inf
        if now >= self._next_deadline.next():
            self._next_deadline.begin()
            self._next_deadline.end(self._look(now))
        return min(self._next_deadline.next(), looks_at)

    def _see_sessions(self, now: float) -> float:
        """Those that have ended; the moment of the next look."""
        for owner, reason in self._env.store.look():
            state = self._env.ledger.lease(owner)
            if state is not None and state.finish(reason):
                self.announce(state)
        return now + rules.LOOK_AT_SESSIONS if self._env.ledger.leases() else math.inf

    def _look(self, now: float) -> float:
        next_deadline = math.inf
        for state in self._env.ledger.leases():
            if state.deadline > now and not state.endings:
                if state.deadline < next_deadline:
                    next_deadline = state.deadline
            elif (reason := state.lost(now)) is not None:
                _tell(self._env, state, reason)
        return next_deadline


def _why_late(seconds: float, reason: Reason) -> str:
    """Whoever notices losses also has renewals made: what kept it from the one kept it from the other."""
    if reason != "expired" or seconds < NOTICED_LATE:
        return ""
    return (
        f". That was noticed {seconds:.3g} s late: this process was paused, or its code blocked the event loop or all "
        "threads. Move long work out of the event loop (asyncio.to_thread), or to another process, or choose a longer "
        "ttl"
    )


def _tell(env: Env, state: LeaseState, reason: Reason) -> None:
    # Abandoned first: the engine may still have it (max_hold), and an abandoned lease is not told twice.
    if state.want.is_once and reason == "expired":
        env.ledger.set_aside(state)  # the work goes on, and the engine judges what is recorded at its end
    else:
        env.ledger.abandon(state)
    _log.warning("%s%s", state.error(), _why_late(env.now() - state.deadline, reason), extra=state.about(reason))
    if state.story is not None:
        state.story.lost(reason)
    state.tell()
    if state.on_lost is not None:
        state.on_lost(state, reason)
