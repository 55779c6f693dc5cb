"""A story as text for a terminal: with colours or without, in ASCII if need be, and no wider than it may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from gripfast.columns import cells, clipped
from gripfast.errors import visible
from gripfast_lab.pictures.layout import HEADERS_EVERY, Layout, Round
from gripfast_lab.pictures.texts import wrapped
from gripfast_lab.story import Moment, Sign, Story

WIDTH_LEAST = 20
TEXT_LEAST = 26
"""Columns at the right of the lanes; with less, the text of a moment goes below it."""
LANE_MOST = 11
LANE_LEAST = 4
INDENT = 4
TIED = "\xa0"
"""A blank at which no line ends."""

RESET, BOLD, DIM, ALARM = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[1;31m"
CLIENTS = ("\x1b[34m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[36m")


class Signs(NamedTuple):
    marks: Mapping[Sign, str]
    lane: str
    bar: str
    both: str
    paused: str
    paused_bar: str
    down: str
    shaft: str
    crossing: str
    to_the_right: str
    to_the_left: str
    across: str
    more: str


_SAME: dict[Sign, str] = {"crash": "X", "slow": "~", "resume": ">"}
UNICODE = Signs(
    {**_SAME, "ask": "●", "enter": "●", "leave": "○", "refused": "⊘", "lost": "×", "pause": "‖", "restart": "↻",
     "jump": "↷", "cut": "≠", "time": "·", "other": "•"},
    "│", "█", "▓", "┊", "▒", " ", "─", "┼", "▶", "◀", "┄", "…",
)  # fmt: skip
ASCII = Signs(
    {**_SAME, "ask": "o", "enter": "o", "leave": "E", "refused": "0", "lost": "x", "pause": "=", "restart": "R",
     "jump": "J", "cut": "/", "time": ".", "other": "*"},
    "|", "#", "%", ":", "H", " ", "-", "+", ">", "<", ".", "~",
)  # fmt: skip
MEANT: Mapping[Sign, str] = {
    "leave": "ends", "refused": "refused", "pause": "paused", "resume": "goes on", "crash": "crashed",
    "restart": "restarted", "jump": "clock jumped", "cut": "cut off", "slow": "slow",
}  # fmt: skip


class Cell(NamedTuple):
    char: str
    style: str = ""


Line = list[Cell]


def drawn(story: Story, width: int, colour: bool, ascii_only: bool = False) -> str:
    return "\n".join(_Sheet(story, max(width, WIDTH_LEAST), colour, ASCII if ascii_only else UNICODE).lines())


def _in_ascii(text: str) -> str:
    return text.replace("→", "->").encode("ascii", "replace").decode()


class _Sheet:
    def __init__(self, story: Story, width: int, colour: bool, signs: Signs) -> None:
        self._story = story
        self._layout = layout = Layout(story)
        self._width = width
        self._signs = signs
        digits = len(str(layout.length))
        seconds = max([0, *(len(layout.seconds(moment)) for moment in story.moments)])
        self._margin = digits + 3
        self._seconds = seconds + 1 if seconds else 0
        self._step = self._lane_width(width - self._margin - self._seconds)
        self._lanes = self._step * len(layout.lanes)
        room = width - self._margin - self._seconds - self._lanes - 1
        # Lanes without end can't be drawn: lines are cut, and nothing else may be in them then.
        self._is_cut = self._margin + self._seconds + self._lanes > width
        self._has_colour = colour and not self._is_cut
        self._is_beside = room >= TEXT_LEAST
        self._room = room if self._is_beside else width - INDENT

    def _lane_width(self, room: int) -> int:
        names = [cells(visible(lane.name)) + 2 for lane in self._layout.lanes]
        tokens = [2 * len(str(bar.token)) + 4 for bar, _ in self._layout.bars if bar.token is not None]
        wanted = min(max([6, *names, *tokens]), LANE_MOST)
        fits = (room - TEXT_LEAST - 1) // max(1, len(self._layout.lanes))
        return max(LANE_LEAST, min(wanted, fits))

    def lines(self) -> Iterator[str]:
        for line in self._wrapped(self._story.title, self._width):
            yield self._painted(line, BOLD)
        yield ""
        yield self._header()
        for place, moment in enumerate(self._story.moments):
            if place and place % HEADERS_EVERY == 0:
                yield self._header()
            yield from self._moment(place, moment)
        yield from self._end()

    def _header(self) -> str:
        names = "".join(self._name(place) for place in range(len(self._layout.lanes)))
        return self._cut(" " * (self._margin + self._seconds) + names)

    def _name(self, place: int) -> str:
        name = self._clipped(self._layout.lanes[place].name, self._step - 1)
        left = max(0, self._step // 2 - (cells(name) - 1) // 2)
        padded = " " * left + name
        return self._painted(padded + " " * (self._step - cells(padded)), BOLD + self._colour(place))

    # Moments ----------------------------------------------------------------------------------------------------------

    def _moment(self, place: int, moment: Moment) -> Iterator[str]:
        is_wrong = place in self._layout.wrong_moments
        texts = self._wrapped(moment.text, self._room)
        told = [self._painted(text, ALARM if is_wrong else "") for text in texts]
        told += self._notes(place)
        drawings = list(self._drawings(place, moment))
        margin = self._margin_of(place, moment, is_wrong)
        if not self._is_beside:
            for drawing in drawings:
                yield self._cut(margin + self._joined(drawing))
                margin = " " * (self._margin + self._seconds)
            yield from (" " * INDENT + text for text in told)
            return
        drawings += [self._lanes_after(place)] * (len(told) - len(drawings))
        told += [""] * (len(drawings) - len(told))
        for drawing, text in zip(drawings, told, strict=True):
            yield (margin + self._joined(drawing) + " " + text).rstrip()
            margin = " " * (self._margin + self._seconds)

    def _notes(self, place: int) -> list[str]:
        """What the picture has no room for."""
        starting = [overlap for overlap in self._layout.overlaps if overlap.begins == place]
        notes = [self._painted(f"{self._signs.both} {overlap.label}", ALARM) for overlap in starting]
        for bar, _ in self._layout.bars:
            is_told = str(bar.token) in self._story.moments[place].text or len(str(bar.token)) <= self._token_room
            if bar.begins == place and bar.token is not None and not is_told:
                is_wrong = bar in self._layout.wrong_tokens
                notes.append(self._painted(self._clipped(f"token {bar.token}", self._room), ALARM if is_wrong else ""))
        return notes

    @property
    def _token_room(self) -> int:
        return self._step - self._step // 2 - 2

    def _margin_of(self, place: int, moment: Moment, is_wrong: bool) -> str:
        number = f"{place + 1:>{self._margin - 3}}"
        flag = self._painted("!", ALARM) if is_wrong else " "
        seconds = f"{self._layout.seconds(moment):>{self._seconds}}" if self._seconds else ""
        return f"{number} {flag}{self._painted(seconds, DIM)} "

    def _drawings(self, place: int, moment: Moment) -> Iterator[Line]:
        """One line, or one for each round of messages; and one more where a hold begins, to have its token on it."""
        rounds = self._layout.rounds(moment)
        for each in rounds:
            line = self._lanes_after(place)
            self._draw_round(line, each)
            self._draw_mark(line, each.start, self._sign_of(place, moment, each.start))
            yield line
        if not rounds:
            line = self._lanes_after(place)
            if moment.lane in self._layout.place:
                self._draw_mark(line, moment.lane, moment.sign)
            else:
                self._draw_across(line)
            yield line
        if any(bar.begins == place for bar, _ in self._layout.bars):
            yield self._with_tokens(place)

    def _sign_of(self, place: int, moment: Moment, asker: str) -> Sign:
        """All who ask in one moment are refused together, but for those who have the lock."""
        is_refused = moment.sign == "refused" and not self._layout.is_held(asker, place)
        is_its_own = moment.lane == asker and moment.sign != "lost"  # the arrow shows that
        return moment.sign if is_refused or is_its_own else "ask"

    def _lanes_after(self, place: int) -> Line:
        line = [Cell(" ")] * self._lanes
        for number, lane in enumerate(self._layout.lanes):
            line[self._centre(number)] = self._state(number, lane.name, place)
        return line

    def _state(self, number: int, lane: str, place: int) -> Cell:
        signs, absent = self._signs, self._layout.absent(lane, place)
        if self._layout.is_held(lane, place):
            if any(
                lane in overlap.lanes and overlap.begins <= place < overlap.ends for overlap in self._layout.overlaps
            ):
                return Cell(signs.both, ALARM)
            return Cell(signs.paused_bar if absent else signs.bar, self._colour(number))
        return Cell({"paused": signs.paused, "down": signs.down, "": signs.lane}[absent], DIM)

    def _with_tokens(self, place: int) -> Line:
        line = self._lanes_after(place)
        for bar, _ in self._layout.bars:
            if bar.begins == place and bar.token is not None:
                number = self._layout.place[bar.lane]
                style = ALARM if bar in self._layout.wrong_tokens else self._colour(number)
                token = str(bar.token) if len(str(bar.token)) <= self._token_room else ""
                self._write(line, self._centre(number) + 1, token, style)
        return line

    def _draw_mark(self, line: Line, lane: str, sign: Sign) -> None:
        number = self._layout.place[lane]
        style = ALARM if sign in ("crash", "lost") else self._colour(number)
        line[self._centre(number)] = Cell(self._signs.marks[sign], style)

    def _draw_across(self, line: Line) -> None:
        for x, cell in enumerate(line):
            if cell.char == " ":
                line[x] = Cell(self._signs.across, DIM)

    def _draw_round(self, line: Line, each: Round) -> None:
        """There and back on one line: the heads tell what arrived."""
        signs, start = self._signs, self._centre(self._layout.place[each.start])
        for arrow in each.arrows:
            end = self._centre(self._layout.place[arrow.end])
            side = 1 if end > start else -1
            for x in range(start + side, end, side):
                if line[x].char in (" ", signs.lane, signs.down):
                    line[x] = Cell(signs.shaft if line[x].char == " " else signs.crossing)
            head = signs.to_the_right if side == 1 else signs.to_the_left
            line[end - side] = Cell(signs.marks["lost"], ALARM) if arrow.is_lost else Cell(head)
            if arrow.is_back_lost:
                line[end - 2 * side] = Cell(signs.marks["lost"], ALARM)
            elif arrow.back:
                line[start + side] = Cell(signs.to_the_left if side == 1 else signs.to_the_right)

    # The end ----------------------------------------------------------------------------------------------------------

    def _end(self) -> Iterator[str]:
        story = self._story
        if story.moments:
            yield self._cut(
                " " * (self._margin + self._seconds) + self._joined(self._lanes_after(self._layout.length - 1))
            )
        legend = wrapped(self._legend(), self._width)
        yield from (self._painted(line.replace(TIED, " "), DIM) for line in legend if line)
        if story.goes_on:
            yield ""
            yield from self._wrapped(f"And so on: {story.goes_on}", self._width)
        if story.broken is not None:
            yield ""
            yield self._painted(f"Broken: {self._clipped(story.broken.rule, self._width - 8)}", ALARM)
            yield from self._wrapped(story.broken.text, self._width)

    def _legend(self) -> str:
        """Only of what there is."""
        signs, layout = self._signs, self._layout
        used = {moment.sign for moment in self._story.moments}
        parts = [f"{signs.bar} {self._story.verbs[0]}"] if layout.bars else []
        parts += [f"{signs.both} {overlap.label}" for overlap in layout.overlaps[:1]]
        parts += [f"{signs.marks[kind]} {word}" for kind, word in MEANT.items() if kind in used]
        arrows = [arrow for moment in self._story.moments for arrow in moment.arrows]
        if "lost" in used or any(arrow.is_lost or arrow.is_back_lost for arrow in arrows):
            parts.append(signs.marks["lost"] + " lost")
        return "   ".join(part.replace(" ", TIED) for part in parts)

    # Letters ----------------------------------------------------------------------------------------------------------

    def _centre(self, number: int) -> int:
        return number * self._step + self._step // 2

    def _colour(self, number: int) -> str:
        return CLIENTS[number % len(CLIENTS)] if number < len(self._layout.clients) else ""

    def _write(self, line: Line, x: int, text: str, style: str) -> None:
        for offset, char in enumerate(text):
            line[x + offset] = Cell(char, style)

    def _joined(self, line: Line) -> str:
        runs = groupby(line, key=lambda cell: cell.style)
        return "".join(self._painted("".join(cell.char for cell in run), style) for style, run in runs)

    def _wrapped(self, text: str, width: int) -> list[str]:
        return wrapped(self._plain(text), width)

    def _clipped(self, text: str, width: int) -> str:
        plain = self._plain(text)
        return plain if cells(plain) <= width else clipped(plain, width)[:-1] + self._signs.more

    def _plain(self, text: str) -> str:
        return _in_ascii(visible(text)) if self._signs is ASCII else visible(text)

    def _painted(self, text: str, style: str) -> str:
        return f"{style}{text}{RESET}" if style and self._has_colour and text else text

    def _cut(self, line: str) -> str:
        return self._clipped(line, self._width) if self._is_cut else line.rstrip()
