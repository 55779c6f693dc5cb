"""What is to be done once, for threads, and what the same for tasks (`api/aio/once.py`) has in common with it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from gripfast.api.decorator import Namer, no_coroutine
from gripfast.api.lease import Lease
from gripfast.api.misuse import NEEDS_PLAIN_WITH, NotLikeOthers, given, no_truth, refuse_to_pickle
from gripfast.api.settings import LockSettings
from gripfast.api.words import OF_ONCE
from gripfast.core import rules
from gripfast.core.acquire import acquire
from gripfast.core.ledger import Entry
from gripfast.core.once import record_done
from gripfast.core.ports import LockInfo, Taken
from gripfast.errors import ConfigurationError
from gripfast.interrupts.scope import ByThreads, Exit, Scope, scope_of_this_entry
from gripfast.runtime.blocking import drive
from gripfast.runtime.here import me

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gripfast.api.aio.lease import AsyncLease
    from gripfast.api.base import AnyClient
    from gripfast.api.client import Client

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", "Lease", "AsyncLease")


class AnyOnce(NotLikeOthers, lacks=OF_ONCE):
    _method = "once({}, keep=seconds)"
    __reduce_ex__ = refuse_to_pickle
    if not TYPE_CHECKING:  # which has words of its own
        __bool__ = no_truth("write `{async_}with client.once(…) as run:` and inside it `if run:`")

    def __init__(self, client: AnyClient, settings: LockSettings, keep: float, done_on_error: bool) -> None:
        self._client = client
        self._settings = settings
        self._keep = rules.checked_keep(given("keep", keep))
        self._done_on_error = done_on_error

    @property
    def name(self) -> str:
        return self._settings.want.name

    def _again(self, function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
        """The settings, with the name that the arguments of a call make of the template."""
        name_of, want = Namer(self.name, function), self._settings.want
        others = {
            "keep": self._keep,
            "ttl": want.ttl,
            "wait": self._settings.wait,
            "label": want.label,
            "group": want.group or self.name,
            "done_on_error": self._done_on_error,
        }

        def again(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
            return {"name": name_of(args, kwargs), **others}

        return again

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._client.where}>"


class AnyRun(NotLikeOthers, Generic[L]):
    """What `once()` gives a block. True if the block is to do the work."""

    __slots__ = ("__weakref__", "_holder", "_is_asked", "_lease", "_once")
    __reduce_ex__ = refuse_to_pickle

    def __init__(self, once: AnyOnce, got: L | Taken) -> None:
        self._once = once
        self._lease: L | None = None if isinstance(got, Taken) else got
        holder = got.holder if isinstance(got, Taken) else None
        self._holder: LockInfo | None = None if holder is None else once._client._shown(holder)
        self._is_asked = False
        """Whether the block knows that it is not to do the work: it tested the run itself, or that one of `done` and
        `busy` which is true. A block that reads only the other one goes on to the work."""

    @property
    def name(self) -> str:
        return self._once.name

    @property
    def holder(self) -> LockInfo | None:
        """Who has done it, or does it now. None if this block does, or if it is not known."""
        return self._holder

    @property
    def done(self) -> bool:
        """It was done before. If not, this block is to do the work, or the run is `busy`."""
        self._is_asked |= self._was_done
        return self._was_done

    @property
    def busy(self) -> bool:
        """Somebody else does it now; nobody knows whether that will succeed."""
        is_busy = self._lease is None and not self._was_done
        self._is_asked |= is_busy
        return is_busy

    @property
    def lease(self) -> L:
        """Held while the block runs: `run.lease.token`, `run.lease.ensure_held()`."""
        if self._lease is None:
            raise ConfigurationError(
                f"there is no lease, because {self.name!r} is done, or somebody else does it now: check `if run:` first"
            )
        return self._lease

    @property
    def _was_done(self) -> bool:
        return self._holder is not None and self._holder.kept == "done"

    def _records(self, kind: type[BaseException] | None) -> bool:
        """Interrupts are no errors of the work."""
        return kind is None or (self._once._done_on_error and issubclass(kind, Exception))

    def _check_asked(self, kind: type[BaseException] | None) -> None:
        """At the end of a block that was not to do the work. One that raised may have had no time to ask."""
        if self._is_asked or kind is not None:
            return
        done = self._was_done
        why = f"{self.name!r} was done before" if done else f"somebody else does {self.name!r} now"
        entry = "async with" if type(self).__name__.startswith("Async") else "with"
        raise ConfigurationError(
            f"{why}, but the block of `{entry} client.once(…)` ran to its end, and tested neither `run` nor "
            f"`run.{'done' if done else 'busy'}`: write `{entry} client.once(…) as run:` and inside it `if run:`"
        )

    def __bool__(self) -> bool:
        self._is_asked = True
        return self._lease is not None

    def __repr__(self) -> str:
        state = "to be done here" if self._lease is not None else "done" if self._was_done else "busy"
        return f"<{type(self).__name__} {self.name!r} {state}>"


class Once(AnyOnce):
    """`with once as run:`, or a decorator."""

    _new_book = ByThreads
    if not TYPE_CHECKING:  # which has words of its own
        __aenter__ = NEEDS_PLAIN_WITH

    _client: Client

    def _begin(self, entry: Entry) -> Run:
        client, want = self._client, self._settings.want
        runtime = client._start()
        answer = drive(acquire(runtime.env, want, self._settings.wait, entry))
        if isinstance(answer, Taken):
            return Run(self, answer)
        answer.acquirer = me.thread
        lease = Lease(client, runtime, answer, self._settings.on_lost)
        lease._is_entered = True
        return Run(self, lease)

    def __enter__(self) -> Run:
        scope = scope_of_this_entry(self)
        run = self._begin(scope.is_kept)
        scope.keep(run)
        return run

    @Exit
    def __exit__(scope: Scope, *exc: Any) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        scope.leave()._end(*exc)

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | None]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]: ...

    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Decorate a function: it runs if it is to be done here. Otherwise the call returns None."""
        from gripfast.api.current import call_with

        if inspect.iscoroutinefunction(function):
            from gripfast.api.aio.once import decorated

            return decorated(self._client._twin_once, self._again(function), function)
        client, again = self._client, self._again(function)

        @functools.wraps(function)
        def once(*args: Any, **kwargs: Any) -> Any:
            with client.once(**again(args, kwargs)) as run:
                return no_coroutine(call_with(run.lease, function, args, kwargs), function) if run else None

        return once


class Run(AnyRun["Lease"]):
    """From `with client.once(…) as run:`. True if the block is to do the work. Otherwise `done` or `busy` is true."""

    __slots__ = ()

    def _finish(self, status: int) -> None:
        """Of a command: only 0 is done."""
        if status == 0:
            self._end(None)
        else:
            self.lease.release()

    def _end(self, kind: type[BaseException] | None, *_: object) -> None:
        lease = self._lease
        if lease is None:
            self._check_asked(kind)
        elif not self._records(kind):
            lease.__exit__(kind)
        elif lease._let_go():
            drive(record_done(lease._runtime.env, lease._state, self._once._keep))
