"""How a waiter is notified that the key before its own is gone.

A watch may miss a deletion: one that is made after a compaction does, and so does one at a member that is cut off. So a
waiter reads again by itself (`again_in`), and after every notice, whatever it says.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable

from gripfast.core.ports import Inbox
from gripfast.stores.etcd import keys
from gripfast.stores.etcd.link import Link, Notice, Watch
from gripfast.stores.faults import Fault

SLOW_PACE = 10.0
"""Seconds after which a waiter reads again although its watch was silent; less, by up to a quarter, so that waiters
that came together do not read together."""


def again_in(ttl: float) -> float:
    """Its key has to be put under a new lease before the old one expires, too."""
    return min(SLOW_PACE * random.uniform(0.75, 1.0), ttl / 3)


class Watching:
    """One waiter's watch."""

    __slots__ = ("_key", "_watch", "is_over")

    def __init__(self) -> None:
        self._key = b""
        self._watch: Watch | None = None
        self.is_over: list[Notice] = []
        """Not empty: the watch has ended."""

    async def of(
        self,
        link: Link,
        key: bytes,
        revision: int,
        inbox: Inbox,
        until: float,
        is_prefix: bool = False,
        puts: bool = False,
    ) -> Fault | None:
        """From after this revision on, the inbox is notified of the end of the key, or of any key that begins with it;
        with `puts` also when it is written. A watch for the same key that is still there goes on."""
        watched = key
        if self._watch is not None and self._key == watched and not self.is_over:
            return None
        self.stop()
        over = self.is_over = []
        range_end = keys.after(key) if is_prefix else b""
        watch = await link.watch(key, revision + 1, _notifier(inbox, over), until, range_end, puts)
        if isinstance(watch, Fault):
            return watch
        self._key, self._watch = watched, watch
        return None

    def stop(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()


def _notifier(inbox: Inbox, over: list[Notice]) -> Callable[[Notice], None]:
    """It does not keep the waiter alive."""
    known = weakref.ref(inbox)

    def notify(notice: Notice) -> None:
        over.append(notice)
        if (waiter := known()) is not None:
            waiter.deliver(None)

    return notify
