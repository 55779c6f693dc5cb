"""What a client's watchdog does, round after round: release what no other code will release, then renew what is held.

It survives every failure of the engine: what could not be done is done in a later round, until the engine has
forgotten it by itself.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from gripfast.core import rules
from gripfast.core.lease import LeaseState, Share
from gripfast.core.ledger import Entry, Ledger, Mark
from gripfast.core.ports import Env, Hold, ReleasesLazily, Store, Unreachable, unreachable
from gripfast.core.renew import extend, renew_due
from gripfast.core.soonest import Soonest
from gripfast.errors import OutcomeUnknown

_log = logging.getLogger("gripfast.watchdog")
_lease_log = logging.getLogger("gripfast.lease")

_DROPPED = (
    "lease on %r was dropped while it was held%s, so %s released. Write `with lock:` (`async with lock:`), or keep the "
    "result of acquire() and call its release(). With gripfast.compat, keep the lock object"
)
_DROPPED_PERMITS = (
    "lease on %r was dropped while it was held%s, so %s released. Write `with` (`async with`), or keep the result of "
    "acquire() and call its release()"
)

DROPPED = frozenset({_DROPPED, _DROPPED_PERMITS})
"""What the log says of leases that were dropped."""

_PACKAGE = __file__.removesuffix("core/upkeep.py")

_RETRY = 0.25
"""Seconds until a failed clean-up is tried again."""


class Extend(NamedTuple):
    """A caller wants a lease renewed now, and waits for the reply."""

    state: LeaseState
    ttl: float
    reply: Callable[[Unreachable | None], None]


Errand = Mark | Extend | None
"""What is put on the watchdog's queue; None only wakes it."""


class Upkeep:
    def __init__(self, env: Env, say: Callable[[Sequence[Mark]], None] | None = None) -> None:
        """`say`: says in the log that these leases were dropped; nothing here waits for it."""
        self.renews_at = Soonest()
        """Before this moment no lease is due, so none is looked at. It is announced when one is granted, or moved."""
        self._env = env
        self._reaper = Reaper(env.store, env.now, say)
        self._lazy = cast(ReleasesLazily, env.store) if env.store.capabilities.lazy_release else None

    async def round(self, errands: Sequence[Errand]) -> float:
        """One round; the moment of the next."""
        again = await self._reap(errands)
        for errand in errands:
            if isinstance(errand, Extend):
                errand.reply(await self._extend(errand))
        return min(again, await self._renew(), await self._read_late())

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

    async def _read_late(self) -> float:
        """The answers to releases that nobody waits for (`core/lazy.py`), as far as they are there."""
        if self._lazy is None or not await self._lazy.read_late():
            return math.inf
        return self._env.now() + rules.READ_LATE

    async def _reap(self, errands: Sequence[Errand]) -> float:
        """Whatever goes wrong with what was given up, what is held is renewed."""
        try:
            return await self._reaper.reap(errand for errand in errands if isinstance(errand, Mark))
        except Exception:
            _log.exception("unexpected error while releasing abandoned leases; will retry. Please report this")
            return self._env.now() + _RETRY

    async def give_all_back(self) -> None:
        """The client is closed, or was dropped: whatever anyone still has."""
        await self.read_all()
        await self._reaper.reap_all(self._env.ledger, self._env.is_closed)

    async def read_all(self) -> None:
        """A release that nobody waits for says in the log that it came too late: the last chance for that. Those
        whose answers do not come are cleaned up with everything else."""
        if self._lazy is not None:
            try:
                await self._lazy.read_late(rules.READ_LATE)
            except Exception:
                _log.exception("unexpected error while a client is being closed. Please report this")


