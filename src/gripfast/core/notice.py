"""How loss is told: by looking at the clock, and at sessions where leases have some; at nothing that could wait, so
that no I/O and no slow callback can delay it."""

from __future__ import annotations

import logging
import math

from gripfast.core import rules
from gripfast.core.lease import LeaseState
from gripfast.core.ports import Env
from gripfast.core.soonest import Soonest
from gripfast.errors import Reason

_log = logging.getLogger("gripfast.lease")


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


def _tell(env: Env, state: LeaseState, reason: Reason) -> None:
    # Abandoned first: the engine may still have it (max_hold), and an abandoned lease is not told twice.
    if state.want.is_once and reason == "expired":
        env.ledger.set_aside(state)  # the work goes on, and the engine judges what is recorded at its end
    else:
        env.ledger.abandon(state)
    _log.warning("%s", state.error(), extra=state.about(reason))
    if state.story is not None:
        state.story.lost(reason)
    state.tell()
    if state.on_lost is not None:
        state.on_lost(state, reason)
