"""How a held lock passes from one client to another: detached here, adopted there.

*Detached.* The lease was renewed a moment ago, for as long as the adopter may need. Then it is over in this client:
nobody here renews, releases or believes in it. Up to the last step the ledger has it, so if anything goes wrong, it is
released. A claim of it that was not answered may still be on its way: the store sees to it that it brings nobody back
(`HandsOver.detach`).

*Adopted.* One compare-and-swap, from the owner id of the text to a new one, with a new token. To renew by the old id
would let two adopters believe. A repeated request is recognised by the new id. Who comes second, or too late, gets
LeaseLost.
"""

from __future__ import annotations

import logging
from typing import cast

from gripfast.core import closing, rules
from gripfast.core.kept import MIN_HOLD, Keeping
from gripfast.core.lease import LeaseState, Loss, Want, lease_lost
from gripfast.core.ledger import Mark
from gripfast.core.ports import Claim, Env, Granted, HandsOver, Hold, Unreachable, to_raise
from gripfast.errors import ClientClosed, LeaseLost, StoreUnavailable

_log = logging.getLogger("gripfast.lease")

_NOT_THERE = (
    "this text is not valid any more: its lease has expired, or was released or adopted before, or belongs to another "
    "store. Someone else may hold the lock now: acquire it again before you go on"
)


async def detach(env: Env, state: LeaseState) -> None:
    """Raises LeaseLost if it is over, StoreUnavailable if the store could not be asked; then it is released."""
    if not state.finish("detached"):
        raise state.error()
    state.tell()
    try:
        store = cast(HandsOver, env.store)
        answer = await store.detach(Hold(state.key, state.owner, state.ttl), state.token)
        if isinstance(answer, Unreachable):
            raise to_raise(answer.error)
        if answer is not None:
            raise lease_lost(state.name, answer)
    except BaseException:
        env.ledger.abandon(state)
        if state.story is not None:
            state.story.released()
        raise
    if state.story is not None:
        state.story.detached()
    env.ledger.confirm_gone(state.owner)  # last: from here on nobody in this process gives it back


async def adopt(env: Env, want: Want, former: str) -> LeaseState:
    """Raises LeaseLost if the former owner does not have it any more, StoreUnavailable if nobody could be asked."""
    state = LeaseState(want, env.new_owner())
    mark = env.ledger.enter(state)
    if want.min_hold is not None:  # before the request leaves: somebody believed in this lease before
        mark.keeping = Keeping(MIN_HOLD, want.min_hold, env.now())
    try:
        trace = None if env.observers is None else env.observers.claimed(state)
        claim = Claim(want.key, state.owner, want.ttl, want.label, None, trace=trace)
        answer, sent = await _ask(env, claim, former, mark)
        if isinstance(answer, Granted):
            if not state.grant(answer.token, answer.ttl, sent, env.now(), want.max_hold):
                raise ClientClosed if env.is_closed else _too_late(want)
            if state.story is not None:
                state.story.granted(state)
            if want.min_hold is not None:
                mark.keeping = Keeping(MIN_HOLD, want.min_hold, env.now())
            mark.granted = True
            env.announce(state)
            _log.debug("adopted %r with token %d", want.name, state.token, extra=state.about())
            return state
    except BaseException as error:
        env.ledger.abandon(state)
        if state.story is not None:
            state.story.failed(error)
        raise
    env.ledger.confirm_gone(state.owner)
    if state.story is not None:
        state.story.refused()
    raise not_there(want.name, answer)


def not_there(name: str, loss: Loss) -> LeaseLost:
    """Stores say "expired" or "taken" of an owner that they do not have. The holder of a text may know more reasons."""
    return LeaseLost(name, loss, _NOT_THERE) if loss in ("expired", "taken") else lease_lost(name, loss)


async def _ask(env: Env, claim: Claim, former: str, mark: Mark) -> tuple[Granted | Loss, float]:
    """Again and again for the time of one request, if the store can't be reached. The answer, and the moment before the
    request left."""
    hold = Hold(claim.name, former, claim.ttl)
    store, ends, failures = cast(HandsOver, env.store), env.now() + env.request_timeout, 0
    while True:
        if env.is_closed:
            raise ClientClosed
        mark.may_be_there = True
        sent = mark.sent = env.now()
        answer = await store.adopt(hold, claim)
        if env.is_closed:
            await closing.undo(env, claim, mark)  # type: ignore[unreachable] # closed meanwhile
        if not isinstance(answer, Unreachable):
            return answer, answer.sent or sent if isinstance(answer, Granted) else sent
        if answer.is_permanent or answer.was_refused or answer.ready_in is not None or env.now() >= ends:
            raise to_raise(answer.error)
        await env.pause(min(rules.retry_pause(failures), ends - env.now()))
        failures += 1


def _too_late(want: Want) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store took longer than the ttl of {want.ttl:g} s to hand over {want.name!r}: use a longer ttl"
    )
