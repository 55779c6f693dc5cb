"""The loop: keys, signals and views come in, pictures go out. It never waits for the store: a thread looks at it, and
another one breaks what is to be broken."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

import gripfast
from gripfast.api.rows import Holder, Row, Scan, break_holders
from gripfast.api.watching import Watcher
from gripfast.cli.failure import redacted
from gripfast.cli.top.grid import painted
from gripfast.cli.top.picture import picture
from gripfast.cli.top.state import Break, State, Wish
from gripfast.cli.top.terminal import Terminal

TICK = 1.0
"""Seconds between two pictures if nothing happens: while the store does not answer, a picture counts the seconds."""


def live(client: gripfast.Client, scan: Callable[[], Scan], interval: float, state: State) -> None:
    """Until the user quits. Raises Interrupted when a signal asks to end."""
    logging.getLogger("gripfast").handlers = [logging.NullHandler()]  # a log line would be written into the picture
    with Terminal() as terminal:
        watcher = Watcher(scan, interval, lambda _: terminal.wake())
        watcher.start()
        try:
            _Session(client, state, watcher, terminal).run()
        finally:
            watcher.close()


class _Session:
    def __init__(self, client: gripfast.Client, state: State, watcher: Watcher, terminal: Terminal) -> None:
        self._client = client
        self._state = state
        self._watcher = watcher
        self._terminal = terminal
        self._with_colours = not os.environ.get("NO_COLOR")

    def run(self) -> None:
        while True:
            self._see()
            self._draw()
            for key in self._terminal.next(TICK):
                wish = self._state.press(key)
                if wish == "quit":
                    return
                self._grant(wish)

    def _see(self) -> None:
        view, since = self._watcher.view, self._watcher.busy_since
        self._state.silent_for = time.monotonic() - since if since else 0.0
        if view is not self._state.view:
            self._state.see(view)
        if view.error is not None and not isinstance(view.error, gripfast.GripfastError):
            raise view.error

    def _draw(self) -> None:
        width, height = self._terminal.size
        lines = picture(self._state, width, height)
        self._terminal.draw([painted(line, width, self._with_colours) for line in lines])

    def _grant(self, wish: Wish | None) -> None:
        if wish == "pause":
            self._watcher.pause(self._state.is_paused)
        elif wish == "refresh":
            self._terminal.redraw()
            self._watcher.refresh()
        elif isinstance(wish, Break):
            self._state.message = f"Breaking “{wish.row.name}” …"
            threading.Thread(target=self._break, args=(wish.row,), name="gripfast-break", daemon=True).start()

    def _break(self, row: Row) -> None:
        try:
            self._state.message = _told(row, break_holders(self._client, row))
        except gripfast.GripfastError as error:
            self._state.message = f"“{row.name}” was not released: {redacted(str(error))}"
        self._watcher.refresh()
        self._terminal.wake()


def _told(row: Row, hit: tuple[Holder, ...]) -> str:
    if not hit:
        return f"Nothing was changed: “{row.name}” is free, or has another holder by now."
    of = "" if row.kind == "lock" else f": {len(hit)} holder{'s' * (len(hit) != 1)} lost it"
    return f"“{row.name}” is released by force{of}."
