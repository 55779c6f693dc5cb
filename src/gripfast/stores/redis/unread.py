"""Releases that have left, and whose replies nobody waits for (`core/lazy.py`). No socket; only threads that wait for
each other look at a clock.

1. *Order.* Until its reply is read, requests of this client for the same name leave on the same connection, behind it
   (`Link.ask`, with the name). Otherwise a claim could overtake the release, and find the lock taken by the lease that
   its own client has released.
2. *Forgotten.* If the server has forgotten the script, the release is sent again, in full, and what came behind it for
   the same name is asked again. The first one on a connection is sent in full at once.
3. *Lost.* Where a reply can't be read any more, its Unread is dropped: that is what a clean-up follows. A request for
   the same name that was lost with it does not wait for that: if it may be repeated, it leaves behind the release.
4. *Lent connections* (`Late`). One with unread replies is parked. Whoever takes it reads them with its own reply. A
   thread that wants it for its name while another one reads it waits for that. The watchdog reads what has arrived.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from gripfast.machine import boottime
from gripfast.stores.redis import protocol
from gripfast.stores.redis.script import Script

READ_BY_ANOTHER = 0.0002
"""Seconds between two looks whether another thread has read what it is reading."""
UNREAD_MOST = 8
"""Connections with unread replies; if all of them have some, a release waits for its own."""


class Unread:
    """One release that has left."""

    __slots__ = ("__weakref__", "_told", "late_at", "name", "packed", "parked", "script", "was_forgotten")

    parked: weakref.ref[Parked[Any, Unread]]
    """Where it is, if connections are lent."""

    def __init__(self, name: str, script: Script, packed: bytes, told: Callable[[bool], None]) -> None:
        self.name = name
        self.script = script
        self.packed = packed
        self.late_at = math.inf
        """When the server counts as silent, where nobody else looks at that."""
        self.was_forgotten = False
        self._told = told

    def in_full(self) -> bytes:
        return self.script.in_full(self.packed)

    def words(self, taught: set[object]) -> bytes:
        """In full the first time on a connection, which was `taught` these scripts."""
        if self.script in taught:
            return self.packed
        taught.add(self.script)
        return self.in_full()

    def take(self, reply: Any) -> bool:
        """The reply was read. False if it has to be sent again, in full. An error of another kind tells nothing: this
        is dropped then, untold."""
        if protocol.forgot_script(reply) and not self.was_forgotten:
            self.was_forgotten = True
            return False
        if isinstance(reply, int) or protocol.is_no_lock(reply):
            self._told(reply == 1)
        return True


class Sent(Protocol):
    """What has left, and was not read."""

    name: str
    parked: weakref.ref[Any]


C = TypeVar("C")
U = TypeVar("U", bound=Sent)


class Parked(Generic[C, U]):
    """A connection, or a bundle of them, and the releases that it has carried and that nobody has read. In the book, or
    in the hands of one who reads. If it dies there, so do they."""

    __slots__ = ("__weakref__", "connection", "unread")

    def __init__(self, connection: C) -> None:
        self.connection = connection
        self.unread: deque[U] = deque()


class Book(Generic[C, U]):
    """The connections with unread replies, where each is lent to one request at a time."""

    def __init__(self) -> None:
        self.by_name: dict[str, weakref.ref[U]] = {}
        """The last release of each name. Empty if everything was read: all that most clients ever look at."""
        self._idle: list[Parked[C, U]] = []

    def find(self, name: str) -> Parked[C, U] | None:
        """What carries a release of this name; somebody may have it."""
        ref = self.by_name.get(name)
        unread = None if ref is None else ref()
        return None if unread is None else unread.parked()

    def strike(self, parked: Parked[C, U], unread: U) -> None:
        """It was read, or nobody will."""
        last = self.by_name.get(unread.name)
        if last is not None and last() is unread:
            self.by_name.pop(unread.name, None)
        parked.unread.remove(unread)

    def take(self, parked: Parked[C, U]) -> bool:
        """False if somebody has it already."""
        try:
            self._idle.remove(parked)
        except ValueError:
            return False
        return True

    def take_for(self, name: str | None, within: float, is_other_idle: bool) -> Parked[C, U] | None:
        """The connection that requests for this name have to take; or one with unread replies, if no other is idle."""
        ends = boottime() + within
        while name is not None and (parked := self.find(name)) is not None and boottime() < ends:
            if self.take(parked):
                return parked
            del parked  # another thread has it, and drops it if it is interrupted
            time.sleep(READ_BY_ANOTHER)
        return None if is_other_idle else self._take_any()

    def take_to_send(self, name: str, is_other_idle: bool) -> Parked[C, U] | None:
        """The same for a release of this name, which does not wait for another thread."""
        parked = self.find(name)
        if parked is not None and self.take(parked):
            return parked
        return None if is_other_idle else self._take_any()

    def take_each(self) -> Iterator[Parked[C, U]]:
        """Those that nobody has: whoever takes one puts it back."""
        for parked in self.all():
            if self.take(parked):
                yield parked
        self._forget_dropped()

    def _take_any(self) -> Parked[C, U] | None:
        """The one that was parked first: it may have been answered by now."""
        try:
            return self._idle.pop(0)
        except IndexError:
            return None

    def all(self) -> list[Parked[C, U]]:
        return list(self._idle)

    @property
    def is_full(self) -> bool:
        return len(self._idle) >= UNREAD_MOST

    def has_left(self, parked: Parked[C, U], unread: U) -> None:
        self.carries(parked, unread)
        self.put_back(parked)

    def carries(self, parked: Parked[C, U], unread: U) -> None:
        unread.parked = weakref.ref(parked)
        parked.unread.append(unread)
        self.by_name[unread.name] = weakref.ref(unread)

    def put_back(self, parked: Parked[C, U]) -> None:
        self._idle.append(parked)

    def _forget_dropped(self) -> None:
        """Names of what an interrupt, or a lost connection, has dropped."""
        for name, ref in self.by_name.copy().items():
            if ref() is None and self.by_name.get(name) is ref:
                self.by_name.pop(name, None)

    def close(self) -> list[C]:
        """What is to be closed."""
        self.by_name.clear()
        idle, self._idle = self._idle, []
        return [parked.connection for parked in idle]


class Late(Book[C, Unread]):
    """Where replies come one by one, in order."""

    def read(self, parked: Parked[C, Unread], replies: Sequence[Any]) -> list[Unread]:
        """The next replies. What has to be sent again, in full."""
        forgotten: list[Unread] = []
        for reply in replies:
            unread = parked.unread[0]
            if unread.take(reply):
                self.strike(parked, unread)
            else:
                forgotten.append(unread)
                parked.unread.popleft()
        return forgotten
