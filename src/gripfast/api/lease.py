"""The lease a caller holds: a handle on a LeaseState.

A Handle reads the clock when asked, for threads and tasks alike. What talks to the engine is in its two subclasses,
`Lease` for threads and `AsyncLease` for tasks (`api/aio/lease.py`), which say the same with and without `await`.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gripfast.api.misuse import NEEDS_PLAIN_WITH, NotLikeOthers, exact, no_truth, refuse_to_pickle, unknown_option
from gripfast.api.words import OF_LEASES
from gripfast.core.lease import LeaseState
from gripfast.core.ports import to_raise
from gripfast.core.release import release
from gripfast.errors import ConfigurationError, LeaseLost, Reason
from gripfast.machine import boottime, this
from gripfast.runtime.blocking import BlockingRuntime, drive

if TYPE_CHECKING:
    from typing import Never, Self, Unpack

    from gripfast.api.base import AnyClient
    from gripfast.api.typed import NothingElse
    from gripfast.runtime.aio import AioRuntime

R = TypeVar("R", "BlockingRuntime", "AioRuntime")

_log = logging.getLogger("gripfast.lease")

_DROPPED_LEVEL = (
    "an earlier lease of the re-entrant lock %r was dropped while it was held. Each acquire() returns a lease of its "
    "own: keep and release each of them, or write `with lock:` (`async with lock:`)"
)


class Handle(NotLikeOthers, Generic[R], lacks=OF_LEASES):
    """One level of holding. Re-entry makes another handle on the same state; the last one to be released ends it."""

    __slots__ = ("__weakref__", "_client", "_is_entered", "_is_released", "_on_lost", "_runtime", "_state")
    __reduce_ex__ = refuse_to_pickle

    def __init__(
        self, client: AnyClient, runtime: R, state: LeaseState, on_lost: Callable[[Any, Reason], Any] | None
    ) -> None:
        self._client = client  # a lease keeps its client alive, not the other way round
        self._runtime: R = runtime
        self._state = state
        self._on_lost = on_lost
        self._is_released = False
        self._is_entered = False
        if state.handles:
            state.handles = [ref for ref in state.handles if (each := ref()) is not None and not each._is_released]
        state.handles.append(weakref.ref(self))
        state.on_lost = _tell_handles

    @property
    def name(self) -> str:
        return self._state.name

    @property
    def token(self) -> int:
        """The fencing token: larger than the tokens of all earlier leases of the name."""
        return self._state.token

    @property
    def owner(self) -> str:
        """The id of this acquisition at the engine: random, and new each time."""
        return self._state.owner

    @property
    def ttl(self) -> float:
        """The ttl of this lease in seconds; less than requested if the store does not allow more (ZooKeeper's session
        time-out)."""
        return self._state.ttl

    @property
    def held(self) -> bool:
        """True while the lease is held. Reads the local clock each time, and sends nothing."""
        return self.remaining() > 0.0

    def remaining(self) -> float:
        """Seconds for which the lease is still guaranteed; 0.0 once it is gone."""
        if self._is_released or self._is_inherited():
            return 0.0
        return self._state.remaining(boottime())

    def ensure_held(self) -> None:
        """Raise LeaseLost unless the lease is held at this moment; cheap enough for a loop."""
        if self.remaining() > 0.0:
            return
        raise self._loss_of_a_fork() if self._is_inherited() else self._state.error()

    def _reason(self) -> Reason:
        if self._is_inherited():
            return "session"
        return self._state.ending or "released"

    def _loss(self) -> Reason | None:
        """Why it was lost; None while it is held and after its release."""
        return "session" if self._is_inherited() else self._state.lost(boottime())

    def _loss_of_a_fork(self) -> LeaseLost:
        """Its parent may live, and hold it."""
        why = f"it belongs to the parent process {self._runtime.pid}, not to this forked child"
        return LeaseLost(self.name, "session", f"{why}; acquire the lock in this child")

    def _is_inherited(self) -> bool:
        """Made by a parent process, which alone owns it."""
        return self._runtime.pid != this.pid

    def _let_go(self) -> bool:
        """Release this handle; True if no other is left, so that the lease itself must be released."""
        if self._runtime.pid != this.pid:
            return False  # inherited
        is_first_time = not self._is_released
        self._is_released = True
        if (is_first_time and len(self._state.handles) == 1) or self._is_last():
            return True
        self._raise_if_lost()
        return False

    def _is_last(self) -> bool:
        """Of a re-entrant lock. Who is released leaves the list: another one that is gone was dropped. In a block that
        is an interrupt's doing; otherwise somebody counts on a level that there is not."""
        others = [ref for ref in self._state.handles if ref() is not self]
        self._state.handles = others
        if not self._is_entered and any(ref() is None for ref in others):
            _log.warning(_DROPPED_LEVEL, self.name, extra=self._state.about())
        return all((each := ref()) is None or each._is_released for ref in others)

    def _enter_once(self) -> None:
        """A `with` block has it now. The end of a second one inside would release it, and the first would not know."""
        if self._is_entered:
            raise ConfigurationError(
                f"the lease on {self.name!r} is in a `with` block already, and the end of a second one would release "
                "it too early: remove the inner `with`, or make the lock with reentrant=True and acquire it once more"
            )
        self._is_entered = True

    def _enter_block(self) -> None:
        self._enter_once()
        self._runtime.env.ledger.enter_block(self._state.owner)

    def _give_up(self) -> None:
        """Its holder has ended the work, because the lease could not be renewed in time. So it is lost, although its
        deadline may be a moment ahead."""
        if self._state.finish("expired"):
            self._runtime.env.announce(self._state)

    def _told_as(self) -> object | None:
        """What `on_lost` is called with; None if it is not to be called."""
        return self

    def _raise_if_lost(self) -> None:
        if self._state.lost(boottime()) is not None:
            raise self._state.error()

    def __repr__(self) -> str:
        state = f"{self.remaining():.3g} s left" if self.held else self._reason()
        return f"<{type(self).__name__} {self.name!r} token={self.token} {state}>"


