"""Calls the observers of a client, on a thread of their own: whatever they do, no lease waits for it.

What happened is put on the queue of that thread (`core/stories.py` decides what is told of it). Putting is one C call
and never waits, so it may happen anywhere: in a finaliser, on an event loop, on the watchdog's thread.

The queue is bounded. While LIMIT reports wait, no new claim is told, and no renewal. The ends of what was told are put
on it in any case: there are no more of them than there are leases. When the client is closed, the observers have a
little time for what is queued; the rest is given up.

What an observer itself does with the client is not told to the observers. Otherwise one that acquires a lock when it is
told of a grant would never come to an end.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from gripfast.core.events import Event, Observer
from gripfast.core.stories import Report, Stories
from gripfast.errors import StoreUnavailable
from gripfast.machine import boottime
from gripfast.runtime.ticker import Ticker

_log = logging.getLogger("gripfast.observer")

LIMIT = 10_000
"""Reports that may wait."""

LAST_WORDS = 0.5
"""Seconds that observers have for what is queued when their client is closed, or the interpreter ends."""

PACE = 0.02
"""Seconds between two deliveries. To wake the thread for each report would cost its caller more than the report."""

QUIET = 60.0
"""Seconds for which the same trouble is not logged again."""

TROUBLES = 100
"""So many different ones are remembered."""


class Observers:
    def __init__(self, observers: Sequence[Observer], where: str, engine: str) -> None:
        self._observers = observers
        self._where = where
        self._ticker: Ticker[Report] = Ticker("gripfast-observers", self._deliver, self._end)
        self._tracers = [method for each in observers if (method := _own_traceparent(each)) is not None]
        self.stories = Stories(
            where, self._ticker.queue.put, self._has_room, boottime, time.time, self._traceparent, engine
        )
        self._is_started = False
        self._ends_at = math.inf
        self._is_stopping = threading.Event()
        self._closes_itself = False
        self._left_out = 0
        """About: threads count at the same time."""
        self._quiet_until: dict[tuple[object, type], float] = {}

    def client_is_being_closed(self) -> None:
        """Perhaps by an observer: then what is left is told when that has returned."""
        self._closes_itself = self._ticker.is_this_thread()

    def stop(self) -> None:
        """What is open ends; nothing that is reported later is told."""
        self._ends_at = boottime() + LAST_WORDS
        self._is_stopping.set()
        self._ticker.stop()

    def join(self) -> None:
        """Wait until all is told, or until the time for it is over."""
        if self._closes_itself:
            return
        self._ticker.join(self._ends_at - boottime())
        if self._ticker.is_alive():
            what = "the observers of %s are still busy, so they do not get the last events"
            with contextlib.suppress(Exception):  # a handler of the application's may raise
                _log.warning(what, self._where, extra={"gripfast_store": self._where})

    def settle(self, seconds: float) -> bool:
        """For tests: True as soon as everything is told that has happened."""
        return self._ticker.settle(seconds)

    # -- on any thread -------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        if self._ends_at < math.inf or self._ticker.is_this_thread():
            return False
        if not self._is_started:
            self._start()
        if self._ticker.queue.qsize() < LIMIT:
            return True
        self._left_out += 1  # said later, by the observers' own thread: no lease waits for a handler of the log
        return False

    def _traceparent(self) -> str | None:
        """The first that is told. Whoever requests a lock waits for it."""
        for traceparent in self._tracers:
            try:
                told = traceparent()
            except Exception as error:
                if self._is_news(traceparent, error):
                    self._say_raised(getattr(traceparent, "__qualname__", "traceparent"), error)
            else:
                if isinstance(told, str):
                    return told
        return None

    def _start(self) -> None:
        """If that is not possible now, what is queued waits for the next try."""
        try:
            self._ticker.start()
            self._is_started = True
        except (RuntimeError, MemoryError, StoreUnavailable) as error:  # no more threads; or a signal handler came here
            if self._is_news("start", error):
                with contextlib.suppress(Exception):
                    _log.warning("can't start the thread for the observers of %s (%s); will retry", self._where, error)

    def _is_news(self, what: object, error: BaseException) -> bool:
        now = boottime()
        if now < self._quiet_until.get((what, type(error)), -math.inf):
            return False
        if len(self._quiet_until) >= TROUBLES:
            self._quiet_until.clear()
        self._quiet_until[what, type(error)] = now + QUIET
        return True

    # -- on the observers' thread --------------------------------------------------------------------------------

    def _deliver(self, reports: Sequence[Report]) -> float:
        for report in reports:
            if (event := self.stories.take(report)) is not None:
                self._tell(event)
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            what = "about %d events were left out, because the observers of %s are too slow"
            _log.warning(what, left_out, self._where, extra={"gripfast_store": self._where})
        if reports:
            self._is_stopping.wait(PACE)
        return math.inf

    def _end(self) -> None:
        for event in self.stories.close():
            self._tell(event)

    def _tell(self, event: Event) -> None:
        if boottime() >= self._ends_at:
            return
        for number, observer in enumerate(self._observers):
            try:
                method = getattr(observer, event.kind, None)
                if method is not None:
                    method(event)
            except BaseException as error:  # SystemExit, too: it would end this thread without a word
                if self._is_news(number, error):
                    self._say_raised(f"{type(observer).__qualname__}.{event.kind}", error)
        if self._closes_itself:
            self._closes_itself, self._ends_at = False, boottime() + LAST_WORDS

    def _say_raised(self, method: str, error: BaseException) -> None:
        what = "the observer's method %s raised an exception, which is ignored (and not logged again for %d s)"
        with contextlib.suppress(Exception):  # a handler of the application's may raise, too
            _log.error(what, method, QUIET, exc_info=error, extra={"gripfast_store": self._where})


def _own_traceparent(observer: object) -> Callable[[], object] | None:
    """None if it has none, or the one that tells nothing: most do."""
    method = getattr(observer, "traceparent", None)
    return None if getattr(method, "__func__", None) is Observer.traceparent else method
