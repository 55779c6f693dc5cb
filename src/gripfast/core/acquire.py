"""How a lock is acquired.

Uncontended this is one request. If the lock is taken, the same request puts its owner into the queue. From then on the
waiter listens, and retries when the holder's time should be over or its own position must be refreshed. A retry is
always right: a claim is recognised by its owner id, so the retry finds what a lost reply or a lost push has granted.

*Dates.* A lease is dated by the clock before its request left. A grant that was pushed is dated by the last request
that was answered "still waiting". So a push counts only if its token is larger than the one in that answer: otherwise
it tells of an earlier grant, which may be over (`_is_good`).

Nothing is entered without a grant whose validity is left at the last check. Whatever goes wrong, the owner id is in
the ledger, and the ledger's reader releases what this owner may have got.
"""

from __future__ import annotations

import logging
import math

from gripfast.core import closing, rules
from gripfast.core.kept import MIN_HOLD, Keeping
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Entry, Mark
from gripfast.core.ports import Claim, Env, Granted, Hold, Inbox, Taken, Unreachable, to_raise
from gripfast.errors import ClientClosed, ConfigurationError, StoreUnavailable

_log = logging.getLogger("gripfast.lease")

TELL_AFTER = 1.0
"""Seconds for which the engine can't be reached until the log says so."""
TELL_AGAIN = 60.0
"""Seconds after which it says so again, whichever claim of the client waits then."""


async def acquire(env: Env, want: Want, wait: float | None, entry: Entry = False) -> LeaseState | Taken:
    """The lease, or who has it once `wait` seconds (None: for ever) are over. Raises StoreUnavailable."""
    patience: _Patience | None = None
    share = want.share
    while True:
        state = LeaseState(want, env.new_owner())
        mark = env.ledger.enter(state, entry)
        try:
            trace = None if env.observers is None else env.observers.claimed(state)
            inbox = None if wait == 0.0 else env.store.inbox()
            claim = Claim(want.key, state.owner, want.ttl, want.label, inbox, share, trace)
            answer, sent = await _ask(env, claim, mark)
            if not isinstance(answer, Granted):
                patience = patience or _Patience(env, sent, wait)
                wait_on = _persist if inbox is None else _watched
                if inbox is not None and state.story is not None:
                    state.story.waits(answer)
                answer, sent = await wait_on(env, want, claim, mark, patience, answer, sent)
                if isinstance(answer, Taken):
                    if answer.limit_in_force is not None:
                        raise _another_limit(want, answer.limit_in_force)
                    if state.story is not None:
                        state.story.refused()
                    await _leave(env, state, inbox is not None or answer.is_split or answer.may_follow)
                    del mark  # before the state: nobody has to look after what is confirmed to be gone
                    return answer
            if answer.sent is not None:
                sent = answer.sent
            if share is not None:
                state.slots, state.owes_downgrade = answer.slots, False
            if answer.most < math.inf:
                state.ttl, state.most, state.ceiling = answer.ttl, answer.most, answer.most
            if state.grant(answer.token, answer.ttl, sent, env.now(), want.max_hold):
                if state.story is not None:
                    state.story.granted(state)  # first: whoever may tell its end sees it after this
                if want.min_hold is not None:
                    mark.keeping = Keeping(MIN_HOLD, want.min_hold, env.now())
                mark.granted = True
                env.announce(state)
                if _log.isEnabledFor(logging.DEBUG):
                    _log.debug("granted %r with token %d", want.name, state.token, extra=state.about())
                return state
        except BaseException as error:
            if isinstance(error, ConfigurationError) and patience is None:
                mark.may_be_there = False  # refused before anything was done
            env.ledger.abandon(state)
            if state.story is not None:
                state.story.failed(error)
            raise
        env.ledger.abandon(state)
        if state.story is not None:
            state.story.failed(ClientClosed() if env.is_closed else _too_late(want))
        patience = patience or _Patience(env, sent, wait)
        patience.check(_too_late(want))


async def _ask(env: Env, claim: Claim, mark: Mark) -> tuple[Granted | Taken | Unreachable, float]:
    """The answer, and the moment before the request left. While it is under way it counts as having left."""
    if env.is_closed:
        raise ClientClosed
    may_be_there = mark.may_be_there
    mark.may_be_there = True
    sent = mark.sent = env.now()
    answer = await env.store.claim(claim)
    if isinstance(answer, Unreachable) and not answer.was_sent:
        mark.may_be_there = may_be_there
    if env.is_closed:
        await closing.undo(env, claim, mark)  # type: ignore[unreachable] # closed meanwhile
    return answer, sent


