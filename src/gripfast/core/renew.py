"""How leases are kept: many in one request, dated by the moment before it left.

All renewals of a client are made by its one watchdog, those asked for by `extend` included. So requests of one lease
are never under way at the same time, and no late answer to an older one can be taken for the newer.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Sequence

from gripfast.core import rules
from gripfast.core.lease import LeaseState, Loss
from gripfast.core.ports import Env, Hold, Unreachable

_log = logging.getLogger("gripfast.renewal")


async def renew_due(env: Env) -> float:
    """Renew what is due; the moment at which the next one will be."""
    now = env.now()
    due: list[LeaseState] = []
    moment = math.inf
    for state in env.ledger.leases():
        if state.renew_at - rules.renew_slack(state.ttl) <= now:
            if state.remaining(now) > 0.0:
                due.append(state)
        elif state.renew_at < moment:
            moment = state.renew_at
    for together in _by_urgency(await _without_downgrades(env, due), env.request_timeout):
        await renew(env, together)
    return min([moment, *(state.renew_at for state in due if state.ending is None)])


async def _without_downgrades(env: Env, due: list[LeaseState]) -> list[LeaseState]:
    """What is to be renewed, when the downgrades that are due have been sent."""
    if all(state.want.share is None or not state.owes_downgrade for state in due):
        return due
    from gripfast.core.permits import repeat_downgrades

    return await repeat_downgrades(env, due)


def _by_urgency(due: list[LeaseState], request_timeout: float) -> list[list[LeaseState]]:
    """The shortest first. A batch of long leases needs more time than a short one can give, so they go apart: the
    time-outs of those that go together differ by less than a factor of 2."""
    if not due:
        return []

    def urgency(state: LeaseState) -> int:
        return math.frexp(rules.renewal_timeout(state.ttl, request_timeout))[1]

    return [list(group) for _, group in itertools.groupby(sorted(due, key=urgency), key=urgency)]


async def renew(env: Env, states: Sequence[LeaseState], shortens: bool = False) -> Unreachable | None:
    sent = env.now()
    for state in states:
        env.ledger.date(state.owner, sent, state.ttl)
    holds = [Hold(state.key, state.owner, state.ttl, shortens, share=state.want.share) for state in states]
    answer = await env.store.renew(holds, _within(env, states, sent))
    now = env.now()
    answers = [answer] * len(states) if isinstance(answer, Unreachable) else answer
    for state, each in zip(states, answers, strict=True):
        _take_answer(env, state, each, sent, now)
    failed = [(state.name, each) for state, each in zip(states, answers, strict=True) if isinstance(each, Unreachable)]
    if failed:
        names = rules.named(name for name, _ in failed)
        _log.warning("can't renew %s yet, will retry until the deadline: %s", names, failed[0][1].error)
        return failed[0][1]
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("renewed %s", rules.named(state.name for state in states))
    return None


def _within(env: Env, states: Sequence[LeaseState], now: float) -> float:
    """How long this try may last: there must be time left for two more, and for those who are not in it as well. One
    watchdog renews them all, one after the other."""
    mine = {state.owner for state in states}
    others = [
        state.deadline - now - 2 * rules.renewal_timeout(state.ttl, env.request_timeout)
        for state in env.ledger.leases()
        if state.renews and state.owner not in mine
    ]
    own = [rules.renewal_timeout(state.ttl, env.request_timeout) for state in states]
    return max(rules.RENEWAL_LEAST, min(own + others))


def _take_answer(env: Env, state: LeaseState, answer: Loss | Unreachable | None, sent: float, now: float) -> None:
    if state.story is not None:
        state.story.renewal(state, answer, now)
    if answer is None:
        state.renewed(sent, state.ttl, now)
    elif isinstance(answer, Unreachable):
        state.renew_later(now)
    elif state.remaining(now) > 0.0:
        state.finish(answer)
        env.announce(state)


async def extend(env: Env, state: LeaseState, ttl: float) -> Unreachable | None:
    """Renew now, with this ttl from now on, as far as the engine gives it."""
    ttl = min(ttl, state.most)
    shortens = ttl < state.ttl
    if shortens:
        state.lower(env.now(), ttl)
        env.announce(state)
    state.ttl = ttl
    answer = await renew(env, [state], shortens)
    if shortens and answer is not None:
        state.ceiling = min(state.ceiling, ttl)
    env.announce(state)
    return answer
