"""What a client's watchdog does, round after round: give back what nobody will release, then renew what is held.

It survives every failure of the engine: what could not be done is done in a later round, until the engine has
forgotten it by itself.
"""

from __future__ import annotations

import itertools
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gripfast.core import rules
from gripfast.core.lease import LeaseState
from gripfast.core.ledger import Ledger, Mark
from gripfast.core.ports import Env, Hold, Store, Unreachable, unreachable
from gripfast.core.renew import extend, renew_due
from gripfast.core.soonest import Soonest
from gripfast.errors import OutcomeUnknown

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
        self.renews_at = Soonest()
        """Before this moment no lease is due, so none is looked at. It is announced when one is granted, or moved."""
        self._env = env
        self._reaper = Reaper(env.store, env.now)

    async def round(self, errands: Sequence[Errand]) -> float:
        """One round; the moment of the next."""
        again = await self._reap(errands)
        for errand in errands:
            if isinstance(errand, Extend):
                errand.reply(await self._extend(errand))
        return min(again, await self._renew())

    async def _extend(self, errand: Extend) -> Unreachable | None:
        """Whatever goes wrong with one, the others are answered too: their callers wait."""
        try:
            return await extend(self._env, errand.state, errand.ttl)
        except Exception as error:
            _log.exception("unexpected error while extending %r. Please report this", errand.state.name)
            what = f"the lease on {errand.state.name!r} may not have been extended, because of an unexpected error"
            return unreachable(OutcomeUnknown(f"{what}: {error!r}. Please report it"))

    async def _renew(self) -> float:
        if self._env.now() >= self.renews_at.next():
            self.renews_at.begin()
            self.renews_at.end(await renew_due(self._env))
        return self.renews_at.next()

    async def _reap(self, errands: Sequence[Errand]) -> float:
        """Whatever goes wrong with what was given up, what is held is renewed."""
        try:
            return await self._reaper.reap(errand for errand in errands if isinstance(errand, Mark))
        except Exception:
            _log.exception("unexpected error while releasing abandoned leases; will retry. Please report this")
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
        """In the order in which they are tried: what failed goes to the end."""
        self._failures = 0
        """In a row; while there are any, few are tried, and less and less often."""
        self._tries_at = -math.inf
        self._forgets = not store.capabilities.session
        """A session lives on by itself, and so does whatever an owner has in it."""

    async def reap_all(self, ledger: Ledger) -> None:
        """At once, whatever failed before: there is no later round. The client is closed whatever happens here."""
        for mark in ledger.marks():
            mark.granted = False  # not dropped by mistake: no warning
            self._left[mark.owner] = mark
        if not self._left:
            return
        try:
            await self._try(list(self._left.values()), is_news=True)
        except Exception:
            _log.exception(
                "unexpected error while closing a client; some leases may stay held until their ttl is over. "
                "Please report this"
            )

    async def reap(self, marks: Iterable[Mark]) -> float:
        """Seconds on the clock at which to come again; infinity when all is given back."""
        new = [mark for mark in marks if mark.ledger.knows(mark)]
        for mark in new:
            _warn_if_dropped(mark)
            self._left[mark.owner] = mark
        is_time = self._now() >= self._tries_at
        batch = self._chosen(new, is_time)
        if batch:
            answers = await self._try(batch, is_news=bool(new))
            if is_time:
                self._pace(answers)
        return max(self._now(), self._tries_at) if self._left else math.inf

    def _chosen(self, new: Sequence[Mark], is_time: bool) -> list[Mark]:
        """What is new is tried at once: that others fail may have a reason of their own."""
        most = rules.GIVE_BACK_TRY if self._failures else rules.GIVE_BACK_MOST
        old = itertools.islice(self._left.values(), most if is_time else 0)
        chosen = {mark.owner: mark for mark in [*new, *old]}
        return list(itertools.islice(chosen.values(), rules.GIVE_BACK_MOST))

    async def _try(self, batch: Sequence[Mark], is_news: bool) -> Sequence[Unreachable | None]:
        answers = await self._store.abandon([Hold(mark.key, mark.owner, mark.ttl) for mark in batch])
        for mark, trouble in zip(batch, answers, strict=True):
            del self._left[mark.owner]
            if trouble is None:
                self._is_gone(mark)
            else:
                self._left[mark.owner] = mark  # behind the others, who may fare better
        if failed := [trouble for trouble in answers if trouble is not None]:
            self._forget()
            level = logging.WARNING if is_news else logging.DEBUG
            what = "can't release %d leases or places in the queue yet (%s); will retry"
            _log.log(level, what, len(failed), failed[0].error)
        return answers

    def _pace(self, answers: Sequence[Unreachable | None]) -> None:
        """Ever more slowly while nothing succeeds. One name that is in trouble does not slow the others down."""
        self._failures = 0 if None in answers else self._failures + 1
        pause = rules.give_back_pause(max(1, self._failures), len(self._left))
        self._tries_at = -math.inf if all(trouble is None for trouble in answers) else self._now() + pause

    def _forget(self) -> None:
        """What the engine has forgotten by itself meanwhile."""
        if not self._forgets:
            return
        now = self._now()
        for mark in [mark for mark in self._left.values() if now > rules.forgotten_at(mark.sent, mark.ttl)]:
            del self._left[mark.owner]
            self._is_gone(mark)

    def _is_gone(self, mark: Mark) -> None:
        mark.ledger.confirm_gone(mark.owner)
        self._store.forget(mark.owner)


def _warn_if_dropped(mark: Mark) -> None:
    if not mark.granted:
        return
    mark.granted = False
    message = (
        f"lease on {mark.name!r} was dropped without release(), so it is released now. Use `with`, or keep a "
        "reference to the lease until you release it"
    )
    try:
        warnings.warn(message, ResourceWarning, stacklevel=2)
    except ResourceWarning:  # warnings may be errors, but no warning may stop the watchdog
        _log.warning(message)
