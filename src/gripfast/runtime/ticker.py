"""A thread that works whenever its moment has come, or when something is put on its queue.

Putting is one C call that may happen anywhere, in a finaliser too. Announcing a moment costs a comparison unless the
thread would sleep past it: acquiring and releasing in a tight loop wakes nobody.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from gripfast.interrupts.threads import Background
from gripfast.machine import boottime
from gripfast.runtime.parts import LINGER_ROUNDS, LOOK_AT_LEAST
from gripfast.timed_queue import next_in_own_thread

_log = logging.getLogger("gripfast.watchdog")

T = TypeVar("T")

LOOK_EVERY = 0.05
"""Seconds, while a test waits for this thread: whether it has ended."""


class _Stop:
    """Put last: what came before it is still done."""


class _Gone(weakref.ref[object]):
    """The one that the thread worked for is gone; put by the interpreter itself, and as good as a _Stop."""


_ENDS = (_Stop, _Gone)


class _Asked(threading.Event):
    """Set when everything is done that was due, or queued, before it came."""


class Ticker(Generic[T]):
    def __init__(
        self, name: str, work: Callable[[Sequence[T]], float], at_end: Callable[[], None] = lambda: None
    ) -> None:
        self.queue: queue.SimpleQueue[T | _Stop | _Gone | _Asked | None] = queue.SimpleQueue()
        self.wakes_at = math.inf
        """Whoever has something for an earlier moment must call wake()."""
        self.name = name
        self._work = work
        self._at_end = at_end
        self._idle_rounds = 0
        self._asked: list[_Asked] = []
        self._thread = Background(self._run, name)

    def work_for(self, owner: object) -> None:
        """Stop when the owner is gone. Before start(), so that no thread is ever left without one."""
        self._owner = _Gone(owner, self.queue.put)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self.queue.put(None)

    def wake_before(self, moment: float) -> None:
        """What is due then must be where it looks."""
        if moment < self.wakes_at:
            self.queue.put(None)

    def stop(self) -> None:
        self.queue.put(_Stop())

    def join(self, seconds: float) -> bool:
        """Wait for its end; False if it was never started."""
        if self._thread.ident is not None and not self.is_this_thread():
            self._thread.join(max(0.0, seconds))
        return self._thread.ident is not None

    def settle(self, seconds: float) -> bool:
        """For tests that move the clock: True as soon as everything that is due is done."""
        if not self.is_alive() or self.is_this_thread():
            return True
        asked, ends = _Asked(), time.monotonic() + seconds
        self.queue.put(asked)
        while self.is_alive() and not asked.wait(min(LOOK_EVERY, max(0.0, ends - time.monotonic()))):
            if time.monotonic() > ends:
                return False
        return True  # also if it has ended before it read that

    def is_this_thread(self) -> bool:
        return self._thread is threading.current_thread()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        items: list[T] = []
        going = True
        while going:
            self.wakes_at = math.inf  # while it works: whoever announces something now is seen in the next round
            moment = self._work_safely(items)
            self._answer()
            self.wakes_at = self._next_look(moment)
            items, going = self._wait()
        self._work_safely(items)
        self._answer()
        self._at_end()

    def _answer(self) -> None:
        while self._asked:
            self._asked.pop().set()

    def _work_safely(self, items: Sequence[T]) -> float:
        try:
            return self._work(items)
        except Exception:
            with contextlib.suppress(Exception):  # of a log handler, which may be what has raised before
                what = "unexpected error in the thread %s; it keeps running. Please report this"
                _log.exception(what, self._thread.name)
            return boottime() + LOOK_AT_LEAST

    def _next_look(self, moment: float) -> float:
        self._idle_rounds = self._idle_rounds + 1 if moment == math.inf else 0
        return math.inf if self._idle_rounds > LINGER_ROUNDS else min(moment, boottime() + LOOK_AT_LEAST)

    def _wait(self) -> tuple[list[T], bool]:
        """Everything that was put since, and whether to go on."""
        items: list[T] = []
        timeout = None if self.wakes_at == math.inf else max(0.0, self.wakes_at - boottime())
        try:
            item = next_in_own_thread(self.queue, timeout)
            self._idle_rounds = 0
            while not isinstance(item, _ENDS):
                if isinstance(item, _Asked):
                    self._asked.append(item)
                elif item is not None:
                    items.append(item)
                item = self.queue.get_nowait()
        except queue.Empty:
            return items, True
        return items, False
