"""Where pushes arrive, for engines that live in this process or reach it by a thread of ours: one kind per colour."""

from __future__ import annotations

import asyncio
import queue
import weakref
from typing import Protocol

from holdfast.core.ports import Granted
from holdfast.machine import boottime


class Deliverable(Protocol):
    def deliver(self, push: Granted | None) -> bool:
        """Hand in a grant, or None for "ask again"; from any thread. False if nobody can hear it any more."""
        ...


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
        self._pushes: asyncio.Queue[Granted | None] = asyncio.Queue()

    def deliver(self, push: Granted | None) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._pushes.put_nowait, push)
        except RuntimeError:  # the loop is closed
            return False
        return True

    async def hear(self, until: float) -> Granted | None:
        try:
            async with asyncio.timeout(max(0.0, until - boottime())):
                return await self._pushes.get()
        except TimeoutError:
            return None


class Inboxes:
    """The inboxes of one client by owner id, held weakly: an attempt that ended, in whatever way, is no longer here."""

    def __init__(self) -> None:
        self._by_owner: weakref.WeakValueDictionary[str, Deliverable] = weakref.WeakValueDictionary()

    def add(self, owner: str, inbox: Deliverable) -> None:
        self._by_owner[owner] = inbox

    def deliver(self, owner: str, push: Granted | None) -> bool:
        inbox = self._by_owner.get(owner)
        return inbox is not None and inbox.deliver(push)

    def ask_again(self) -> None:
        """Everyone who waits had better ask: something has changed."""
        for inbox in list(self._by_owner.values()):
            inbox.deliver(None)
