"""Calls that may take as long as they like, for a caller who waits no longer than told: names that are looked up by
the system, handshakes that drivers make byte by byte.

Such a call can't be broken off. It is made on a thread of its own, and what it makes too late is discarded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


def bounded(seconds: float, make: Callable[[], T], discard: Callable[[T], object] = lambda _: None) -> T:
    """What `make` returns or raises. TimeoutError if that is not within so many seconds."""
    errand = _Errand(make, discard)
    try:
        threading.Thread(target=errand.run, name="gripfast-connect", daemon=True).start()
    except RuntimeError:  # no thread can be started, at the end of the process for instance
        return make()
    return errand.result(seconds)


class _Errand(Generic[T]):
    def __init__(self, make: Callable[[], T], discard: Callable[[T], object]) -> None:
        self._make = make
        self._discard = discard
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._has_left = False
        self._made: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            made = self._make()
        except BaseException as error:
            self._error = error
        else:
            with self._lock:
                is_late = self._has_left
                if not is_late:
                    self._made.append(made)
            if is_late:
                self._discard(made)
        self._is_over.set()

    def result(self, seconds: float) -> T:
        try:
            self._is_over.wait(max(0.0, seconds))
        except BaseException:  # an interrupt
            self._leave()
            for made in self._made:
                self._discard(made)
            raise
        if not self._is_over.is_set() and not self._made:
            self._leave()
        if self._made:
            return self._made.pop()
        if self._error is not None:
            raise self._error
        raise TimeoutError("not done in time")

    def _leave(self) -> None:
        with self._lock:
            self._has_left = True
