"""Callbacks of the caller's, each on a thread of its own: a slow one delays nobody.

Where no more threads can be had (a limit of the container, no memory) a callback waits; none is dropped. A thread that
is done with its own takes over what waits, and whoever has a clock tries again to start one (`start_waiting`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from gripfast.errors import Reason
from gripfast.interrupts.threads import Background
from gripfast.machine import boottime

_log = logging.getLogger("gripfast.lease")

RETRY = 0.25
"""Seconds until it is tried again to start a thread."""

_A_MOMENT = 0.001

ON_LOST_RAISED = "on_lost of the lock %r raised an exception, which is ignored"

Call = Callable[[], object]


class Callbacks:
    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: deque[Call] = deque()

    def start(self, call: Call) -> None:
        """What it raises is logged."""
        self._waiting.append(call)
        self.start_waiting(logging.WARNING)

    def start_waiting(self, level: int = logging.DEBUG) -> float:
        """A thread for each that waits; the moment at which to try again, if one can't be started."""
        for _ in range(len(self._waiting)):
            try:
                Background(self.run_waiting, self.name).start()
            except (RuntimeError, MemoryError) as error:
                _log.log(level, "can't start threads for %d callbacks (%s); will retry", len(self._waiting), error)
                return boottime() + RETRY
        return math.inf

    def settle(self, seconds: float) -> bool:
        """For tests: True as soon as none of them runs, also of other clients."""
        ends = time.monotonic() + seconds
        while (threads := self._others()) and (left := ends - time.monotonic()) > 0.0:
            _join(threads[0], left)
        return not threads

    def _others(self) -> list[threading.Thread]:
        here = threading.current_thread()
        return [thread for thread in threading.enumerate() if thread.name == self.name and thread is not here]

    def run_waiting(self) -> None:
        """Here, one after the other."""
        while True:
            try:
                call = self._waiting.popleft()
            except IndexError:
                return
            _run(call)
            del call  # it may be the last to know a lease


def _join(thread: threading.Thread, seconds: float) -> None:
    try:
        thread.join(seconds)
    except RuntimeError:  # another thread is just starting it
        time.sleep(_A_MOMENT)


def _run(call: Call) -> None:
    try:
        call()
    except Exception:
        _log.exception("a callback raised an exception, which is ignored")


def run_on_lost(on_lost: Callable[..., object], lease: Any, reason: Reason) -> None:
    try:
        on_lost(lease, reason)
    except Exception:
        _log.exception(ON_LOST_RAISED, lease.name)
