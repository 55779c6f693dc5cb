"""The watches of one connection, all on one stream. Pure.

- A watch has a number of our own choice, so it does not matter in which order its member answers.
- It ends with its first notice. Whoever made it reads the queue again, and watches anew.
- It is known weakly: one whose waiter is gone, in whatever way, is cancelled when something is sent next (`cancels`).
  Only one step of C runs when it dies.
- A refused watch arrives as a message, not as the end of the stream, and not all versions say which one they refuse:
  then it is the oldest that was not confirmed.
- Parts of one message (`fragment`) are notices like any other: the first event is enough.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable

from gripfast.stores.etcd.link import Notice
from gripfast.stores.etcd.messages import NOPUT, WatchCancel, WatchCreate, WatchResponse

LOST = Notice("lost")


class Watch:
    __slots__ = ("__weakref__", "_ended", "_notify", "number")

    def __init__(self, notify: Callable[[Notice], None]) -> None:
        self._notify: list[Callable[[Notice], None]] = [notify]
        """Taken out by the one who calls it, or cancels: one step, and nobody else has it."""
        self.number = 0
        self._ended: deque[int] | None = None

    def cancel(self) -> None:
        self._notify.clear()
        if self._ended is not None:
            self._ended.append(self.number)

    def tell(self, notice: Notice) -> None:
        try:
            notify = self._notify.pop()
        except IndexError:
            return
        notify(notice)

    @property
    def is_over(self) -> bool:
        return not self._notify


class _Known(weakref.ref[Watch]):
    """Puts its number among those to be cancelled, when the watch dies."""

    __slots__ = ("number",)

    number: int


class Watches:
    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._unconfirmed: deque[int] = deque()
        self._ended: deque[int] = deque()
        """Cancelled, but their member does not know yet."""
        self._dead: deque[_Known] = deque()
        self._last = 0

    def add(self, watch: Watch, key: bytes, range_end: bytes, revision: int, puts: bool) -> WatchCreate:
        """What to send."""
        self._last += 1
        watch.number, watch._ended = self._last, self._ended
        known = _Known(watch, self._dead.append)
        known.number = watch.number
        self._known[watch.number] = known
        self._unconfirmed.append(watch.number)
        return WatchCreate(key, range_end, revision, filters=() if puts else (NOPUT,), watch_id=watch.number)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def has_cancels(self) -> bool:
        return bool(self._ended or self._dead)

    def cancels(self) -> list[WatchCancel]:
        """What else to send."""
        found = [self._ended.popleft() for _ in range(len(self._ended))]
        found += [self._dead.popleft().number for _ in range(len(self._dead))]
        return [WatchCancel(number) for number in dict.fromkeys(found) if self._known.pop(number, None) is not None]

    def got(self, response: WatchResponse) -> bool:
        """False if a watch was refused."""
        number = self._confirmed(response) if response.created else response.watch_id
        if response.canceled:
            return self._canceled(number, response)
        if response.events:
            event = response.events[0]
            self._tell(number, Notice("changed", event.kv.mod_revision))
        return True

    def _confirmed(self, response: WatchResponse) -> int:
        """Which one it is. Those that are confirmed later may have been answered before."""
        number = response.watch_id
        if number in self._known or number in self._unconfirmed:
            if number in self._unconfirmed:
                self._unconfirmed.remove(number)
            return number
        return self._unconfirmed.popleft() if self._unconfirmed else number

    def _canceled(self, number: int, response: WatchResponse) -> bool:
        if response.compact_revision:
            self._tell(number, Notice("compacted", response.compact_revision, response.cancel_reason), is_known=False)
            return True
        if number not in self._known:
            return True  # we have cancelled it
        self._tell(number, Notice("refused", 0, response.cancel_reason), is_known=False)
        return False

    def _tell(self, number: int, notice: Notice, is_known: bool = True) -> None:
        """`is_known`: its member still has it."""
        known = self._known.get(number)
        watch = None if known is None else known()
        if watch is None:
            return
        if is_known:
            self._ended.append(number)
        else:
            self._known.pop(number, None)
        watch.tell(notice)

    def lose_all(self, why: str = "") -> None:
        for known in list(self._known.values()):
            self._known.pop(known.number, None)
            if (watch := known()) is not None:
                watch.tell(LOST._replace(why=why))
