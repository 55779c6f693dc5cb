"""Deletes the nodes of leases and waiters that were not renewed in time: a loop that stands still, a thread that hangs.

kazoo's thread goes on pinging for them, so the ensemble would keep their nodes for as long as the process lives.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import queue

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.serialization import Delete

from gripfast.interrupts.threads import Background
from gripfast.machine import boottime
from gripfast.stores.zookeeper.driver import Reply, send
from gripfast.stores.zookeeper.janitor import Janitor
from gripfast.timed_queue import TimedQueue

_log = logging.getLogger("gripfast.connection")

PACE = 0.1
"""Seconds between two rounds."""


class Guardian:
    """Of one session. Its thread is the janitor's, too."""

    def __init__(self, client: KazooClient, janitor: Janitor) -> None:
        self.client = client
        self._janitor = janitor
        self._last_round = -math.inf
        self.until: dict[str, float] = {}
        """By path: when a node is deleted. Renewing moves that moment, and what is taken out is safe."""
        self._wakes: TimedQueue[bool] = TimedQueue()
        """Whether to go on."""
        self._thread = Background(self._run, "gripfast-guardian")

    def believe(self, path: str, until: float) -> None:
        """As setting `until`, for a node that may not be known here yet."""
        is_first = not self.until
        self.until[path] = until
        if is_first:
            with contextlib.suppress(RuntimeError):  # the interpreter is about to end
                self._thread.start()
            self._wakes.put(True)

    def doubt_all(self) -> None:
        for path in list(self.until):
            self.until[path] = -math.inf

    def stop(self) -> None:
        self._wakes.put(False)

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            with contextlib.suppress(queue.Empty):
                goes_on = self._wakes.get(PACE if self.until or self._janitor.is_busy else 1.0)
            now = boottime()
            if goes_on and now >= self._last_round + PACE:  # it may be woken much more often
                self._last_round = now
                self._delete_overdue(now)
                self._clear_idle_names(now)

    def _delete_overdue(self, now: float) -> None:
        for path, until in self.until.copy().items():
            if now > until and self.until.pop(path, None) is not None:
                _log.warning("the node %s (of a lease or a waiter) was not renewed in time; deleting it", path)
                send([(self, Delete(path, -1))], functools.partial(self._deleted, path))

    def _clear_idle_names(self, now: float) -> None:
        try:
            self._janitor.tick(now)
        except Exception:
            _log.exception("unexpected error while deleting idle names; will retry. Please report this")

    def _deleted(self, path: str, reply: Reply) -> None:
        """On kazoo's thread. If the connection broke, the node may still be there."""
        if isinstance(reply.answer, ConnectionLoss):
            self.believe(path, -math.inf)
