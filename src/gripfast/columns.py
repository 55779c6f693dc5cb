"""How many columns of a terminal a text takes, and as much of it as fits."""

from __future__ import annotations

import unicodedata


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
    return head(text, width - 1) + "…" if width else ""


def head(text: str, width: int) -> str:
    """As much as fits."""
    used = 0
    for place, char in enumerate(text):
        used += _width(char)
        if used > width:
            return text[:place]
    return text
