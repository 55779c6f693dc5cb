"""One scan for all viewers, and none while nobody looks.

The watcher scans on its own thread, and there the changes are found. The event loop has the viewers. A viewer who is
too slow for all changes is not sent every one of them: it gets everything anew when it is ready for more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from gripfast.api.rows import Scan
from gripfast.api.watching import View, Watcher
from gripfast.serve.changes import Changes, News

LAG_MOST = 8
"""Changes that a viewer may be behind."""
SILENCE_MOST = 15.0
"""Seconds after which something is sent all the same, so that proxies keep the connection and dead ones are noticed."""
STREAM_MOST = 900.0
"""Seconds after which a viewer must come again, and show again that it may look."""
RETRY = b"retry: 2000\n\n"
"""After so many milliseconds a browser comes again, whatever ended the stream."""
NOTHING = b": nothing new\n\n"


class Viewer:
    def __init__(self) -> None:
        self._changes: deque[News] = deque()
        self._all: News | None = None
        self._knows_all = False
        self.woken = asyncio.Event()

    def tell(self, news: News) -> None:
        if not self._knows_all or len(self._changes) >= LAG_MOST:
            self._changes.clear()
            self._all, self._knows_all = news, False
        else:
            self._changes.append(news)
        self.woken.set()

    def take(self) -> Iterator[bytes]:
        self.woken.clear()
        everything, self._all = self._all, None
        if everything is not None:
            self._knows_all = True
            yield everything.whole
        while self._changes:
            yield self._changes.popleft().changed


class Feed:
    """Belongs to one event loop, the one in which it is opened."""

    def __init__(self, scan: Callable[[], Scan], interval: float) -> None:
        self.interval = interval
        self._changes = Changes()
        self._watcher = Watcher(scan, interval, self._looked)
        self._viewers: set[Viewer] = set()
        self._latest: News | None = None
        self._is_closed = False

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watcher.pause(True)
        self._watcher.start()

    def close(self) -> None:
        """Ends all streams."""
        self._is_closed = True
        self._watcher.close()
        for viewer in self._viewers:
            viewer.woken.set()

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def refresh(self) -> None:
        """Something was changed: do not wait for the next scan."""
        if self._viewers:
            self._watcher.refresh()

    async def stream(self) -> AsyncIterator[bytes]:
        """What one viewer is sent."""
        until = time.monotonic() + STREAM_MOST
        yield RETRY
        with self._looking() as viewer:
            while not self._is_closed and time.monotonic() < until:
                try:
                    await asyncio.wait_for(viewer.woken.wait(), SILENCE_MOST)
                except TimeoutError:
                    yield NOTHING
                for text in viewer.take():
                    yield text

    async def view(self) -> View:
        """One that is as new as what viewers see; without viewers, from a scan that begins now."""
        with self._looking() as viewer:
            while self._latest is None and not self._is_closed:
                viewer.woken.clear()
                await viewer.woken.wait()
            return self._latest.view if self._latest else View()

    @contextmanager
    def _looking(self) -> Iterator[Viewer]:
        viewer = Viewer()
        self._viewers.add(viewer)
        if self._latest is not None:
            viewer.tell(self._latest)
        elif len(self._viewers) == 1:
            self._watcher.pause(False)
            self._watcher.refresh()
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            if not self._viewers:
                self._watcher.pause(True)
                self._latest = None  # it ages from now on

    # -- on the watcher's thread ---------------------------------------------------------------------------------------

    def _looked(self, view: View) -> None:
        news = self._changes.after(view)
        try:
            self._loop.call_soon_threadsafe(self._publish, news)
        except RuntimeError:  # the loop has ended
            pass

    # -- on the loop ---------------------------------------------------------------------------------------------------

    def _publish(self, news: News) -> None:
        """A scan that began for viewers who have left is nobody's: the next viewer has one of its own."""
        if not self._viewers:
            return
        self._latest = news
        for viewer in self._viewers:
            viewer.tell(news)
