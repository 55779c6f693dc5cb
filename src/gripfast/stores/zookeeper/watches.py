"""Which waiters of a session are notified of the end of a node, with one watch for each node.

kazoo keeps the callable of a watch until the watch fires, in a set for each path. A callable for each attempt would
pile up there for as long as the watched node stays: weeks, behind a leader. So all attempts of a session that watch the
same node give kazoo the same callable, as far as a set can tell, and the waiters are kept here, weakly.

No mutex, as everywhere in a session: each step is one of the interpreter's own.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from kazoo.protocol.states import EventType

from gripfast.core.ports import Inbox

Waiters = weakref.WeakValueDictionary[int, Inbox]


class Watches:
    def __init__(self) -> None:
        self._waiters: dict[str, Waiters] = {}
        """By path; no longer than kazoo keeps its watch."""
        self._known = weakref.ref(self)
        hash(self._known)  # kept from now on: kazoo may need it when this is gone

    def join(self, path: str, inbox: Inbox) -> Watch:
        """What to give kazoo, so that this waiter is notified of the end of the node."""
        waiters: Waiters | None = None
        while waiters is None or self._waiters.get(path) is not waiters:  # if the watch fired in between, once more
            waiters = self._waiters.setdefault(path, weakref.WeakValueDictionary())
            waiters[id(inbox)] = inbox
        return Watch(self._known, path)

    def leave(self, path: str, inbox: Inbox | None) -> None:
        """This waiter knows that the node is gone. The others may have a watch that has not fired yet, or none."""
        if waiters := self._waiters.get(path):
            waiters.pop(id(inbox), None)
        self.notify(path)

    def notify(self, path: str) -> None:
        waiters = self._waiters.pop(path, None)
        for ref in waiters.valuerefs() if waiters else ():  # in one step of C: others come and go meanwhile
            if (inbox := ref()) is not None:
                inbox.deliver(None)

    def notify_all(self) -> None:
        """The connection is lost, and all its watches; or there is a new one."""
        for path in list(self._waiters):
            self.notify(path)


class Watch(NamedTuple):
    """Equal to every other one for the same node of the same session. It keeps nobody alive."""

    watches: weakref.ref[Watches]
    path: str

    def __call__(self, event: Any) -> None:
        """On kazoo's thread for watches. Of a lost connection the session itself notifies; this may come late."""
        watches = self.watches()
        if watches is not None and event.type != EventType.NONE:
            watches.notify(self.path)
