"""How it is recorded that something was done, so that nobody begins it again.

The client that does it holds a lock. When the work is done, the release leaves the name to a `done:` marker
(`core/kept.py`). A client that finds the marker does not wait for it, because there is nothing left to do.

*What the clean-up must do stands in the ledger before the request leaves.* So whatever interrupts the request, the
clean-up records the same, and never frees a name whose work is done.

*The engine judges.* "Done" is sent even if the lease should be over by the clock of this client: if nobody else has
got the lock meanwhile, nobody else has begun. That is why a lease that expired is not released while the work goes on
(`core/notice.py`). "Not yours" is no success: somebody else may do the work again. Without an answer it is not known
whether that will happen, and the caller is told so.
"""

from __future__ import annotations

import logging

from gripfast.core import rules
from gripfast.core.kept import DONE, Keep, Keeping
from gripfast.core.lease import LeaseState, Loss, lease_lost
from gripfast.core.ports import Env, Hold, Unreachable
from gripfast.errors import ClientClosed, OutcomeUnknown

_log = logging.getLogger("gripfast.lease")


async def record_done(env: Env, state: LeaseState, seconds: float) -> None:
    """Raises LeaseLost if somebody else may do it again, OutcomeUnknown if that is not known."""
    env.ledger.keep(state.owner, Keeping(DONE, seconds))
    ends = min(state.deadline, env.now() + env.connect_patience)
    state.finish("released")
    state.tell()
    try:
        answer = await _send(env, state, seconds, ends)
    except BaseException:
        env.ledger.abandon(state)
        if state.story is not None:
            state.story.released()
        raise
    if state.story is not None:
        state.story.released(answer)
    if isinstance(answer, Unreachable):
        env.ledger.abandon(state)
        raise OutcomeUnknown(
            f"{state.name!r} is done, but the store did not confirm that it has recorded this "
            f"({answer.error}). Gripfast retries in the background until the lease would be over; if that fails, the "
            "work may be done again",
            getattr(answer.error, "nodes", None),
        )
    env.ledger.confirm_gone(state.owner)
    if answer is not None:
        if env.is_closed:
            raise ClientClosed(
                f"{state.name!r} is not recorded as done, because its client was closed before the block ended, so "
                "the work may be done again: close the client after the block"
            )
        raise lease_lost(state.name, answer)
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("recorded %r as done", state.name, extra=state.about())


async def _send(env: Env, state: LeaseState, seconds: float, ends: float) -> Loss | Unreachable | None:
    """Again and again until there is an answer, or the lease would be over; at least once."""
    hold = Hold(state.key, state.owner, state.ttl, keep=Keep(DONE + state.owner, seconds))
    failures = 0
    while True:
        answer = await env.store.release(hold)
        if not isinstance(answer, Unreachable) or answer.is_permanent or env.now() >= ends:
            return answer
        await env.pause(min(rules.retry_pause(failures), ends - env.now()))
        failures += 1
