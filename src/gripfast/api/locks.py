"""Several locks at once, for threads, and what those for tasks (`api/aio/locks.py`) have in common with them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gripfast.api.lease import Lease, Lost
from gripfast.api.misuse import (
    HOW_TO_ACQUIRE,
    NEEDS_PLAIN_WITH,
    NotLikeOthers,
    exact,
    no_truth,
    refuse_to_pickle,
    unknown_option,
)
from gripfast.api.settings import LOCKS_WAIT, LockSettings
from gripfast.api.words import OF_LEASES, OF_LOCKS
from gripfast.core.ledger import Entry
from gripfast.core.several import Refused, acquire_all, release_all
from gripfast.errors import ConfigurationError, LeaseLost, LockTimeout
from gripfast.interrupts.scope import ByThreads, Exit, Scope, scope_of_this_entry
from gripfast.machine import boottime
from gripfast.runtime.blocking import drive
from gripfast.runtime.here import me

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.aio.locks import AsyncPartOfLeases
    from gripfast.api.base import AnyClient
    from gripfast.api.client import Client
    from gripfast.api.typed import NothingElse
    from gripfast.core.ledger import Ledger

L = TypeVar("L", "PartOfLeases", "AsyncPartOfLeases")


class AnyLocks(NotLikeOthers, lacks=OF_LOCKS):
    __reduce_ex__ = refuse_to_pickle
    if not TYPE_CHECKING:  # which has words of its own
        __bool__ = no_truth(HOW_TO_ACQUIRE)

    def __init__(self, client: AnyClient, settings: Sequence[LockSettings], max_hold: float | None) -> None:
        self._client = client
        self._settings = settings
        self._max_hold = max_hold
        """From the last grant on. The locks themselves have none."""
        self._check_names()

    def _check_names(self) -> None:
        if not self._settings:
            raise ConfigurationError("locks() needs at least one name")
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise ConfigurationError(f"locks() got the name {twice[0]!r} twice: give each lock once")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, in the order in which they were given."""
        return tuple(each.want.name for each in self._settings)

    @property
    def _wait(self) -> float | None:
        return self._settings[0].wait

    def _patience(self, wait: float | None) -> float | None:
        return self._settings[0].patience(wait)

    def _check_that_none_is_held(self, ledger: Ledger, here: object) -> None:
        """Whoever has acquired one of them, and acquires the others now, does not keep to the order of everybody else:
        it may wait for itself, or for somebody who waits for it."""
        now = boottime()
        keys = {each.want.key for each in self._settings}
        for state in ledger.leases():
            acquirer = None if state.acquirer is None else state.acquirer()
            if (
                state.want.share is None
                and state.key in keys
                and here is not None
                and acquirer is here
                and state.remaining(now) > 0.0
            ):
                raise ConfigurationError(
                    f"this thread or task has acquired {state.name!r} before, so "
                    f"locks({', '.join(map(repr, self.names))}) might wait for itself: release that lease first, or "
                    "acquire all of them with one locks()"
                )

    def _described(self) -> str:
        return f"the locks {', '.join(map(repr, self.names))}"

    def _timed_out(self, waited: float, refused: Refused) -> LockTimeout:
        return next(each for each in self._settings if each.want is refused.want).timed_out(waited, refused.answer)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self.names))} on {self._client.where}>"


class AnyLeases(NotLikeOthers, Generic[L], lacks=OF_LEASES):
    """Leases on several locks, as one."""

    __reduce_ex__ = refuse_to_pickle

    def __init__(self, leases: Sequence[L]) -> None:
        self._leases: Sequence[L] = leases
        self._is_entered = False
        self._untold = [None]
        """Until `on_lost` was called; popped by whoever calls it."""
        for lease in leases:
            lease._whole = weakref.WeakMethod(self._to_tell)

    def _to_tell(self) -> AnyLeases[L] | None:
        """What `on_lost` is called with, for the first of them that is lost."""
        try:
            self._untold.pop()
        except IndexError:
            return None
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, in the order in which they were acquired: by name, the same for everybody."""
        return tuple(lease.name for lease in self._leases)

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each, by the name of its lock."""
        return {lease.name: lease.token for lease in self._leases}

    @property
    def held(self) -> bool:
        """True while all of them are held. Reads the local clock each time, and sends nothing."""
        return self.remaining() > 0.0

    def remaining(self) -> float:
        """Seconds for which all of them are still guaranteed; 0.0 once one is gone."""
        return min(lease.remaining() for lease in self._leases)

    def ensure_held(self) -> None:
        """Raise LeaseLost unless all of them are held at this moment; cheap enough for a loop."""
        for lease in self._leases:
            lease.ensure_held()

    def _enter_once(self) -> None:
        if self._is_entered:
            names = ", ".join(map(repr, self.names))
            raise ConfigurationError(f"the leases on {names} are in a `with` block already: remove the inner `with`")
        self._is_entered = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self._leases))}>"


