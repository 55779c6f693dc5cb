"""What a person sees on a terminal: a real one, whose output an emulator turns into a screen."""

import fcntl
import re
import struct
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyte

from cli.terminal import Terminal
from support.waiting import until


class _Emulated(pyte.Screen):
    """With faint text, which pyte does not know: it is grey here."""

    def select_graphic_rendition(self, *codes: int) -> None:
        super().select_graphic_rendition(*(90 if code == 2 else code for code in codes))


class Screen(Terminal):
    """`lines` and `columns` high and wide; `resize()` makes it another size."""

    def __init__(self, command: Sequence[str], columns: int, lines: int) -> None:
        super().__init__(command, columns)
        self._emulated = _Emulated(columns, lines)
        self._stream = pyte.ByteStream(self._emulated)
        self._fed = 0
        if lines != 24:
            self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        self._emulated.resize(lines, columns)
        fcntl.ioctl(self._keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def emulated(self) -> pyte.Screen:
        super().screen()
        self._stream.feed(self._seen[self._fed :])
        self._fed = len(self._seen)
        return self._emulated

    def rows(self) -> list[str]:
        """Without blanks at the right margin."""
        return [row.rstrip() for row in self.emulated().display]

    def sees(self, pattern: str, within: float = 20.0) -> re.Match[str]:
        """Waits until the text is on the screen, as it stands there now."""
        try:
            return until(lambda: re.search(pattern, "\n".join(self.rows()), re.MULTILINE), within)
        except AssertionError:
            shown = "\n".join(self.rows())
            raise AssertionError(f"{pattern!r} did not come up on\n{shown}") from None

    def never_sees(self, pattern: str) -> None:
        """Waits until it is gone."""
        until(lambda: not re.search(pattern, "\n".join(self.rows()), re.MULTILINE), 20.0)

    def style_of(self, text: str) -> pyte.screens.Char:
        """Of the first character of a text that is on the screen."""
        self.sees(re.escape(text))
        row, line = next((at, line) for at, line in enumerate(self.rows()) if text in line)
        return self.emulated().buffer[row][line.index(text)]

    def modes(self) -> list[object]:
        """How the terminal treats input and output: whoever changes it must restore it."""
        return termios.tcgetattr(self._keyboard)

    def is_restored(self, before: list[object]) -> bool:
        """The other screen is left, the cursor is seen, lines wrap, nothing is styled."""
        end = self.screen()[-80:]
        left = all(code in end for code in ("\x1b[?1049l", "\x1b[?25h", "\x1b[?7h", "\x1b[?2004l", "\x1b[0m"))
        return left and self.modes() == before


@contextmanager
def on_screen(*command: str, columns: int = 80, lines: int = 24) -> Iterator[Screen]:
    screen = Screen(command, columns, lines)
    try:
        yield screen
    finally:
        screen.close()
