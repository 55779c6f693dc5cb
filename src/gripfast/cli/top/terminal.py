"""The terminal: drawn on as a whole, read key by key, and left as it was on every way out.

Signals are read like keys, from a pipe that Python writes their numbers to. So nothing is interrupted half-way, and the
terminal is restored in one place. The main thread never waits for anything but this: it answers at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
from collections.abc import Sequence
from types import FrameType
from typing import Any

from gripfast.cli.signals import ENDING, Interrupted
from gripfast.cli.top.keys import Keys

SEQUENCE_PATIENCE = 0.1
"""Seconds in which the rest of a key's sequence must come, over a slow line, too. After that it was the escape key."""
_HEARD = [*ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT]

# The other screen, no cursor, no wrapping at the right margin, pastes marked as such.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h"
_LEAVE = "\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"


class Terminal:
    """`with Terminal() as terminal:` in the main thread."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._keys = Keys()
        self._drawn: list[str] = []
        self._ending = 0

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines. A terminal that does not know its size has the usual one."""
        columns, lines = os.get_terminal_size(self._out)
        return columns or 80, lines or 24

    def __enter__(self) -> Terminal:
        self._saved = termios.tcgetattr(self._in)
        self._bell, self._ring = os.pipe()
        for end in (self._bell, self._ring):
            os.set_blocking(end, False)
        self._old_wakeup = signal.set_wakeup_fd(self._ring, warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, self._heard) for number in _HEARD}
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._shut()
        finally:
            for number, handler in self._old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._old_wakeup)
            ends, self._ring = (self._bell, self._ring), -1
            for end in ends:
                os.close(end)

    def wake(self) -> None:
        """From any thread: `next()` returns."""
        with contextlib.suppress(OSError):  # full: it wakes anyway; closed: nobody listens
            os.write(self._ring, b"\0")

    def next(self, timeout: float) -> list[str]:
        """The keys that have come, after at most so many seconds. Raises Interrupted when a signal asks to end."""
        if self._keys.is_waiting:
            timeout = min(timeout, SEQUENCE_PATIENCE)
        ready, _, _ = select.select([self._in, self._bell], [], [], timeout)
        if self._bell in ready:
            self._answer(os.read(self._bell, 4096))
        if self._in in ready:
            return self._read()
        return [] if ready else self._keys.flush()

    def draw(self, lines: Sequence[str]) -> None:
        """Only lines that have changed are written."""
        old = self._drawn + [""] * (len(lines) - len(self._drawn))
        changed = (
            f"\x1b[{number};1H\x1b[0m\x1b[2K{line}"
            for number, (line, before) in enumerate(zip(lines, old, strict=False), 1)
            if line != before
        )
        self._write("".join(changed))
        self._drawn = list(lines)

    def redraw(self) -> None:
        """The next picture is written as a whole."""
        self._write("\x1b[0m\x1b[2J")
        self._drawn = []

    def _read(self) -> list[str]:
        try:
            data = os.read(self._in, 4096)
        except OSError:
            data = b""
        if not data:  # nobody is there any more
            raise Interrupted(signal.SIGHUP)
        return self._keys.feed(data)

    def _heard(self, signum: int, _: FrameType | None) -> None:
        """The number is on its way through the pipe. A second request to end does not wait for it: the first may stand
        behind a terminal that takes no output."""
        if signum in ENDING:
            if self._ending:
                raise Interrupted(signum)
            self._ending = signum

    def _answer(self, numbers: bytes) -> None:
        if self._ending:
            raise Interrupted(self._ending)
        if signal.SIGTSTP in numbers:
            self._stop()
        elif signal.SIGCONT in numbers:
            self._open()
        elif signal.SIGWINCH in numbers:
            self.redraw()

    def _stop(self) -> None:
        """As the system would have done it; when it goes on, the terminal may look like anything."""
        self._shut()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self._saved = termios.tcgetattr(self._in)
        self._open()

    def _open(self) -> None:
        termios.tcsetattr(self._in, termios.TCSADRAIN, _raw(self._saved))
        self._write(_ENTER)
        self.redraw()

    def _shut(self) -> None:
        """A terminal that is gone needs no restoring."""
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self._in, termios.TCSANOW, self._saved)
            self._write(_LEAVE)

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "utf-8", "replace")
        while data:
            data = data[os.write(self._out, data) :]


def _raw(saved: list[Any]) -> list[Any]:
    """Key by key, no echo, and Ctrl-S stops nothing. Ctrl-C and Ctrl-Z stay signals."""
    flags = [*saved]
    flags[0] &= ~(termios.IXON | termios.ICRNL)
    flags[3] &= ~(termios.ICANON | termios.ECHO)
    flags[6] = [*saved[6]]
    flags[6][termios.VMIN], flags[6][termios.VTIME] = 1, 0
    return flags
