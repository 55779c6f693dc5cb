"""Deletes the nodes of names that nobody uses any more, in the background of a session.

A session remembers the names it has used. One that it has not used for a while is looked at twice, with that while in
between; if it is empty and unchanged, it is deleted. So the work follows the rate at which names are made, and the list
of all names is not fetched. The client that used a name last looks after it: a name that has changed between the two
looks is somebody else's by then.

What dead clients have left is found by samples of the whole list: more often as long as there is something to find,
rarely otherwise.

A name can't be deleted while it has a holder or a waiter, whatever was seen before: the server refuses. Only names with
our mark are touched: kazoo's Lock makes the node of a name once, and fails if it is gone.

An old note (`protocol.MARK`) is deleted with its name, or alone if the name is in use.
"""

from __future__ import annotations

import itertools
import queue
import random
import time
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.serialization import Delete, GetChildren, GetData, SetData

from gripfast.stores.zookeeper import protocol
from gripfast.stores.zookeeper.driver import Reply, send

IDLE = 60.0
"""Seconds without any use before a name is looked at, and between its two looks."""
BATCH = 50
"""Names that are looked at together: few, since claims of the session come behind them. A hundredth of all that are
remembered is added, so that a hundred rounds are enough however many there are."""
NOTE_KEPT = 600_000
"""Milliseconds. Its owner, if it lives, has read it long before."""
LIMIT_KEPT = 86_400_000
"""Milliseconds since the last grant or resize of a semaphore: so long its limit stays in force though nobody uses it.
Only samples find its name after that: whoever used it has most often ended by then."""
REMEMBERED = 100_000
"""Names. What is more than that is left to the samples."""
SAMPLE = 2000
"""Names of the whole list that are looked at together."""
FIRST_SAMPLE = 600.0
"""Seconds after the first use of a session, at most: clients that were started together do not look together."""
SAMPLES_LEAST, SAMPLES_MOST = 120.0, 3600.0
"""Seconds between two samples. They come more often if a tenth of the last one was left by somebody."""


class Idle(NamedTuple):
    since: float
    pzxid: int | None
    """The last change among its contenders, when it was seen without any; None before it was looked at."""
    was_sampled: bool


class Janitor:
    """Any thread may put a use; all else is done by one thread, that of the guardian."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client
        self.used: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()
        """Paths, and when they were used."""
        self._idle: dict[str, Idle] = {}
        """By path, in the order in which they became idle or were looked at."""
        self._looks: list[tuple[str, Idle, Reply]] = []
        """Under way."""
        self._roots: list[str] = []
        """Above the names that were used: of locks, of semaphores, of read/write locks."""
        self._root = ""
        """Of the last sample."""
        self._listing: Reply | None = None
        self._sampled: list[str] = []
        """Still to be looked at."""
        self._samples_at = 0.0
        self._pause = SAMPLES_LEAST
        self._cleared = 0
        """Of the last sample."""

    @property
    def is_busy(self) -> bool:
        return bool(self._looks or self._sampled or self._listing)

    def tick(self, now: float) -> None:
        """Do what can be done without waiting."""
        self._note_uses()
        if all(reply.is_answered for *_, reply in self._looks):
            looks, self._looks = self._looks, []
            for path, idle, reply in looks:
                self._judge(path, idle, reply.answer, now)
            if self.client.connected:
                self._look(now)
                self._sample(now)

    def _note_uses(self) -> None:
        while not self.used.empty():
            path, now = self.used.get()
            self._remember(path, Idle(now, None, False))
            root = path.rpartition("/")[0]
            if not self._roots:
                self._samples_at = now + FIRST_SAMPLE * random.random()
            if root not in self._roots:
                self._roots.append(root)
        while len(self._idle) > REMEMBERED:
            self._idle.pop(next(iter(self._idle)))

    def _remember(self, path: str, idle: Idle) -> None:
        self._idle.pop(path, None)  # to the end
        self._idle[path] = idle

    def _look(self, now: float) -> None:
        batch = BATCH + len(self._idle) // 100
        for path in self._due(now, batch):
            self._looks.append((path, self._idle.pop(path), self._send(GetData(path, None))))
        while self._sampled and len(self._looks) < batch:
            path = self._sampled.pop()
            if path not in self._idle:
                self._looks.append((path, Idle(now, None, True), self._send(GetData(path, None))))

    def _send(self, request: Any) -> Reply:
        return send([(self, request)])[0]

    def _due(self, now: float, most: int) -> list[str]:
        oldest = itertools.islice(self._idle.items(), most)
        return [path for path, idle in itertools.takewhile(lambda each: each[1].since + IDLE <= now, oldest)]

    def _judge(self, path: str, idle: Idle, found: Any, now: float) -> None:
        if path in self._idle or isinstance(found, NoNodeError | NoAuthError):
            return
        if isinstance(found, BaseException):  # the connection broke
            self._remember(path, idle._replace(since=now))
            return
        data, stat = found
        if protocol.is_of_permits(data):
            is_recent = not idle.was_sampled or stat.mtime > time.time() * 1000 - LIMIT_KEPT
            if stat.numChildren or (is_recent and protocol.is_of_semaphore(path)):
                return
        elif not protocol.is_marked(data):
            return
        elif stat.numChildren:
            if data != protocol.MARK and stat.mtime < time.time() * 1000 - NOTE_KEPT:
                send([(self, SetData(path, protocol.MARK, stat.version))])
            return
        if idle.pzxid is None:
            self._remember(path, Idle(now, stat.pzxid, idle.was_sampled))
        elif idle.pzxid == stat.pzxid:
            send([(self, Delete(path, stat.version))], *([self._count] if idle.was_sampled else []))

    def _count(self, deleted: Reply) -> None:
        """On kazoo's thread. Somebody else may have been quicker."""
        self._cleared += not isinstance(deleted.answer, BaseException)

    # -- names of others -----------------------------------------------------------------------------------------------

    def _sample(self, now: float) -> None:
        if self._listing is not None and self._listing.is_answered:
            names, self._listing = self._listing.answer, None
            names = [] if isinstance(names, BaseException) else names
            self._sampled = [f"{self._root}/{name}" for name in random.sample(names, min(SAMPLE, len(names)))]
        elif self._roots and now >= self._samples_at and not self.is_busy:
            self._pause = SAMPLES_LEAST if self._cleared >= SAMPLE / 10 else min(2 * self._pause, SAMPLES_MOST)
            self._samples_at = now + self._pause * random.uniform(1.0, 1.5)
            self._cleared = 0
            self._root = random.choice(self._roots)
            self._listing = self._send(GetChildren(self._root, None))
