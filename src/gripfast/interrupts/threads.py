"""Threads of our own, which an interrupt can't leave half started.

`Thread.start()` is Python: it notes the thread, has the system start it, and waits until it runs. An interrupt in the
middle leaves a lock of `threading` locked for ever, or a thread that runs although it counts as not started. So
another thread calls it, where no signal handler runs. The start of that one is a single step of C: it was taken or not,
and whoever was interrupted may call start() again.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable


class Background(threading.Thread):
    """It does not keep the process alive."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._starting = _thread.allocate_lock()

    def start(self) -> None:
        """Nothing happens if it was started before. Raises RuntimeError if there can be no more threads, or if the
        interpreter is about to end."""
        if self.ident is not None:
            return
        # Looked up now: gevent may have replaced both since this module was loaded.
        tried, errors = _thread.allocate_lock(), list[RuntimeError]()
        tried.acquire()
        _thread.start_new_thread(self._start_undisturbed, (tried, errors))
        tried.acquire()
        if errors:
            raise errors[0]

    def _start_undisturbed(self, tried: _thread.LockType, errors: list[RuntimeError]) -> None:
        try:
            with self._starting:
                if self.ident is None:
                    super().start()
        except RuntimeError as error:
            errors.append(error)
        finally:
            tried.release()
