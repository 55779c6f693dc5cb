"""A queue with one reader, whose time-outs hold.

Those of `queue.SimpleQueue` do not (CPython 3.11): `get(timeout=…)` waits for ever if it finds its time over when it
looks for the second time. It looks twice at a queue that is new or was last read without waiting, and when a signal
arrives. The time-outs of a lock hold.
"""

from __future__ import annotations

# Not `signal`, which makes an enum of every signal: 0.15 ms for each wait.
import _signal  # type: ignore[import-not-found]
import _thread
import functools
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX
from typing import Generic, TypeVar

from gripfast.machine import boottime

T = TypeVar("T")


class TimedQueue(Generic[T]):
    __slots__ = ("_bell", "_items")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._bell: _thread.LockType | None = None
        """Locked, unless something came since the reader last looked. Made by the first who has to wait."""

    def put(self, item: T) -> None:
        self._items.append(item)
        if self._bell is not None:
            try:
                self._bell.release()
            except RuntimeError:  # it has rung already
                pass

    def get(self, timeout: float) -> T:
        """Raises queue.Empty if nothing comes within so many seconds."""
        if not self._items and timeout > 0.0:
            self._wait(boottime() + timeout)
        return self.get_nowait()

    def get_nowait(self) -> T:
        try:
            return self._items.popleft()
        except IndexError:
            raise Empty from None

    def _wait(self, until: float) -> None:
        bell = self._bell
        if bell is None:
            bell = _thread.allocate_lock()  # gevent may have replaced it since
            bell.acquire()
            self._bell = bell
        while not self._items:
            left = until - boottime()
            if left <= 0.0 or not bell.acquire(timeout=min(left, TIMEOUT_MAX)):
                return


def next_in_own_thread(queue: SimpleQueue[T], timeout: float | None) -> T:
    """For a thread of ours that alone reads a queue which finalisers put on: no Python frame may come between.

    It is read without waiting first, and no signal arrives, so `get` looks only once. (Time-outs of gevent's queue
    hold, and its threads are none: signals would be kept from the main thread.)
    """
    if type(queue).__module__ != "_queue":
        return queue.get(timeout=timeout)
    try:
        return queue.get_nowait()
    except Empty:
        pass
    with _no_signals():
        return queue.get(timeout=timeout)


_all_signals = functools.cache(_signal.valid_signals)


@contextmanager
def _no_signals() -> Iterator[None]:
    """In this thread. On Windows they interrupt no wait."""
    if not hasattr(_signal, "pthread_sigmask"):
        yield
        return
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _all_signals())
    try:
        yield
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