class Lease(Handle[BlockingRuntime]):
    """One successful acquisition. A context manager: leaving the block releases it."""

    __slots__ = ()
    if not TYPE_CHECKING:  # which has words of its own
        __aenter__ = NEEDS_PLAIN_WITH

    @property
    def lost(self) -> Lost:
        """Like a threading.Event: `is_set()` says whether the lease is lost. `wait(timeout=None)` blocks until it is
        lost (returns True), or until it is released or the timeout is over (returns False)."""
        return Lost([self])

    @exact
    def extend(self, ttl: float | None = None, *more: Never, **wrong: Unpack[NothingElse]) -> None:
        """Renew now. With `ttl`, the lease lasts that many seconds from now on, and after each renewal."""
        if more or wrong:
            raise unknown_option(Lease.extend, wrong, *more)
        ttl = self.ttl if ttl is None else self._client._checked_ttl(ttl)
        self.ensure_held()
        answer = self._runtime.extend(self._state, ttl)
        if answer is not None:
            raise to_raise(answer.error)
        self.ensure_held()

    def detach(self, ttl: float | None = None) -> str:
        """Hand the lock over: return a text with which another thread, process or machine can adopt it, by
        `client.adopt(text)`. Until then the lock stays taken, for `ttl` seconds from now (without `ttl`, for the ttl
        of this lease). Nobody renews it meanwhile.

        This lease is over: `held` is false, and nothing here releases the lock any more. Its `with` block ends without
        an error. If the store can't be reached, detach() raises StoreUnavailable; read `held` to see whether the lease
        is still yours.

        The text has no password, but it is a key: whoever has it, and may use the store, can adopt the lock. Needs a
        store with `capabilities.hands_over`. Only a lock can be handed over: the leases of semaphores, read/write locks
        and `once()` raise ConfigurationError.
        """
        from gripfast.api import handover
        from gripfast.core.handover import detach

        handover.check_detachable(self)
        self.extend(ttl)
        text = handover.write(self, boottime())
        drive(detach(self._runtime.env, self._state))
        return text

    @exact
    def release(self, **wrong: Unpack[NothingElse]) -> None:
        """Release the lock. A second call does nothing. Raises LeaseLost if the lease was already lost."""
        if wrong:
            raise unknown_option(Lease.release, wrong)
        if self._let_go():
            drive(release(self._runtime.env, self._state))

    def __enter__(self) -> Self:
        self.ensure_held()
        self._enter_block()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.release()
        except LeaseLost:
            if kind is None:
                raise


class Lost:
    """Like an event: says whether the lease is lost, by the clock at that moment."""

    # Not callable, not even to say what to write instead: a template of Django would call it, and show nothing.

    if not TYPE_CHECKING:  # which has words of its own
        __bool__ = no_truth("write `lease.lost.is_set()`")

    def __init__(self, leases: Sequence[Lease], whole: object = None) -> None:
        self._leases = leases
        self._whole = whole  # kept, because somebody still wants to hear of it

    def is_set(self) -> bool:
        return any(lease._loss() is not None for lease in self._leases)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the lease is lost (returns True), or until it is released or the time is over (returns False)."""
        over = threading.Event()
        states = [lease._state for lease in self._leases]
        for state in states:
            state.listeners.append(over.set)
        try:
            if not self.is_set() and all(state.ending is None for state in states):
                over.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        finally:
            for state in states:
                state.listeners.remove(over.set)
        return self.is_set()


def _tell_handles(state: LeaseState, reason: Reason) -> None:
    """Each level of holding has its own on_lost; the state knows them weakly: their death gives the lease back."""
    for handle in [handle for ref in state.handles if (handle := ref()) is not None]:
        if handle._on_lost is not None and not handle._is_released and (told := handle._told_as()) is not None:
            handle._runtime.call_back(handle._on_lost, told, reason)