class Locks(AnyLocks):
    """Several locks, acquired together or not at all: `with locks as leases`, `locks.acquire(wait=…)` or
    `locks.try_acquire()`."""

    _new_book = ByThreads
    if not TYPE_CHECKING:  # which has words of its own
        __aenter__ = NEEDS_PLAIN_WITH

    _client: Client

    @exact
    def acquire(self, wait: float | None = LOCKS_WAIT, *more: Never, **wrong: Unpack[NothingElse]) -> Leases:
        """Wait for all of the locks. If they are not all acquired within `wait` seconds, release those that are, and
        raise LockTimeout; its `name` and `holder` say which one is held by whom. With None, wait for ever. Without
        `wait`, the `wait` of `client.locks()` counts."""
        if more or wrong:
            raise unknown_option(Locks.acquire, wrong, wait, *more)
        caller = sys._getframe(1)
        return self._obtain(self._patience(wait), (caller.f_code, caller.f_lasti))

    @exact
    def try_acquire(self, *more: Never, **wrong: Unpack[NothingElse]) -> Leases | None:
        """Return the leases, or None if someone else holds one of the locks. Does not wait for the holder."""
        if more or wrong:
            raise unknown_option(Locks.try_acquire, wrong, *more)
        caller = sys._getframe(1)
        answer = self._acquire(0.0, (caller.f_code, caller.f_lasti))
        return None if isinstance(answer, Refused) else answer

    def _obtain(self, patience: float | None, entry: Entry = False) -> Leases:
        started = boottime()
        answer = self._acquire(patience, entry)
        if isinstance(answer, Refused):
            raise self._timed_out(boottime() - started, answer)
        return answer

    def _acquire(self, patience: float | None, entry: Entry = False) -> Leases | Refused:
        client = self._client
        runtime = client._start()
        self._check_that_none_is_held(runtime.env.ledger, me.thread())
        wants = [each.want for each in self._settings]
        answer = drive(acquire_all(runtime.env, wants, patience, self._max_hold, entry))
        if isinstance(answer, Refused):
            return answer
        for state in answer:
            state.acquirer = me.thread
        on_lost = self._settings[0].on_lost
        return Leases([PartOfLeases(client, runtime, state, on_lost) for state in answer])

    def __enter__(self) -> Leases:
        scope = scope_of_this_entry(self)
        leases = self._obtain(self._wait, scope.is_kept)
        leases._is_entered = True
        scope.keep(leases)
        return leases

    @Exit
    def __exit__(scope: Scope, *exc: Any) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        scope.leave().__exit__(*exc)


class PartOfLeases(Lease):
    """One of several."""

    __slots__ = ("_whole",)

    _whole: Callable[[], Callable[[], object | None] | None]

    def _told_as(self) -> object | None:
        to_tell = self._whole()
        return None if to_tell is None else to_tell()


class Leases(AnyLeases[PartOfLeases]):
    """One successful acquisition of several locks. A context manager: leaving the block releases them."""

    if not TYPE_CHECKING:  # which has words of its own
        __aenter__ = NEEDS_PLAIN_WITH

    @property
    def lost(self) -> Lost:
        """As `Lease.lost`: set when one of them is lost."""
        return Lost(self._leases, self)

    def extend(self, ttl: float | None = None) -> None:
        """Renew all of them now. With `ttl`, they last that many seconds from now on, and after each renewal."""
        for lease in self._leases:
            lease.extend(ttl)

    def release(self) -> None:
        """Release all of the locks. A second call does nothing. Raises LeaseLost if a lease was already lost; the
        others are released all the same."""
        loss = self._release()
        if loss is not None:
            raise loss

    def _release(self) -> LeaseLost | None:
        runtime = self._leases[0]._runtime
        if self._leases[0]._is_inherited():
            return None
        return drive(release_all(runtime.env, [lease._state for lease in self._leases]))

    def __enter__(self) -> Leases:
        try:
            self.ensure_held()
        except LeaseLost:
            self._release()
            raise
        self._enter_once()
        for lease in self._leases:
            lease._enter_block()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        loss = self._release()
        if loss is not None and kind is None:
            raise loss
