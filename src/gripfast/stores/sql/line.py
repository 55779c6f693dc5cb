"""Who waits in this client, by name: only the first of them asks the engine.

Two hundred who wait for one name cost what one does. The first leaves when it is granted, gives up or dies; the next
is told to ask. Whoever died is not seen before somebody looks: so each asks, at a slow pace, whether it is its turn.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from gripfast.core.ports import Granted, Inbox, Taken, Unreachable
from gripfast.guard import Guard

NOTHING_KNOWN = Taken(None, 0)


@dataclass(slots=True)
class Waiter:
    owner: str
    inbox: weakref.ref[Inbox]
    tries: int = 0
    """How often it has asked in vain."""


@dataclass(slots=True)
class _Line:
    waiters: list[Waiter] = field(default_factory=list)
    answer: Taken | Unreachable = NOTHING_KNOWN
    """What the first in line was told when it last asked."""


class Lines:
    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._asking: dict[str, str] = {}
        """Who asks for a name for the first time, while nobody stands in line for it."""
        self.names: dict[str, str] = {}
        """Of the channels that are listened to."""
        self._guard = Guard()

    def goes_ahead(self, name: str, owner: str) -> bool:
        """Nobody is before this one: it asks, and says when it is `through`. In single steps, without a mutex."""
        return name not in self._lines and self._asking.setdefault(name, owner) == owner

    def through(self, name: str) -> None:
        """Whoever came meanwhile asks next."""
        self._asking.pop(name, None)
        if name in self._lines:
            self.wake(name)

    def join(self, name: str, owner: str, inbox: Inbox, is_ahead: bool = False) -> Waiter | None:
        """Stand in line; the waiter, if it is the first: it asks. Who went ahead is before those who came meanwhile."""
        return self._guard.run(self._join, name, owner, inbox, is_ahead)

    def leave(self, name: str, owner: str) -> None:
        """And have the next one ask."""
        if self._asking.get(name) == owner:
            self.through(name)
        if name in self._lines:
            first = self._guard.run(self._leave, name, owner)
            if first is not None:
                _tell(first)

    def asked(self, name: str, owner: str, answer: Granted | Taken | Unreachable) -> None:
        """What an owner was told who went ahead, or is the first in line."""
        if isinstance(answer, Granted):
            self.leave(name, owner)
            return
        if self._asking.get(name) == owner:
            self.through(name)
        line = self._lines.get(name)
        if line is not None:
            line.answer = answer

    def behind(self, name: str, pace: float) -> Taken | Unreachable:
        """What those are told who stand behind the first: the same, but they ask at their own pace."""
        line = self._lines.get(name)
        answer = NOTHING_KNOWN if line is None else line.answer
        return answer._replace(again_in=pace) if isinstance(answer, Taken) else answer

    def is_waited_for(self, name: str) -> bool:
        return name in self._lines

    def wake(self, name: str) -> None:
        """Have the first in line ask."""
        line = self._lines.get(name)
        for waiter in list(line.waiters) if line is not None else ():
            if _tell(waiter):
                return

    def wake_channel(self, channel: str) -> None:
        name = self.names.get(channel)
        if name is not None:
            self.wake(name)

    def wake_all(self) -> None:
        """Something has changed for everyone: each asks, and is told what."""
        for line in list(self._lines.values()):
            for waiter in list(line.waiters):
                _tell(waiter)

    def wake_first(self) -> None:
        for name in list(self._lines):
            self.wake(name)

    def _join(self, name: str, owner: str, inbox: Inbox, is_ahead: bool) -> Waiter | None:
        line = self._lines.setdefault(name, _Line())
        _forget_the_dead(line)
        mine = next((waiter for waiter in line.waiters if waiter.owner == owner), None)
        if mine is None:
            mine = Waiter(owner, weakref.ref(inbox))
            line.waiters.insert(0 if is_ahead else len(line.waiters), mine)
        return mine if line.waiters[0] is mine else None

    def _leave(self, name: str, owner: str) -> Waiter | None:
        """Who is the first now, if that is another one than before."""
        line = self._lines.get(name)
        if line is None:
            return None
        before = line.waiters[0] if line.waiters else None
        line.waiters = [waiter for waiter in line.waiters if waiter.owner != owner]
        _forget_the_dead(line)
        if not line.waiters:
            del self._lines[name]
            return None
        return None if line.waiters[0] is before else line.waiters[0]


def _tell(waiter: Waiter) -> bool:
    inbox = waiter.inbox()
    return inbox is not None and inbox.deliver(None)


def _forget_the_dead(line: _Line) -> None:
    line.waiters = [waiter for waiter in line.waiters if waiter.inbox() is not None]
