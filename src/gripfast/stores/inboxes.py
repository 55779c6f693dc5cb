"""Where pushes arrive, for engines that live in this process or reach it by a thread of ours."""

from __future__ import annotations

import weakref
from queue import Empty

from gripfast.core.ports import Granted, Inbox
from gripfast.machine import boottime
from gripfast.timed_queue import TimedQueue


class Nothing:
    """There is no push: not the same as being told to ask."""


NOTHING = Nothing()


class BlockingInbox(TimedQueue[Granted | Nothing | None]):
    __slots__ = ("__weakref__",)

    def deliver(self, push: Granted | None) -> bool:
        self.put(push)
        return True

    def nudge(self) -> None:
        """Have whoever is in `take` look around."""
        self.put(NOTHING)

    def take(self, seconds: float) -> Granted | Nothing | None:
        """What came first within so many seconds; without any, what is there, behind all nudges."""
        try:
            push = self.get(seconds)
            while seconds <= 0.0 and isinstance(push, Nothing):
                push = self.get_nowait()
        except Empty:
            return NOTHING
        return push

    async def hear(self, until: float) -> Granted | None:
        push = self.take(until - boottime())
        return None if isinstance(push, Nothing) else push


class Inboxes:
    """The inboxes of one client by owner id, held weakly: an attempt that ended, in whatever way, is no longer here."""

    def __init__(self) -> None:
        self._by_owner: weakref.WeakValueDictionary[str, Inbox] = weakref.WeakValueDictionary()

    def add(self, owner: str, inbox: Inbox) -> None:
        self._by_owner[owner] = inbox

    def deliver(self, owner: str, push: Granted | None) -> bool:
        inbox = self._by_owner.get(owner)
        return inbox is not None and inbox.deliver(push)

    def find(self, owner: str) -> Inbox | None:
        return self._by_owner.get(owner)

    def all(self) -> list[Inbox]:
        # In one step of C: others come and go meanwhile.
        return [inbox for ref in self._by_owner.valuerefs() if (inbox := ref()) is not None]

    def ask_again(self) -> None:
        """Everyone who waits had better ask: something has changed."""
        for inbox in self.all():
            inbox.deliver(None)
