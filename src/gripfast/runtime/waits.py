"""Waits that can't end well: for a lock that the waiter has acquired itself, or in the thread of a running event loop.

The log says so once, after a second. The wait goes on: another thread may release the lock, and a short script may
block its loop on purpose. Only waiters that were refused once are checked.
"""

from __future__ import annotations

import logging
import math
import threading

from gripfast.core.lease import Want
from gripfast.core.ledger import Ledger
from gripfast.core.ports import Taken, Unreachable
from gripfast.interrupts.living import Living
from gripfast.machine import boottime
from gripfast.runtime.here import described, has_running_loop, is_acquired_by

_log = logging.getLogger("gripfast.lease")

TELL_AFTER = 1.0
"""Seconds."""

_ITSELF = (
    "It acquired this lock itself, so it waits until another %s releases it or the lease ends. Release the lease "
    "first, or use one client, with reentrant=True both times"
)
_IN_A_LOOP = (
    "An event loop runs in this thread, and none of its tasks can go on meanwhile. Use gripfast.connect_async(), or "
    "wait in another thread with asyncio.to_thread()"
)


class Wait:
    """A wait that is logged unless it ends in time."""

    def __init__(self, name: str, who: object, what: str) -> None:
        self._name = name
        self._text = f"{described(who)} has waited for the lock {name!r} for {TELL_AFTER:g} s. {what}"
        self._is_over = False
        self.tells_at = boottime() + TELL_AFTER

    def end(self) -> None:
        """Over, or told."""
        self._is_over = True
        self.tells_at = math.inf

    def tell(self) -> None:
        if not self._is_over:
            self.end()
            _log.warning("%s", self._text, extra={"gripfast_name": self._name})


class Waits:
    """Those of the threads of one client, weakly: a wait that an interrupt has ended is no longer here."""

    def __init__(self) -> None:
        self._waits: Living[Wait] = Living()

    def add(self, wait: Wait) -> None:
        self._waits.add(wait)

    def tell(self) -> float:
        """Log the waits that are due; when the next one is."""
        now = boottime()
        for wait in self._waits:
            if wait.tells_at <= now:
                wait.tell()
        return min((wait.tells_at for wait in self._waits), default=math.inf)


def of_thread(ledger: Ledger, want: Want, answer: Taken | Unreachable) -> Wait | None:
    """The wait of the calling thread, if something is wrong with it."""
    thread = threading.current_thread()
    wrong = [_ITSELF % "thread"] if _is_in_vain(thread, ledger, want, answer) else []
    if has_running_loop():
        wrong.append(_IN_A_LOOP)  # second: it does not explain why the wait does not end
    return Wait(want.name, thread, ". ".join(wrong)) if wrong else None


def of_task(task: object, ledger: Ledger, want: Want, answer: Taken | Unreachable) -> Wait | None:
    """The wait of this task, if something is wrong with it."""
    return Wait(want.name, task, _ITSELF % "task") if _is_in_vain(task, ledger, want, answer) else None


def _is_in_vain(who: object, ledger: Ledger, want: Want, answer: Taken | Unreachable) -> bool:
    """Whoever waits for permits, and has some, may get them from others."""
    return want.share is None and isinstance(answer, Taken) and is_acquired_by(who, ledger, want.key, answer.holder)


def nothing() -> None:
    """The end of a wait that nothing is wrong with."""
