"""How a lease is released: the state first, so that no renewal and no reader believes in it any more, then the
engine."""

from __future__ import annotations

import logging

from gripfast.core.lease import Broken, LeaseState, lease_lost, reason_of
from gripfast.core.ports import Env, Hold, Unreachable
from gripfast.errors import ClientClosed, quoted

_log = logging.getLogger("gripfast.lease")

_WILL_RETRY = "can't release %r yet (%s); will retry in the background"


async def release(env: Env, state: LeaseState) -> None:
    """Idempotent. Raises LeaseLost if the lease was lost before; an unreachable engine is retried in the background."""
    state.remaining(env.now())
    if not state.finish("released"):
        if state.lost(env.now()) is not None:
            raise state.error()
        return
    if state.listeners:
        state.tell()
    try:
        want = state.want
        hold = Hold(want.key, state.owner, state.ttl, False, want.share)
        if want.min_hold is not None:
            hold = hold._replace(keep=env.ledger.kept(state.owner, env.now()))
        if want.is_lazy:
            from gripfast.core.lazy import release_lazily  # which most locks do not need

            await release_lazily(env, state, hold)
            answer = None
        else:
            answer = await env.store.release(hold)
    except ClientClosed:
        env.ledger.abandon(state)
        _log.info("the client is being closed, and that releases %r", state.name, extra=state.about())
        if state.story is not None:
            state.story.released()
        return
    except BaseException:
        env.ledger.abandon(state)
        if state.story is not None:
            state.story.released()
        raise
    if answer is None:
        if not want.is_lazy:  # then the ledger has it until the answer is read
            env.ledger.confirm_gone(state.owner)
    elif isinstance(answer, Unreachable):
        _log.warning(_WILL_RETRY, state.name, answer.error, extra=state.about())
        env.ledger.abandon(state)
    else:
        if env.ledger.is_given_back(state.owner):
            answer = None  # by the client, which is being closed
        env.ledger.confirm_gone(state.owner)
    if state.story is not None:
        state.story.released(answer)
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("released %r", state.name, extra=state.about())
    if answer is not None and not isinstance(answer, Unreachable):
        why = f"broken: {quoted(answer.note)}" if isinstance(answer, Broken) else answer
        what = "lease on %r was already lost (%s) when it was released"
        _log.warning(what, state.name, why, extra=state.about(reason_of(answer)))
        raise lease_lost(state.name, answer)