class Reaper:
    """Gives back what the owners of these marks may still have."""

    def __init__(
        self, store: Store, now: Callable[[], float], say: Callable[[Sequence[Mark]], None] | None = None
    ) -> None:
        self._store = store
        self._now = now
        self._say = say or say_dropped
        self._left: dict[str, Mark] = {}
        """In the order in which they are tried: what failed goes to the end."""
        self._failures = 0
        """In a row; while there are any, few are tried, and less and less often."""
        self._tries_at = -math.inf
        self._forgets = not store.capabilities.session
        """A session lives on by itself, and so does whatever an owner has in it."""

    async def reap_all(self, ledger: Ledger, is_closed: bool = True) -> None:
        """At once, whatever failed before: there is no later round. The client is closed whatever happens here. If the
        client was not closed, but dropped, so were all its leases."""
        dropped = [] if is_closed else _were_dropped(ledger.marks(), self._now())
        for mark in ledger.marks():
            mark.granted = mark.is_unread = False  # not dropped by mistake: no warning
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
        say_dropped(dropped)

    async def reap(self, marks: Iterable[Mark]) -> float:
        """Seconds on the clock at which to come again; infinity when all is released."""
        new = [mark for mark in marks if mark.ledger.knows(mark)]
        for mark in new:
            self._left[mark.owner] = mark
        now = self._now()
        dropped = _were_dropped(new, now)
        is_time = now >= self._tries_at
        batch = self._chosen(new, is_time)
        if batch:
            answers = await self._try(batch, is_news=bool(new))
            if is_time:
                self._pace(answers)
        if dropped:
            self._say(dropped)
        return max(self._now(), self._tries_at) if self._left else math.inf

    def _chosen(self, new: Sequence[Mark], is_time: bool) -> list[Mark]:
        """What is new is tried at once: that others fail may have a reason of their own."""
        most = rules.GIVE_BACK_TRY if self._failures else rules.GIVE_BACK_MOST
        old = itertools.islice(self._left.values(), most if is_time else 0)
        chosen = {mark.owner: mark for mark in [*new, *old]}
        return list(itertools.islice(chosen.values(), rules.GIVE_BACK_MOST))

    async def _try(self, batch: Sequence[Mark], is_news: bool) -> Sequence[Unreachable | None]:
        now = self._now()
        answers = await self._store.abandon(
            [Hold(mark.key, mark.owner, mark.ttl, share=mark.share, keep=mark.keep(now)) for mark in batch]
        )
        for mark, trouble in zip(batch, answers, strict=True):
            del self._left[mark.owner]
            if trouble is None:
                self._is_gone(mark)
            else:
                self._left[mark.owner] = mark  # behind the others, who may fare better
        if failed := [trouble for trouble in answers if trouble is not None]:
            self._forget()
            level = logging.WARNING if is_news else logging.DEBUG
            names = rules.named(mark.name for mark, trouble in zip(batch, answers, strict=True) if trouble is not None)
            _log.log(level, "can't clean up for %s yet (%s); will retry", names, failed[0].error)
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


def _were_dropped(marks: Sequence[Mark], now: float) -> list[Mark]:
    """The leases among them that were still held, and that the caller's code has dropped: it may believe to hold the
    lock. One whose time is over was lost, which is told elsewhere; to say that it was dropped would mislead."""
    granted = [mark for mark in marks if mark.granted and mark() is None]
    for mark in granted:
        mark.granted = False  # it is told once
    return [mark for mark in granted if mark.entry is not True and now < rules.deadline(mark.sent, mark.ttl)]


def say_dropped(marks: Sequence[Mark]) -> None:
    """Here, and not when they die: a finaliser must not wait for the locks of the log. What a handler of the log raises
    must not stop the watchdog."""
    for mark in marks:
        with contextlib.suppress(Exception):
            about = {"gripfast_name": mark.name, "gripfast_owner": mark.owner}
            text = _DROPPED if mark.share is None else _DROPPED_PERMITS
            _lease_log.warning(text, mark.name, where_acquired(mark.entry), _what(mark.share), extra=about)


def _what(share: Share | None) -> str:
    if share is None:
        return "the lock is"
    if share.kind == "rwlock":
        return "the read/write lock is"
    return f"its {share.n} permits are" if share.n > 1 else "its permit is"


def where_acquired(entry: Entry) -> str:
    """The line that acquired it, for messages. Lines of our own, such as those of gripfast.compat, say nothing."""
    if isinstance(entry, bool) or entry[0].co_filename.startswith(_PACKAGE):
        return ""
    code, at = entry
    line = next((line for start, end, line in code.co_lines() if start <= at < end), code.co_firstlineno)
    return f" (it was acquired in {code.co_filename}, line {line})"
