"""Texts in lines that fit."""

from __future__ import annotations

from collections.abc import Iterator

from gripfast.columns import cells, head


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
            part = head(rest, width) or rest[0]
            yield part
            rest = rest[len(part) :]
        yield rest
