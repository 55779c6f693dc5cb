"""Lines of styled text, and columns: which of them fit, and how wide they are.

No character of somebody else's text may steer the terminal, or shift what stands right of it. So every text goes
through `visible()` on its way into a line, and each piece is put at its own column: if a terminal draws a character
wider than we believe, only this piece looks odd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from gripfast.columns import cells, clipped, head
from gripfast.errors import visible

GAP = 2
BOLD, DIM, UNDERLINED, REVERSE, RED, GREEN, YELLOW, CYAN = "1", "2", "4", "7", "31", "32", "33", "36"
_COLOURS = {RED, GREEN, YELLOW, CYAN}

T = TypeVar("T")


class Piece(NamedTuple):
    at: int
    text: str
    style: str = ""


class Line(NamedTuple):
    pieces: Sequence[Piece] = ()
    style: str = ""
    """Of the whole line, from margin to margin."""


def line(*texts: str | tuple[str, str], style: str = "") -> Line:
    """Texts one after another, each with its style or without."""
    pieces, at = [], 0
    for text, of_text in (each if isinstance(each, tuple) else (each, "") for each in texts):
        pieces.append(Piece(at, visible(text), of_text))
        at += cells(pieces[-1].text)
    return Line(pieces, style)


def painted(given: Line, width: int, with_colours: bool = True) -> str:
    """What to send to a terminal whose cursor is at the left margin."""
    begin = _sgr(given.style, with_colours)
    parts = [begin + " " * width if given.style else ""]
    for at, text, style in given.pieces:
        if at < width:
            set_style = begin + _sgr(style, with_colours) if style else begin
            parts.append(f"\x1b[{at + 1}G{set_style}{clipped(visible(text), width - at)}\x1b[0m")
    return "".join(parts) + ("\x1b[0m" if given.style else "")


def _sgr(style: str, with_colours: bool) -> str:
    codes = [code for code in style.split(";") if code and (with_colours or code not in _COLOURS)]
    return f"\x1b[{';'.join(codes)}m" if codes else ""


@dataclass(frozen=True)
class Column(Generic[T]):
    heading: str
    text: Callable[[T], str]
    least: int
    """Columns of the terminal that it needs to be of use."""
    rank: int
    """Those with small ones stay when there is little room."""
    is_right: bool = False
    style: Callable[[T], str] = lambda _: ""
    order: str = ""
    """What the rows can be sorted by."""
    keeps_end: bool = False
    """What does not fit is cut in the middle: names often differ at their ends."""
    is_extra: bool = False
    """Only if the others have all the room that they need."""


class Placed(NamedTuple, Generic[T]):
    column: Column[T]
    at: int
    width: int

    def piece(self, text: str, style: str = "") -> Piece:
        text = (_without_middle if self.column.keeps_end else clipped)(visible(text), self.width)
        shift = self.width - cells(text) if self.column.is_right else 0
        return Piece(self.at + shift, text, style)


def _without_middle(text: str, width: int) -> str:
    if cells(text) <= width or width < 3:
        return clipped(text, width)
    end = head(text[::-1], width // 2)[::-1]
    return f"{head(text, width - 1 - cells(end))}…{end}"


def placed(columns: Sequence[Column[T]], items: Iterable[T], width: int, at: int = 0) -> list[Placed[T]]:
    """As many as fit, in the given order, from `at` to `width`. What room is left goes to the narrowest that needs it,
    so that one long text does not take it all."""
    needs = _needs(columns, items)
    widths: dict[str, int] = {}
    left = width - at + GAP
    for column in sorted(columns, key=lambda column: (column.is_extra, column.rank)):
        if column.is_extra:
            left = _grown(widths, needs, left)
        least = needs[column.heading] if column.is_extra else min(column.least, needs[column.heading])
        if least + GAP <= left or not widths:
            widths[column.heading] = least
            left -= least + GAP
    _grown(widths, needs, left)
    return list(_in_a_row(columns, widths, at))


def _grown(widths: dict[str, int], needs: dict[str, int], left: int) -> int:
    """The room that is left then."""
    while left > 0 and (growing := [each for each in widths if widths[each] < needs[each]]):
        widths[min(growing, key=lambda each: widths[each])] += 1
        left -= 1
    return left


def _needs(columns: Sequence[Column[T]], items: Iterable[T]) -> dict[str, int]:
    items = list(items)
    return {
        column.heading: max(
            [cells(column.heading) + bool(column.order), *(cells(visible(column.text(item))) for item in items)]
        )
        for column in columns
    }


def _in_a_row(columns: Sequence[Column[T]], widths: dict[str, int], at: int) -> Iterable[Placed[T]]:
    for column in columns:
        if column.heading in widths:
            yield Placed(column, at, widths[column.heading])
            at += widths[column.heading] + GAP
