"""A mutex that an interrupt can't leave locked.

`with mutex:` can: an exception raised between the end of its body and the call of `__exit__` skips the release. Here
the release stands in two nested clauses, so whichever instruction a KeyboardInterrupt hits, the other clause still
frees it. A signal handler that comes back into a step which its own thread is in the middle of is refused: it could
neither wait for the step nor see its half-done state. A forked child gets a new mutex: nobody there would free the old.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gripfast.errors import StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    def __init__(self) -> None:
        self._mutex = threading.RLock()  # it knows its owner, which is what makes releasing twice harmless
        self._pid = os.getpid()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function while no other thread is in here. An interrupt may end it half-way."""
        if self._pid != os.getpid():
            self._mutex, self._pid = threading.RLock(), os.getpid()
        if self._is_mine():
            raise StoreUnavailable(
                "a signal handler or finaliser can't use this client now, because it interrupted a request of the "
                "same client on the same thread. Let the handler set a flag, and use the client after the handler has "
                "returned"
            )
        try:
            try:
                self._mutex.acquire()
                return function(*args, **kwargs)
            finally:
                self._free()
        finally:
            self._free()

    def run_if_free(self, function: Callable[[], object]) -> None:
        """The same for what somebody has to do, whoever it is: while another thread is in here, or this one further
        down, nothing happens."""
        if self._pid != os.getpid():
            self._mutex, self._pid = threading.RLock(), os.getpid()
        if self._is_mine():
            return
        try:
            try:
                if self._mutex.acquire(blocking=False):
                    function()
            finally:
                self._free()
        finally:
            self._free()

    def _free(self) -> None:
        if self._is_mine():
            self._mutex.release()

    def _is_mine(self) -> bool:
        return self._mutex._is_owned()  # type: ignore[attr-defined, no-any-return]
