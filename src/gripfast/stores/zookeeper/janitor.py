"""Deletes the nodes of names that nobody uses any more, in the background of a session.

A session remembers the names it has used. One that it has not used for a while is looked at twice, with that while in
between; if it is empty and unchanged, it is deleted. So the work follows the rate at which names are made, and nobody
fetches the list of all names for it. Whoever used a name last looks after it: a name that has changed between the two
looks is somebody else's by then.

What clients have left that died before that is found by samples of the whole list, now and then: more often as long as
there is something to find, rarely otherwise.

A name can't be deleted under a contender, whatever was seen before: the server refuses. Only names with our mark are
touched: kazoo's Lock makes the node of a name once, and fails if it is gone.
"""

from __future__ import annotations

import itertools
import queue
import random
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

MARK = b"gripfast"
"""What stands in names that we have made."""
IDLE = 60.0
"""Seconds without any use before a name is looked at, and between its two looks."""
BATCH = 50
"""Names that are looked at together: few, since claims of the session come behind them. A hundredth of all that are
remembered is added, so that a hundred rounds are enough however many there are."""
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
    """Told of uses by any thread; all else is done by one thread, that of the guardian."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._used: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()
        self._idle: dict[str, Idle] = {}
        """By path, in the order in which they became idle or were looked at."""
        self._looks: list[tuple[str, Idle, Any]] = []
        """Under way."""
        self._root = ""
        self._listing: Any = None
        self._sampled: list[str] = []
        """Still to be looked at."""
        self._samples_at = 0.0
        self._pause = SAMPLES_LEAST
        self._cleared = 0
        """Of the last sample."""

    @property
    def is_busy(self) -> bool:
        return bool(self._looks or self._sampled or self._listing)

    def used(self, path: str, now: float) -> None:
        self._used.put((path, now))

    def tick(self, now: float) -> None:
        """Do what can be done without waiting."""
        self._note_uses()
        if all(result.ready() for *_, result in self._looks):
            looks, self._looks = self._looks, []
            for path, idle, result in looks:
                self._judge(path, idle, result, now)
            if self._client.connected:
                self._look(now)
                self._sample(now)

    def _note_uses(self) -> None:
        while not self._used.empty():
            path, now = self._used.get()
            self._remember(path, Idle(now, None, False))
            if not self._root:
                self._root = path.rpartition("/")[0]
                self._samples_at = now + FIRST_SAMPLE * random.random()
        while len(self._idle) > REMEMBERED:
            self._idle.pop(next(iter(self._idle)))

    def _remember(self, path: str, idle: Idle) -> None:
        self._idle.pop(path, None)  # to the end
        self._idle[path] = idle

    def _look(self, now: float) -> None:
        batch = BATCH + len(self._idle) // 100
        for path in self._due(now, batch):
            self._looks.append((path, self._idle.pop(path), self._client.get_async(path)))
        while self._sampled and len(self._looks) < batch:
            path = self._sampled.pop()
            if path not in self._idle:
                self._looks.append((path, Idle(now, None, True), self._client.get_async(path)))

    def _due(self, now: float, most: int) -> list[str]:
        oldest = itertools.islice(self._idle.items(), most)
        return [path for path, idle in itertools.takewhile(lambda each: each[1].since + IDLE <= now, oldest)]

    def _judge(self, path: str, idle: Idle, looked: Any, now: float) -> None:
        if path in self._idle or isinstance(looked.exception, NoNodeError | NoAuthError):
            return
        if looked.exception is not None:  # the connection broke
            self._remember(path, idle._replace(since=now))
            return
        data, stat = looked.value
        if data != MARK or stat.numChildren:
            return
        if idle.pzxid is None:
            self._remember(path, Idle(now, stat.pzxid, idle.was_sampled))
        elif idle.pzxid == stat.pzxid:
            deleted = self._client.delete_async(path)
            if idle.was_sampled:
                deleted.rawlink(self._count)

    def _count(self, deleted: Any) -> None:
        """On kazoo's thread. Somebody else may have been quicker."""
        self._cleared += deleted.successful()

    # -- names of others -----------------------------------------------------------------------------------------------

    def _sample(self, now: float) -> None:
        if self._listing is not None and self._listing.ready():
            listing, self._listing = self._listing, None
            names = listing.value if listing.successful() else []
            self._sampled = [f"{self._root}/{name}" for name in random.sample(names, min(SAMPLE, len(names)))]
        elif self._root and now >= self._samples_at and not self.is_busy:
            self._pause = SAMPLES_LEAST if self._cleared >= SAMPLE / 10 else min(2 * self._pause, SAMPLES_MOST)
            self._samples_at = now + self._pause * random.uniform(1.0, 1.5)
            self._cleared = 0
            self._listing = self._client.get_children_async(self._root)
