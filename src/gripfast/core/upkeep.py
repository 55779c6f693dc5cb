"""What a client's watchdog does, round after round: give back what nobody will release, then renew what is held.

It survives every failure of the engine: what could not be done is done in a later round, until the engine has
forgotten it by itself.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gripfast.core import rules
from gripfast.core.lease import LeaseState
from gripfast.core.ledger import Ledger, Mark
from gripfast.core.ports import Env, Hold, Store, Unreachable, for_each
from gripfast.core.renew import extend, renew_due

_log = logging.getLogger("gripfast.watchdog")

_RETRY = 0.25
"""Seconds until what could not be given back is tried again."""


class Extend(NamedTuple):
    """A caller wants a lease renewed now, and waits for the reply."""

    state: LeaseState
    ttl: float
    reply: Callable[[Unreachable | None], None]


Errand = Mark | Extend | None
"""What is put on the watchdog's queue; None only wakes it."""


class Upkeep:
    def __init__(self, env: Env) -> None:
        self._renews_at = math.inf
        """Before this moment no lease is due, so none is looked at."""
        self._env = env
        self._reaper = Reaper(env.store, env.now)

    def announce(self, state: LeaseState) -> None:
        """A lease was granted, or is due at another moment."""
        if state.renew_at < self._renews_at:
            self._renews_at = state.renew_at

    async def round(self, errands: Sequence[Errand]) -> float:
        """One round; the moment of the next."""
        again = await self._reap(errands)
        for errand in errands:
            if isinstance(errand, Extend):
                errand.reply(await extend(self._env, errand.state, errand.ttl))
        return min(again, await self._renew())

    async def _renew(self) -> float:
        if self._env.now() >= self._renews_at:
            self._renews_at = math.inf  # first: what is announced meanwhile must count
            moment = -math.inf
            try:
                moment = await renew_due(self._env)
            finally:
                self._renews_at = min(moment, self._renews_at)
        return self._renews_at

    async def _reap(self, errands: Sequence[Errand]) -> float:
        """Whatever goes wrong with what was given up, what is held is renewed."""
        try:
            return await self._reaper.reap(errand for errand in errands if isinstance(errand, Mark))
        except Exception:
            _log.exception("unexpected error while giving back; it is tried again")
            return self._env.now() + _RETRY

    async def give_all_back(self) -> None:
        """The client is closed: whatever anyone still has."""
        await self._reaper.reap_all(self._env.ledger)


class Reaper:
    """Gives back what the owners of these marks may still have."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._left: dict[str, Mark] = {}
        self._forgets = not store.capabilities.session
        """A session lives on by itself, and so does whatever an owner has in it."""

    async def reap_all(self, ledger: Ledger) -> None:
        marks = ledger.marks()
        for mark in marks:
            mark.granted = False  # not dropped by mistake: no warning
        await self.reap(marks)

    async def reap(self, marks: Iterable[Mark]) -> float:
        """Seconds on the clock at which to come again; infinity when all is given back."""
        new = [mark for mark in marks if mark.ledger.knows(mark)]
        for mark in new:
            _warn_if_dropped(mark)
            self._left[mark.owner] = mark
        if not self._left:
            return float("inf")
        batch = list(self._left.values())
        answer = await self._store.abandon([Hold(mark.name, mark.owner, mark.ttl) for mark in batch])
        now = self._now()
        answers = for_each(answer, len(batch))
        for mark, trouble in zip(batch, answers, strict=True):
            if trouble is None or (self._forgets and now > rules.forgotten_at(mark.sent, mark.ttl)):
                mark.ledger.confirm_gone(mark.owner)
                self._store.forget(mark.owner)
                del self._left[mark.owner]
        if failed := [trouble for trouble in answers if trouble is not None]:
            level = logging.WARNING if new else logging.DEBUG
            _log.log(level, "%d leases or places in line not released yet: %s", len(failed), failed[0].error)
        return now + _RETRY if self._left else float("inf")


def _warn_if_dropped(mark: Mark) -> None:
    if not mark.granted:
        return
    mark.granted = False
    message = f"lease on {mark.name!r} was dropped without release(); it is released now. Use `with`, or keep the lease"
    try:
        warnings.warn(message, ResourceWarning, stacklevel=2)
    except ResourceWarning:  # warnings may be errors, but no warning may stop the watchdog
        _log.warning(message)
