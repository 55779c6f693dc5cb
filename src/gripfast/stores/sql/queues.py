"""The waiters of this client, by name: only the first in each queue claims at the engine.

Two hundred waiters for one name cost what one does. The first leaves its queue when it is granted, gives up or dies;
the next is notified. A dead waiter is not noticed before somebody looks, so each waiter checks, now and then, whether
it is the first.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from gripfast.core.ports import Inbox, Taken, Unreachable
from gripfast.interrupts.guard import Guard
from gripfast.stores.inboxes import Inboxes

NOTHING_KNOWN = Taken(None, 0)


def queue_of(rwlock: str) -> str:
    """What the waiters for a read/write lock are queued by: no lock has such a name."""
    return f"\0rwlock {rwlock}"


@dataclass(slots=True)
class Waiter:
    owner: str
    inbox: weakref.ref[Inbox]
    tries: int = 0
    """Claims that were made in vain."""


@dataclass(slots=True)
class _Queue:
    waiters: list[Waiter] = field(default_factory=list)
    answer: Taken | Unreachable = NOTHING_KNOWN
    """To the last request of the first waiter."""


class Queues(dict[str, _Queue]):
    """By name. A name that nobody waits for is not in it."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead: dict[str, str] = {}
        """The owner that claims a name first, while nobody is queued for it."""
        self.names: dict[str, str] = {}
        """Of the channels that are listened to."""
        self.inboxes = Inboxes()
        """Of those who wait for permits; they are queued at the engine."""
        self._guard = Guard()

    def goes_ahead(self, name: str, owner: str) -> bool:
        """Nobody is before this owner: it claims, and its answer serves all. In single steps, without a mutex."""
        return name not in self and self.ahead.setdefault(name, owner) == owner

    def join(self, name: str, owner: str, inbox: Inbox, is_ahead: bool = False) -> Waiter | None:
        """Be queued; the waiter, if it is the first: it claims. The one that went ahead is before all others."""
        return self._guard.run(self._join, name, owner, inbox, is_ahead)

    def leave(self, name: str, owner: str) -> None:
        """The next waiter claims."""
        self._through(name, owner)
        if name in self:
            first = self._guard.run(self._leave, name, owner)
            if first is not None:
                _notify(first)

    def answered(self, name: str, owner: str, answer: Taken | Unreachable) -> None:
        """To an owner that went ahead, or is the first."""
        self._through(name, owner)
        queue = self.get(name)
        if queue is not None:
            queue.answer = answer

    def _through(self, name: str, owner: str) -> None:
        """If it went ahead: the first of those queued meanwhile claims next."""
        if self.ahead.get(name) == owner:
            self.ahead.pop(name, None)
            if name in self:
                self.wake(name)

    def behind(self, name: str, pace: float) -> Taken | Unreachable:
        """The answer for a waiter behind the first: the same, but it looks at its own pace."""
        queue = self.get(name)
        answer = NOTHING_KNOWN if queue is None else queue.answer
        return answer._replace(again_in=pace) if isinstance(answer, Taken) else answer

    def wake(self, name: str) -> None:
        """Have the first waiter claim."""
        queue = self.get(name)
        for waiter in list(queue.waiters) if queue is not None else ():
            if _notify(waiter):
                return

    def wake_channel(self, channel: str) -> None:
        """With what was said there: the owner that waits for permits, for whom alone it is."""
        name = self.names.get(channel)
        if name is not None:
            self.wake(name)
        elif " " in channel:
            self.inboxes.deliver(channel.partition(" ")[2], None)

    def wake_all(self) -> None:
        """Something has changed for everyone: each waiter claims."""
        for queue in list(self.values()):
            for waiter in list(queue.waiters):
                _notify(waiter)
        self.inboxes.ask_again()

    def wake_first(self) -> None:
        self.inboxes.ask_again()
        for name in list(self):
            self.wake(name)

    def _join(self, name: str, owner: str, inbox: Inbox, is_ahead: bool) -> Waiter | None:
        queue = self.setdefault(name, _Queue())
        _forget_the_dead(queue)
        mine = next((waiter for waiter in queue.waiters if waiter.owner == owner), None)
        if mine is None:
            mine = Waiter(owner, weakref.ref(inbox))
            queue.waiters.insert(0 if is_ahead else len(queue.waiters), mine)
        return mine if queue.waiters[0] is mine else None

    def _leave(self, name: str, owner: str) -> Waiter | None:
        """The first one now, if that is another than before."""
        queue = self.get(name)
        if queue is None:
            return None
        before = queue.waiters[0] if queue.waiters else None
        queue.waiters = [waiter for waiter in queue.waiters if waiter.owner != owner]
        _forget_the_dead(queue)
        if not queue.waiters:
            del self[name]
            return None
        return None if queue.waiters[0] is before else queue.waiters[0]


def _notify(waiter: Waiter) -> bool:
    inbox = waiter.inbox()
    return inbox is not None and inbox.deliver(None)


def _forget_the_dead(queue: _Queue) -> None:
    queue.waiters = [waiter for waiter in queue.waiters if waiter.inbox() is not None]
