"""A terminal for the tests: what is run on it finds a controlling terminal, and its keys send signals."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from support.waiting import until

_TAKE_TERMINAL = """\
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
CTRL_C, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x1a", "\x1c"


class Terminal:
    def __init__(self, command: Sequence[str], columns: int) -> None:
        self._keyboard, at_process = os.openpty()
        fcntl.ioctl(at_process, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.set_blocking(self._keyboard, False)
        take = [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL]
        self.process = subprocess.Popen([*take, *command], stdin=at_process, stdout=at_process, stderr=at_process)
        os.close(at_process)
        self.pid = self.process.pid
        self._seen = b""

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def screen(self) -> str:
        """Everything that was written on it so far."""
        try:
            while chunk := os.read(self._keyboard, 65536):
                self._seen += chunk
        except OSError:
            pass  # nothing more yet, or everyone has left
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    def shows(self, pattern: str, within: float = 15.0) -> re.Match[str]:
        """Waits until the text is there."""
        try:
            return until(lambda: re.search(pattern, self.screen()), within)
        except AssertionError:
            raise AssertionError(f"{pattern!r} did not come up on {self.screen()!r}") from None

    def status(self) -> int:
        until(lambda: self.screen() is not None and self.process.poll() is not None, within=15)
        self.screen()  # its last words, which may have come after the last look
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._keyboard)


@contextmanager
def on_terminal(*command: str, columns: int = 200) -> Iterator[Terminal]:
    terminal = Terminal(command, columns)
    try:
        yield terminal
    finally:
        terminal.close()