class _Patience:
    """How long this attempt may wait for the holder, and how long for an engine that does not answer."""

    def __init__(self, env: Env, started: float, wait: float | None) -> None:
        self._env = env
        self._wait = wait
        self._failures = 0
        self._silent_since = math.inf
        self.ends = math.inf if wait is None else started + wait
        self._silence_ends = started + (env.connect_patience if wait is None else max(wait, env.request_timeout))

    def answered(self) -> None:
        self._failures = 0
        self._silent_since = math.inf
        if self._wait is None:
            self._silence_ends = self._env.now() + self._env.connect_patience

    def is_left(self) -> bool:
        """For an engine that gives no answer, or no clear one."""
        return self._env.now() < self._silence_ends

    def check(self, error: StoreUnavailable | ClientClosed) -> None:
        if not self.is_left():
            raise to_raise(error)

    async def unreachable(self, answer: Unreachable, want: Want, claim: Claim, sent: float) -> None:
        """Pause before the next try, or raise if there is none. Who does not wait is told of a refused connection."""
        if answer.is_permanent or (self._wait == 0.0 and answer.was_refused):
            raise to_raise(answer.error, answer.is_permanent)
        if answer.ready_in is not None:
            await self._until_ready(answer, answer.ready_in, claim)
            return
        self.check(answer.error)
        pause = rules.retry_pause(self._failures)
        self._failures += 1
        left = self._silence_ends - (now := self._env.now())
        self._silent_since = min(self._silent_since, sent)
        if now - self._silent_since >= TELL_AFTER:
            self._tell(answer, want, claim, now, left)
        await self._env.pause(min(pause, left))

    def _tell(self, answer: Unreachable, want: Want, claim: Claim, now: float, left: float) -> None:
        """Nobody should have to guess for so long why nothing happens; nor read the same for each of many claims."""
        level = logging.DEBUG
        if now >= self._env.silence_told + TELL_AGAIN:
            self._env.silence_told, level = now, logging.WARNING
        what = "waiting for %r: %s. Gripfast goes on trying for up to %.0f s"
        _log.log(level, what, want.name, answer.error, left, extra=_about(want, claim))

    async def _until_ready(self, answer: Unreachable, ready_in: float, claim: Claim) -> None:
        """The engine has said when it will serve. Until then a waiter only refreshes its position. Who can't wait for
        so long is told at once."""
        now = self._env.now()
        if claim.inbox is None or (now + ready_in > self.ends):
            raise to_raise(answer.error)
        self.answered()
        await claim.inbox.hear(now + min(ready_in, rules.refresh_pace(claim.ttl)))


async def _watched(
    env: Env, want: Want, claim: Claim, mark: Mark, patience: _Patience, answer: Taken | Unreachable, sent: float
) -> tuple[Granted | Taken, float]:
    """Whoever is not granted the lock at once, and waits, may wait for what never comes: the runtime says so."""
    is_over = env.watch(want, answer)
    try:
        return await _persist(env, want, claim, mark, patience, answer, sent)
    finally:
        is_over()


async def _persist(
    env: Env, want: Want, claim: Claim, mark: Mark, patience: _Patience, answer: Taken | Unreachable, sent: float
) -> tuple[Granted | Taken, float]:
    """The first answer was no grant: listen and ask until there is one, or patience ends. Dated."""
    while True:
        if isinstance(answer, Unreachable):
            await patience.unreachable(answer, want, claim, sent)
        else:
            patience.answered()
            if answer.limit_in_force is not None:
                return answer, sent
            what = "%r is held by someone else; waiting as owner %s"
            _log.debug(what, want.name, claim.owner, extra=_about(want, claim))
            if claim.inbox is None and answer.is_split and patience.is_left():
                await env.pause(answer.again_in or 0.0)
                pushed = None
            elif claim.inbox is None or env.now() >= patience.ends or (want.is_once and _is_done(answer)):
                return answer, sent
            else:
                pushed = await _listen(env, claim.ttl, claim.inbox, answer, patience)
            if pushed is not None and _is_good(pushed, want, answer, rules.deadline(sent, pushed.ttl) - env.now()):
                return pushed, sent
        new_answer, sent = await _ask(env, claim, mark)
        if isinstance(new_answer, Granted):
            return new_answer, sent
        answer = new_answer


async def _listen(env: Env, ttl: float, inbox: Inbox, taken: Taken, patience: _Patience) -> Granted | None:
    now = env.now()
    expires_in = None if taken.holder is None else taken.holder.expires_in
    again_at = rules.ask_again_at(now, ttl, expires_in) if taken.again_in is None else now + taken.again_in
    return await inbox.hear(min(patience.ends, again_at))


def _is_good(pushed: Granted, want: Want, taken: Taken, remaining: float) -> bool:
    """A grant made after the answer it is dated by, by the same server, and with enough time, left or to come, not to
    ask once more."""
    is_enough = want.renews or pushed.ttl >= want.ttl
    is_dated = pushed.token > taken.token and pushed.source == taken.source
    return is_enough and is_dated and rules.is_fresh(remaining, pushed.ttl)


def _about(want: Want, claim: Claim) -> dict[str, object]:
    """For log records."""
    return {"gripfast_name": want.name, "gripfast_group": want.group, "gripfast_owner": claim.owner}


def _is_done(taken: Taken) -> bool:
    return taken.holder is not None and taken.holder.kept == "done"


async def _leave(env: Env, state: LeaseState, may_have_left: bool) -> None:
    """Not granted: a plain no leaves nothing at the engine, otherwise there may be a position to give up."""
    hold = Hold(state.key, state.owner, state.ttl, share=state.want.share)
    if may_have_left and any(await env.store.abandon([hold])):
        env.ledger.abandon(state)
    else:
        env.ledger.confirm_gone(state.owner)


def _another_limit(want: Want, limit: int) -> ConfigurationError:
    assert want.share is not None
    return ConfigurationError(
        f"the semaphore {want.name!r} has a limit of {limit}, and this program uses {want.share.limit}"
        + (f" and wants {want.share.n} permits" if want.share.n > limit else "")
        + f": make it with limit={limit} everywhere, or change it for everybody: call resize(), or gripfast resize"
        " in the shell"
    )


def _too_late(want: Want) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store took longer than the ttl of {want.ttl:g} s to grant {want.name!r}: use a longer ttl, or find out "
        "why the store is slow"
    )
