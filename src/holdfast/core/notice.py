"""How loss is told: by looking at the clock and at nothing else, so that no I/O and no slow callback can delay it."""

from __future__ import annotations

import logging

from holdfast.core.lease import LeaseState
from holdfast.core.ports import Env
from holdfast.errors import LeaseLost, Reason

_log = logging.getLogger("holdfast.lease")


def tell_losses(env: Env) -> float:
    """Tell every loss that was not told yet; the moment of the next deadline."""
    now = env.now()
    next_deadline = float("inf")
    for state in env.ledger.leases():
        reason = state.lost(now)
        if reason is not None:
            _tell(env, state, reason)
        elif state.ending is None:
            next_deadline = min(next_deadline, state.deadline)
    return next_deadline


def _tell(env: Env, state: LeaseState, reason: Reason) -> None:
    # Abandoned first: the engine may still have it (max_hold), and an abandoned lease is not told twice.
    env.ledger.abandon(state)
    _log.warning("%s", LeaseLost(state.name, reason))
    state.tell()
    if state.on_lost is not None:
        state.on_lost(state, reason)
