"""The rows of a store, read again and again: by one thread, however many look at them, and with rates.

How often a lock is entered is told by its tokens, because each entry has a new one. Between two looks at a lock there
may have been several entries, and all but the last are missed. So a rate is what happens at least. Of a lock that was
entered and released between two looks, nothing is seen.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gripfast.api.rows import Row, Scan
from gripfast.interrupts.threads import Background

WINDOW = 10.0
"""Seconds over which rates are averaged."""

Key = tuple[str, str]


class Rates:
    """Counts entries by what is new since the scan before. What the first scan finds is not new."""

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._before: Mapping[Key, set[int | str]] | None = None
        self._counted: deque[tuple[float, Counter[Key]]] = deque()
        self._sums: Counter[Key] = Counter()

    def of(self, scan: Scan) -> tuple[Sequence[Row], float | None]:
        """The rows with their rates, and the rate of all names together: None after the first scan."""
        now = {row.key: _entries(row) for row in scan.rows}
        self._count(scan.at, now)
        self._before = now
        if len(self._counted) == 1:
            return scan.rows, None
        span = max(scan.at - self._counted[0][0], 1e-3)
        rows = [replace(row, rate=self._sums[row.key] / span) for row in scan.rows]
        return rows, self._sums.total() / span

    def _count(self, at: float, now: Mapping[Key, set[int | str]]) -> None:
        before = now if self._before is None else self._before
        nothing: set[int | str] = set()
        new = Counter({key: n for key, entries in now.items() if (n := len(entries - before.get(key, nothing)))})
        self._counted.append((at, new))
        self._sums += new
        while len(self._counted) > 2 and self._counted[1][0] <= at - self._window:
            self._counted.popleft()
            self._sums -= self._counted[0][1]  # its entries came before it: the window begins here


def _entries(row: Row) -> set[int | str]:
    """Other software gives no tokens: there a new owner is an entry."""
    return {each.token or each.owner for each in row.holders}


@dataclass(frozen=True, slots=True)
class View:
    """What is known now."""

    scan: Scan | None = None
    """The last one that succeeded, its rows with rates; None before the first."""
    rate: float | None = None
    """Entries per second of all names together, at least; None before the second scan."""
    error: Exception | None = None
    """Why the last scan failed; None if it succeeded. A `GripfastError` if the store is to blame."""
    error_since: float = 0.0
    """When scans began to fail, by the clock of `Scan.at`."""
    number: int = 0
    """Grows with every scan, whether it succeeded or not."""


class Watcher:
    """Scans every `interval` seconds, on a thread of its own, one scan at a time. If a scan takes long, the next one
    begins later, so that the store is idle for at least as long as it was busy."""

    def __init__(
        self, scan: Callable[[], Scan], interval: float, on_view: Callable[[View], None] = lambda _: None
    ) -> None:
        """`on_view` is called with every new view, on the watcher's thread."""
        self.view = View()
        self.busy_since: float | None = None
        """When the scan that is under way began; None between two scans."""
        self._scan = scan
        self._interval = interval
        self._on_view = on_view
        self._rates = Rates()
        self._changed = threading.Condition()
        self._due = 0.0
        self._is_wanted = self._is_paused = self._is_closed = False

    def start(self) -> None:
        Background(self._run, "gripfast-watcher").start()

    def refresh(self) -> None:
        """Scan now, or right after the scan that is under way; even if it is paused."""
        with self._changed:
            self._is_wanted = True
            self._changed.notify_all()

    def pause(self, is_paused: bool) -> None:
        with self._changed:
            self._is_paused = is_paused
            self._changed.notify_all()

    def close(self) -> None:
        """Does not wait for a scan that is under way, whose store may not answer: its result is dropped."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def wait(self, after: int, timeout: float) -> View:
        """The view as soon as its number is above `after`; at the latest after the time-out, or when it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self.view.number > after or self._is_closed, timeout)
            return self.view

    def _run(self) -> None:
        while self._is_time():
            began = self.busy_since = time.monotonic()
            view = self._look()
            took, self.busy_since = time.monotonic() - began, None
            with self._changed:
                if self._is_closed:
                    return
                self.view, self._due = view, began + max(self._interval, 2 * took)
                self._changed.notify_all()
            self._on_view(view)

    def _is_time(self) -> bool:
        """Waits for the next scan. False if it is closed."""
        with self._changed:
            while not (self._is_closed or self._is_wanted) and (left := self._left()) > 0.0:
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            self._is_wanted = False
            return not self._is_closed

    def _left(self) -> float:
        return math.inf if self._is_paused else self._due - time.monotonic()

    def _look(self) -> View:
        last = self.view
        try:
            scan = self._scan()
        except Exception as error:
            since = last.error_since if last.error else time.monotonic()
            return replace(last, error=error, error_since=since, number=last.number + 1)
        rows, rate = self._rates.of(scan)
        return View(scan._replace(rows=rows), rate, number=last.number + 1)
