"""Calls that have no time-out of their own: they run on threads, so that their callers get an answer in time.

The look-up of a host's name has no time-out, nor has a handshake with a server that sends a byte now and then. A call
that is given up goes on until it ends by itself, and what it brings is discarded. While several of them hang no more
are begun, so that an outage does not fill the process with threads.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty
from typing import Generic, TypeVar

from gripfast.interrupts.threads import Background
from gripfast.machine import boottime
from gripfast.timed_queue import TimedQueue

T = TypeVar("T")

LATE_MOST = 64
"""Calls that were given up and have not ended, before no more are begun."""
LATE_FOR = 60.0
"""Seconds after which a call that was given up does not count any more: it may never end, and others may do better."""


class Calls(Generic[T]):
    """Calls of one kind, to one place."""

    def __init__(self, discard: Callable[[T], None]) -> None:
        """`discard` gets what a call brought too late."""
        self.discard = discard
        self.late: dict[Call[T], float] = {}
        """When each of them was given up."""

    def run(self, function: Callable[[], T], seconds: float) -> T:
        """What it returns or raises. Raises TimeoutError if it does neither in time."""
        done: TimedQueue[Call[T]] = TimedQueue()
        call = self._prepare(function, done.put)
        try:
            call.start()
            done.get(seconds)
        except Empty:
            pass
        except BaseException:
            call.give_up()
            raise
        return call.outcome()

    def begin(self, function: Callable[[], T], done: Callable[[Call[T]], None]) -> Call[T]:
        """`done` is told, on the call's own thread, when it has ended. Raises TimeoutError if too many hang."""
        call = self._prepare(function, done)
        call.start()
        return call

    def _prepare(self, function: Callable[[], T], done: Callable[[Call[T]], None]) -> Call[T]:
        if self.late:
            self._check_late()
        return Call(self, function, done)

    def _check_late(self) -> None:
        since = boottime() - LATE_FOR
        if sum(moment > since for moment in list(self.late.values())) >= LATE_MOST:
            raise TimeoutError(f"{LATE_MOST} earlier attempts to connect have not ended yet")


class Call(Generic[T]):
    """Either side may come last: whoever takes the outcome out has it alone."""

    def __init__(self, calls: Calls[T], function: Callable[[], T], done: Callable[[Call[T]], None]) -> None:
        self._calls = calls
        self._function = function
        self._done = done
        self._has_begun = False
        self._is_given_up = False
        self._outcome: list[T | _Raised] = []

    def start(self) -> None:
        try:
            Background(self._run, "gripfast-dial").start()
        except RuntimeError:  # no thread can be started: the interpreter is about to end, or there are too many
            self._run()

    def outcome(self) -> T:
        """Once; raises what was raised. If it has not ended it is given up: TimeoutError."""
        try:
            outcome = self._outcome.pop()
        except IndexError:
            self.give_up()
            raise TimeoutError from None
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome

    def give_up(self) -> None:
        self._is_given_up = True
        if self._has_begun:
            self._calls.late[self] = boottime()
        self._drop()

    def _drop(self) -> None:
        try:
            outcome = self._outcome.pop()
        except IndexError:
            return
        self._calls.late.pop(self, None)
        if not isinstance(outcome, _Raised):
            self._calls.discard(outcome)

    def _run(self) -> None:
        self._has_begun = True
        if not self._is_given_up:
            try:
                self._outcome.append(self._function())
            except Exception as error:
                self._outcome.append(_Raised(error))
        done = self._done
        del self._function, self._done  # they may keep whoever waits, and this may be kept by it
        done(self)
        if self._is_given_up:
            self._calls.late.pop(self, None)
            self._drop()


class _Raised:
    def __init__(self, error: Exception) -> None:
        error.__traceback__ = None  # it must not keep the frames that it came through
        self.error = error
