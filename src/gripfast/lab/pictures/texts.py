"""Texts of others, made fit to be shown, and how much room they take."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from gripfast.errors import visible as visible


def cells(text: str) -> int:
    """Columns of equal width: wide characters take two, those that join the one before take none."""
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clipped(text: str, width: int) -> str:
    """As much as fits, with a sign if that is not all."""
    if cells(text) <= width:
        return text
    return _head(text, width - 1) + "…" if width else ""


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most so many columns, broken at blanks where there are some."""
    lines: list[str] = []
    line = ""
    for word in _words(text, width):
        if line and cells(line) + 1 + cells(word) > width:
            lines.append(line.rstrip())
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line.rstrip()]


def _words(text: str, width: int) -> Iterator[str]:
    for word in text.split(" "):
        rest = word
        while cells(rest) > width:
            head = _head(rest, width) or rest[0]
            yield head
            rest = rest[len(head) :]
        yield rest


def _head(text: str, width: int) -> str:
    used = 0
    for place, char in enumerate(text):
        used += _width(char)
        if used > width:
            return text[:place]
    return text
