"""Permits: semaphores and read/write locks, which are one thing.

A name of a kind has a limit, holders, and one queue. Each holder has n permits until its own deadline. A semaphore's
permits are numbered. A read/write lock has `RW_LIMIT` permits: a reader has one of them, a writer all; they have no
numbers.

A claim, renewal, release or clean-up is about permits if it carries a `Share`. The recipes are those of a lock
(`acquire`, `renew`, `release`). This is what an engine has to do.

*Names.* Each kind is a name space of its own, apart from that of locks.

*Grants.* A grant gives one owner n permits, for its ttl, in one step. It has a token, made as that of a lock, and
larger than all earlier ones of the name: those of readers, too. The permits of all holders, those whose time is over
left out, never exceed the limit. Each holder expires alone.

*Queue.* There is one queue for each name, first come first served, in the engine. Whoever is at its head waits until
enough permits are free, and nobody passes it: no later waiter that needs fewer, and no newcomer. Therefore a claim
without an inbox ("try") is granted only if nobody waits and its permits are free. Otherwise it leaves nothing behind.
A waiter whose last request is older than `rules.WAITER_WINDOW` has left.

*Settling.* Every request about a name settles it first, and once more after its own change. Renewals and inspections
need not. To settle is to

1. remove holders whose time is over (and, where the engine can tell, those whose process is dead);
2. remove the head of the queue if it has left, again and again. A head that does not fit is probed in the same way: it
   would block everybody behind it;
3. grant to the head if its permits fit, and push the grant to its inbox, again and again.

So a refused claim settles, too, and so do a clean-up for a waiter and a downgrade that is refused. Readers that stand
together in the queue enter together. One request grants or removes a bounded number. If there is more to do, the store
sends another request at once; nobody waits for a time-out because of it. An engine without pushes hands over nothing:
the first waiter takes its permits when it asks.

*"Yours".* If the claim's owner has an entry whose time is not over, the answer is what is recorded: the same token and
slots. The ttl is set anew, from now, and n is not looked at. If its time is over, the entry is removed, and the owner
is a newcomer. A waiter that asks again keeps its position and its n; its ttl and the time it was last seen are set
anew. A renewal sets nothing but the expiry, and never what is absent.

*Limit.* The first claim of a name sets its limit, which is in force as long as the engine remembers the name's token:
also while nobody has a permit. A newcomer (neither holder nor waiter) with another limit is refused, and so is a
waiter that wants more than the limit in force (`Taken.limit_in_force`). `resize` alone changes the limit. A read/write
lock always has `RW_LIMIT`.

*Slots.* A semaphore's grant gets the lowest free numbers below the limit in force, as the engine sees them. After the
limit has shrunk, an old holder may have larger numbers. The token of a grant is the number of the step that took its
slots. An engine that queues first and takes the slots later (ZooKeeper) answers with the token of the later step.

*Answers.* `Taken.holder` is the holder whose time is over first, as a `LockInfo` with its own token: it says when a
retry is worth it, and messages name it. None if nobody has a permit. `Taken.token` is the last token that was granted,
whoever got it: a push counts only with a larger one. An owner without an entry has lost it because it is "expired", or
"broken" if a force release removed it.

*Downgrade.* A writer becomes a reader in one step, and keeps its token. There is no upgrade.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from gripfast.core import rules
from gripfast.core.lease import LeaseState
from gripfast.core.ports import Env, Hold, Unreachable, permits_of

_log = logging.getLogger("gripfast.lease")


async def downgrade(env: Env, state: LeaseState) -> None:
    """The lease of a writer is that of a reader from now on; if the engine can't be reached, that is repeated in the
    background. Raises LeaseLost if it was lost.

    The state comes first: an interrupt, or an unreachable engine, leaves a lease that claims less than it may have.
    """
    if state.remaining(env.now()) <= 0.0:
        raise state.error()
    share = state.want.share
    assert share is not None
    if share.n == 1 and not state.owes_downgrade:
        return
    state.owes_downgrade = True
    state.want = state.want._replace(share=share._replace(n=1))
    try:
        answer = await _send(env, state)
    except BaseException:
        _hurry(env, state, 0.0)
        raise
    if isinstance(answer, Unreachable):
        what = "can't downgrade %r to a read lease yet (%s); will retry in the background"
        _log.warning(what, state.name, answer.error, extra=state.about())
        _hurry(env, state, rules.renew_retry(state.ttl))
    if state.remaining(env.now()) <= 0.0:
        raise state.error()


async def repeat_downgrades(env: Env, due: Sequence[LeaseState]) -> list[LeaseState]:
    """By the watchdog, before it renews what is due. A lease is renewed when its downgrade is confirmed, or when it can
    wait no longer. What is to be renewed now."""
    owing = [state for state in due if state.want.share is not None and state.owes_downgrade]
    for state in owing:
        if await _send(env, state) is None and not state.renews:
            state.renew_at = math.inf
    now = env.now()
    for state in owing:
        if state.owes_downgrade:
            state.renew_at = now + rules.renew_retry(state.ttl)
    return [state for state in due if state.ending is None and state.renews and not _can_wait(state, now)]


def _can_wait(state: LeaseState, now: float) -> bool:
    """An engine that does not answer is not asked twice in each round, unless the lease would end."""
    return state.want.share is not None and state.owes_downgrade and state.deadline - now > state.ttl / 2


async def _send(env: Env, state: LeaseState) -> Unreachable | None:
    hold = Hold(state.key, state.owner, state.ttl, share=state.want.share)
    answer = await permits_of(env.store).downgrade(hold, 1)
    if isinstance(answer, Unreachable):
        return answer
    state.owes_downgrade = False
    if answer is not None and state.finish(answer):
        env.announce(state)
    return None


def _hurry(env: Env, state: LeaseState, pause: float) -> None:
    """Have the watchdog look at it after a pause, also if it is not renewed otherwise."""
    state.renew_at = min(state.renew_at, env.now() + pause)
    env.announce(state)
