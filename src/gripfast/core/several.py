"""How several locks are acquired: all or none.

*One order.* Everybody acquires them in the same order, that of their keys. So of those who want several, nobody waits
for a lock while it holds another that comes later: no circle of waiters can form.

*One time limit.* Each lock gets what the ones before it have left of the time. If one is not granted, those that were
are released.

*Validity.* The first lease may be lost while the last lock is waited for. So all of them are looked at after the last
grant, and `max_hold` counts from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gripfast.core.acquire import acquire
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Entry
from gripfast.core.ports import Env, Taken
from gripfast.core.release import release
from gripfast.errors import ClientClosed, LeaseLost, Reason


class Refused(NamedTuple):
    """Somebody else has this one."""

    want: Want
    answer: Taken


async def acquire_all(
    env: Env, wants: Sequence[Want], wait: float | None, max_hold: float | None, entry: Entry = False
) -> list[LeaseState] | Refused:
    """The leases in the order of their keys. Raises StoreUnavailable; LeaseLost if one is lost again and again while
    the others are waited for."""
    ends = math.inf if wait is None else env.now() + wait
    while True:
        held: list[LeaseState] = []
        try:
            for want in sorted(wants, key=lambda each: each.key):
                left = None if wait is None else max(0.0, ends - env.now())
                answer = await acquire(env, want, left, entry)
                if isinstance(answer, Taken):
                    await release_all(env, held)
                    return Refused(want, answer)
                held.append(answer)
            now = env.now()
            over = [state for state in held if state.remaining(now) <= 0.0]
            if not over:
                _limit(env, held, now, max_hold)
                return held
            await release_all(env, held)
        except BaseException:
            _abandon_all(env, held)
            raise
        if env.is_closed:
            raise ClientClosed
        if env.now() >= ends:
            raise over[0].error()


async def release_all(env: Env, held: Sequence[LeaseState]) -> LeaseLost | None:
    """The last one first. If one was lost before, the others are released all the same: the error tells of it.

    An interrupt, or a cancelled task, ends all of them here and now: those that are left are released in the
    background.
    """
    left = list(held)
    loss: tuple[str, Reason, str | None] | None = None
    try:
        while left:
            try:
                await release(env, left[-1])
            except LeaseLost as lost:  # not kept: it knows this frame
                loss = lost.name, lost.reason, lost.note
            left.pop()
    except BaseException:
        _abandon_all(env, left)
        raise
    return None if loss is None else LeaseLost(loss[0], loss[1], note=loss[2])


def _abandon_all(env: Env, held: Sequence[LeaseState]) -> None:
    """Here and now they are over, and they are released in the background."""
    for state in held:
        if state.finish("released"):
            env.ledger.abandon(state)
            if state.story is not None:
                state.story.released()


def _limit(env: Env, held: Sequence[LeaseState], now: float, max_hold: float | None) -> None:
    if max_hold is not None:
        for state in held:
            state.hold_at_most(now, max_hold)
            env.announce(state)
