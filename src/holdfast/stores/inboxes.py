"""Where pushes arrive, for engines that live in this process or reach it by a thread of ours: one kind per colour."""

from __future__ import annotations

import asyncio
import queue
import weakref
from collections import deque

from holdfast.core.ports import Granted, Inbox
from holdfast.machine import boottime


class BlockingInbox:
    def __init__(self) -> None:
        self._pushes: queue.SimpleQueue[Granted | None] = queue.SimpleQueue()

    def deliver(self, push: Granted | None) -> bool:
        self._pushes.put(push)
        return True

    async def hear(self, until: float) -> Granted | None:
        try:
            return self._pushes.get(timeout=max(0.0, until - boottime()))
        except queue.Empty:
            return None


class AioInbox:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pushes: deque[Granted | None] = deque()
        self._hearing: asyncio.Future[None] | None = None

    def deliver(self, push: Granted | None) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._receive, push)
        except RuntimeError:  # the loop is closed
            return False
        return True

    async def hear(self, until: float) -> Granted | None:
        if not self._pushes:
            self._hearing = self._loop.create_future()
            timer = self._loop.call_later(max(0.0, until - boottime()), self._stop_hearing)
            try:
                await self._hearing
            finally:
                timer.cancel()
        return self._pushes.popleft() if self._pushes else None

    def _receive(self, push: Granted | None) -> None:
        self._pushes.append(push)
        self._stop_hearing()

    def _stop_hearing(self) -> None:
        if self._hearing is not None and not self._hearing.done():
            self._hearing.set_result(None)


class Inboxes:
    """The inboxes of one client by owner id, held weakly: an attempt that ended, in whatever way, is no longer here."""

    def __init__(self) -> None:
        self._by_owner: weakref.WeakValueDictionary[str, Inbox] = weakref.WeakValueDictionary()

    def add(self, owner: str, inbox: Inbox) -> None:
        self._by_owner[owner] = inbox

    def deliver(self, owner: str, push: Granted | None) -> bool:
        inbox = self._by_owner.get(owner)
        return inbox is not None and inbox.deliver(push)

    def ask_again(self) -> None:
        """Everyone who waits had better ask: something has changed."""
        for inbox in list(self._by_owner.values()):
            inbox.deliver(None)
