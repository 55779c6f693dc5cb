"""Elections, for threads, and what those for tasks (`api/aio/election.py`) have in common with them.

`run` never counts on anything but the term: it calls the function inside the `with` block of the term, on the thread
that campaigns. So there is one function at a time by construction, and whatever strikes ends the term with the block.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from gripfast.api.current import call_with
from gripfast.api.decorator import Decorator, Namer, _name_of, no_coroutine, refuse_generators
from gripfast.api.lock import Lock, Settled
from gripfast.api.misuse import NotLikeOthers, exact, more_for_run, no_truth, shape_that_refuses, unknown_option
from gripfast.api.words import OF_ELECTIONS
from gripfast.core import rules
from gripfast.core.election import Campaign, Leader, Watch, leader_of
from gripfast.errors import ClientClosed, ConfigurationError, LeaseLost, StoreUnavailable
from gripfast.runtime.blocking import drive

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.aio.lease import AsyncLease
    from gripfast.api.client import Client
    from gripfast.api.lease import Lease
    from gripfast.api.typed import NothingElse
    from gripfast.core.ports import Env

R = TypeVar("R")

_WHO_LEADS = "to see who leads, write `{await_}election.leader()`"


class AnyElection(Settled, lacks=OF_ELECTIONS):
    _how_to_make = "gripfast.connect(url).election(name)"
    _method = "election({})"
    if not TYPE_CHECKING:  # which has words of its own
        __bool__ = no_truth(_WHO_LEADS)

    @property
    def value(self) -> str:
        """What this candidate says of itself while it leads."""
        return self._settings.want.label or ""

    def _watch(self) -> Watch:
        if self._client._is_closed:
            raise ClientClosed
        return Watch(self._settings.want.key, self._settings.want.ttl)

    def _described(self) -> str:
        return f"the election {self.name!r}"


class Election(AnyElection):
    """`with election.lead() as term`, `election.run(function)`, `election.leader()` or `election.watch()`."""

    _client: Client

    @exact
    def lead(self, wait: float | None = None, *more: Never, **wrong: Unpack[NothingElse]) -> Lease:
        """Campaign: wait until nobody else leads, and return the term, which is a lease. It lasts until it is released
        or lost. If it does not come within `wait` seconds, raise LockTimeout; its `holder` says who leads.

        Write `with election.lead() as term:`, or keep the term and call its `release()`.
        """
        if more or wrong:
            raise unknown_option(Election.lead, wrong, wait, *more)
        return self._lock().acquire(wait)

    @exact
    def try_lead(self, *more: Never, **wrong: Unpack[NothingElse]) -> Lease | None:
        """Return the term, or None if someone else leads. Does not wait."""
        if more or wrong:
            raise unknown_option(Election.try_lead, wrong, *more)
        return self._lock().try_acquire()

    def leader(self) -> Leader | None:
        """Who leads now, or None if nobody does."""
        return leader_of(self._client.inspect(self.name))

    def watch(self) -> Iterator[Leader | None]:
        """Iterate over the leaders: the present one at once, then each new one, and None when there is none. It may
        skip some, but never goes back: tokens only grow. The loop ends when the client is closed.

        It reads the store every third of the ttl, at least every 3 seconds, and when the leader's term should be over.
        So it may report a new leader that much later. Do not write because of what it reports, unless the database that
        you write to checks the token. It raises StoreUnavailable if the store can't be reached for `connect_patience`
        seconds. After this error you can call `next()` again: it goes on watching.
        """
        return _Watching(self._client, self._watch())

    @exact
    def run(self, function: Callable[[Lease], R], *more: Never, **wrong: Unpack[NothingElse]) -> R:
        """Campaign, and call `function(term)` while this candidate leads. Return what the function returns.

        The function has to stop when the term is lost: call `term.ensure_held()` before each step, which raises
        LeaseLost then, or look at `term.held`. After a lost term `run` campaigns again, as soon as the function has
        ended, and calls it with the next term. It never campaigns while the function still runs. If the term was lost,
        it makes no difference whether the function returns or raises the LeaseLost of the term.

        If the function returns while it leads, the term ends and `run` returns. If it raises, the term ends and `run`
        raises the same.

        If the store can't be reached, nobody becomes the leader, and `run` retries with pauses; the logger
        `gripfast.election` says why. Only an error that no retry can cure, such as a wrong password, raises
        StoreUnavailable. Inside the function, `gripfast.current_lease()` returns the term.
        """
        if more or wrong:
            raise more_for_run(function, more, wrong)
        _check_plain(function)
        while True:
            term = self._campaign()
            try:
                with term:
                    result: R = no_coroutine(call_with(term, function, (term,), {}), function)
                return result
            except LeaseLost:
                if not is_over(term, sys.exception()):
                    raise
            del term

    def _campaign(self) -> Lease:
        """For ever."""
        lock = self._lock()
        campaign = Campaign(self.name)
        while True:
            try:
                return lock._acquire(None, entry=True)  # type: ignore[return-value] # it waits for ever
            except StoreUnavailable as error:
                if error._is_permanent:
                    raise
                pause = campaign.failed(error)
            _nap(self._client._current().env, pause)

    def _lock(self) -> Lock:
        return Lock(self._client, self._settings)


class _Watching(Iterator[Leader | None]):
    """No generator: it can go on after an error."""

    def __init__(self, client: Client, watch: Watch) -> None:
        self._client = client
        self._watch = watch

    def __next__(self) -> Leader | None:
        try:
            env = self._client._current().env

            async def nap(seconds: float) -> None:
                _nap(env, seconds)

            return drive(self._watch.next(env, nap))
        except ClientClosed:
            raise StopIteration from None


def _nap(env: Env, seconds: float) -> None:
    """Until the client is closed, or so long."""
    if seconds <= 0.0:
        return
    over = threading.Event()
    env.sleepers.append(over.set)
    try:
        if not env.is_closed:
            over.wait(min(seconds, threading.TIMEOUT_MAX))
    finally:
        env.sleepers.remove(over.set)


def is_over(term: Lease | AsyncLease, error: BaseException | None) -> bool:
    """Whether the function ended because this term did. It may have lost something else. If the client is closed, the
    next campaign says so.

    The caller has no name for the error: an interrupt before that is deleted would leave a cycle, and in it the term.
    """
    is_its_loss = isinstance(error, LeaseLost) and error.name == term.name
    return is_its_loss and (term._loss() is not None or term._client._is_closed)


def _check_plain(function: object) -> None:
    check_function(function)
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"{_name_of(function)} is async: make the election with a client of gripfast.connect_async(url), and "
            "write `await election.run(function)`"
        )


def check_function(function: Any) -> None:
    if not callable(function) or isinstance(function, NotLikeOthers):
        raise ConfigurationError(f"run() takes a function, which it calls with the term, not {function!r}")
    refuse_generators(function)
    if shape := shape_that_refuses(function, None):
        raise ConfigurationError(
            f"run() calls the function with the term, and {shape} does not take this one argument: write "
            "`def work(term): …`"
        )


def settings_of(value: object, on_lost: Any, max_hold: float | None, group: str | None) -> dict[str, Any]:
    """Those of the lock that an election is."""
    return {
        "renew": True,
        "reentrant": False,
        "wait": None,
        "label": rules.checked_value(value) or None,
        "on_lost": on_lost,
        "max_hold": max_hold,
        "group": group,
    }


def elected_plain(make: Callable[..., Election], name: str, settings: dict[str, Any]) -> Decorator:
    """For plain functions: a call of the function is a `run`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        name_of = Namer(name, function)

        @functools.wraps(function)
        def lead(*args: Any, **kwargs: Any) -> Any:
            return make(name_of(args, kwargs), **settings).run(lambda term: function(*args, **kwargs))

        return lead

    return decorate
