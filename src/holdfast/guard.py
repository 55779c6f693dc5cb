"""A mutex that an interrupt can't leave locked.

`with mutex:` can: an exception raised between the end of its body and the call of `__exit__` skips the release. Here
the release stands in two nested clauses, so whichever instruction a KeyboardInterrupt hits, the other clause still
frees it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    def __init__(self) -> None:
        self._mutex = threading.RLock()  # it knows its owner, which is what makes releasing twice harmless

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function while no other thread is in here. An interrupt may end it half-way."""
        try:
            try:
                self._mutex.acquire()
                return function(*args, **kwargs)
            finally:
                self._free()
        finally:
            self._free()

    def _free(self) -> None:
        if self._mutex._is_owned():  # type: ignore[attr-defined]
            self._mutex.release()
