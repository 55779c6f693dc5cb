"""Where everything of an SVG picture is, in pixels.

Letters are taken to be rather wide, because nobody knows which fonts a reader has: a text may get too much room, never
too little.
"""

from __future__ import annotations

from dataclasses import dataclass

from gripfast.columns import cells, clipped
from gripfast.errors import visible
from gripfast_lab.pictures.layout import HEADERS_EVERY, Layout, Overlap, Round
from gripfast_lab.pictures.texts import wrapped
from gripfast_lab.story import Arrow, Bar, Lane, Moment

BAR = 22.0
HEADER = 26.0
LINE_STEP = 13.0
TEXT_STEP = 18.0
CODE = 6.8
"""Pixels a letter, of the small letters on arrows and pills."""
TEXT = 7.4
"""And of those at the right, but for capitals."""
CAPITAL = 9.0
TEXT_CELLS = 44
TITLE = 9.2

BRIEF_CELLS = 14
NODE_BRIEF_CELLS = 11
LABEL_CELLS = 26
NAME_CELLS = 18
MANY = 40
TAIL = 30.0
WIDTH_LEAST = 560.0


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    moment: Moment
    top: float
    height: float
    mark_y: float
    begin_y: float
    """Where a hold begins: its request was answered."""
    rounds: list[Round]
    ys: list[tuple[float, float]]
    """Of the requests and the answers of each round."""
    brief: list[str]
    text: list[str]


def _told(moment: Moment) -> list[str]:
    return wrapped(visible(moment.text), TEXT_CELLS)


def _width(line: str) -> float:
    capitals = sum(char.isupper() for char in line)
    return cells(line) * TEXT + capitals * (CAPITAL - TEXT)


class Grid:
    def __init__(self, layout: Layout, has_title: bool) -> None:
        self._layout = layout
        self._has_title = has_title
        self._place_lanes()
        self._place_rows()
        self._place_end()

    # From left to right -----------------------------------------------------------------------------------------------

    def _place_lanes(self) -> None:
        """Equal steps from client to client and from node to node; between the two, room for what messages say."""
        layout = self._layout
        clients, nodes = self._client_step(), self._node_step()
        seconds = [cells(layout.seconds(moment)) for moment in layout.story.moments]
        self.left = 56.0 + (max(seconds) * CODE + 12 if any(seconds) else 0)
        x = self.left + clients / 2
        self.x: dict[str, float] = {}
        for lane in layout.clients:
            self.x[lane.name] = x
            x += clients
        gap_left = x - clients + BAR / 2 if layout.clients else self.left
        gap = self._gap()
        x = gap_left + gap + (nodes / 2 if len(layout.nodes) > 1 else 0)
        for lane in layout.nodes:
            self.x[lane.name] = x
            x += nodes
        self.middle = gap_left + gap / 2
        self.right = (x - nodes / 2 if layout.nodes else gap_left + gap) + 8
        self.text_x = self.right + 14
        longest = max([0.0, *(_width(line) for moment in layout.story.moments for line in _told(moment))])
        self.width = max(WIDTH_LEAST, self.text_x + longest + 20)

    def _client_step(self) -> float:
        names = [self.name_width(lane) for lane in self._layout.clients]
        pills = [self.pill_width(bar) for bar, _ in self._layout.bars]
        briefs = [
            self.width_of(self.brief(moment)) + BAR + 20
            for moment in self._layout.story.moments
            if self._is_client(moment.lane)
        ]
        return max([112.0, *(width + 16 for width in names + pills), *briefs])

    def _node_step(self) -> float:
        layout, needed = self._layout, [62.0]
        needed += [self.name_width(lane) + 14 for lane in layout.nodes]
        for moment in layout.story.moments:
            if moment.lane in layout.place and not self._is_client(moment.lane):
                needed.append(self.width_of(self.brief(moment)) + 10)
            for each in layout.rounds(moment):
                if len(each.arrows) > 1:
                    needed += [self.width_of(self.label_lines(arrow.back)) + 18 for arrow in each.arrows]
                elif not self._crosses_gap(each):
                    needed.append(self.width_of(self.label_lines(each.text)) + 30)
        return max(needed)

    def _gap(self) -> float:
        needed = [110.0]
        for moment in self._layout.story.moments:
            if moment.lane not in self._layout.place:
                needed.append(self.width_of(self.brief(moment)) + 60)
            for each in self._layout.rounds(moment):
                texts = [each.text, *(arrow.back for arrow in each.arrows)]
                needed += [self.width_of(self.label_lines(text)) + 50 for text in texts]
        return max(needed)

    def _is_client(self, lane: str) -> bool:
        return self._layout.place.get(lane, -1) in range(len(self._layout.clients))

    def _crosses_gap(self, each: Round) -> bool:
        return any(self._is_client(each.start) != self._is_client(arrow.end) for arrow in each.arrows)

    def label_x(self, each: Round) -> float:
        """The middle of what a request says: between clients and nodes if it goes from these to those."""
        if self._crosses_gap(each):
            return self.middle
        return (self.x[each.start] + self.x[each.arrows[0].end]) / 2

    def back_x(self, each: Round, arrow: Arrow) -> float:
        """The middle of what an answer says: where the request is told, or beside its node, if there are several."""
        if len(each.arrows) == 1:
            return self.label_x(each)
        side = -1 if self.x[arrow.end] > self.x[each.start] else 1
        return self.x[arrow.end] + side * (self.width_of(self.label_lines(arrow.back)) / 2 + 9)

    def lost_x(self, each: Round, begins: float, to_the_right: bool) -> float:
        """Where an answer is lost."""
        if len(each.arrows) > 1 or not self._crosses_gap(each):
            return begins + (20 if to_the_right else -20)
        reach = (begins - self.middle) * 1.5
        return begins - reach

    # From top to bottom -----------------------------------------------------------------------------------------------

    def _place_rows(self) -> None:
        layout = self._layout
        title = wrapped(visible(layout.story.title), int((self.width - 40) / TITLE))
        self.title = title if self._has_title else []
        self.note = f"{layout.length} moments, from top to bottom" if layout.length > MANY else ""
        self.title_bottom = (30.0 if self.title else 20.0) + 20 * len(self.title) + (20 if self.note else 0)
        self.headers = [self.title_bottom]
        self.top = y = self.title_bottom + HEADER
        y += 6
        self.rows: list[Row] = []
        for place, moment in enumerate(layout.story.moments):
            if place and place % HEADERS_EVERY == 0:
                self.headers.append(y + 8)
                y += HEADER + 16
            row = self._row(place, moment, y)
            self.rows.append(row)
            y += row.height
        self.bottom = y + TAIL

    def _row(self, place: int, moment: Moment, top: float) -> Row:
        rounds, ys, y = self._layout.rounds(moment), [], top + 7
        for each in rounds:
            ask_y = back_y = y + self._lines(each.text) * LINE_STEP + 6
            if each.is_answered:
                back_y += max(1, *(self._lines(arrow.back) for arrow in each.arrows)) * LINE_STEP + 6
            ys.append((ask_y, back_y))
            y = back_y + 4
        mark_y, begin_y = (ys[0][0], ys[-1][1] + 5) if ys else (top + 17, top + 17)
        brief = self.brief(moment)
        text = _told(moment)
        needed = [34.0, begin_y + 10 - top, len(text) * TEXT_STEP + 12]
        under = 20 if self._layout.place.get(moment.lane, 0) >= len(self._layout.clients) else 10
        needed += [mark_y - top + under + len(brief) * LINE_STEP] if brief else []
        needed += [begin_y - top + self._pill_room(bar) for bar in self._beginning(place)]
        return Row(place + 1, moment, top, max(needed), mark_y, begin_y, rounds, ys, brief, text)

    def _beginning(self, place: int) -> list[Bar]:
        return [bar for bar, _ in self._layout.bars if bar.begins == place]

    def _pill_room(self, bar: Bar) -> float:
        begins = any(overlap.begins == bar.begins for overlap in self._layout.overlaps)
        return len(self.pill_lines(bar)) * LINE_STEP + (46 if begins else 22)

    def _lines(self, text: str) -> int:
        return len(self.label_lines(text))

    def _place_end(self) -> None:
        story, y = self._layout.story, self.bottom + 10
        letters = int((self.width - 70) / TEXT)
        self.goes_on = wrapped(f"and so on: {visible(story.goes_on)}", letters) if story.goes_on else []
        if self.goes_on:
            y += 22 + TEXT_STEP * len(self.goes_on)
        self.broken_y = y + 6
        self.broken = wrapped(visible(story.broken.text), letters) if story.broken else []
        self.broken_height = TEXT_STEP * (1 + len(self.broken)) + 2
        self.height = self.broken_y + (self.broken_height + 18 if story.broken else 8)

    def y_at(self, moment: int) -> float:
        """Of what happens in this moment; the one after the last is the end of the lanes."""
        return self.rows[moment].mark_y if moment < len(self.rows) else self.bottom

    def span_y(self, begins: int, ends: int) -> tuple[float, float]:
        return self.rows[begins].begin_y, self.y_at(ends)

    def pill_y(self, bar: Bar) -> float:
        return self.rows[bar.begins].begin_y + 8

    def label_y(self, overlap: Overlap, top: float) -> float:
        """Below the pills of those who begin where the overlap does."""
        pills = [len(self.pill_lines(bar)) for bar in self._beginning(overlap.begins)]
        return top + 8 + max([0, *pills]) * LINE_STEP + 11

    # Texts ------------------------------------------------------------------------------------------------------------

    def brief(self, moment: Moment) -> list[str]:
        """A word or two beside a sign, unless arrows or a bar say it."""
        if moment.arrows or moment.sign == "enter":
            return []
        is_node = moment.lane in self._layout.place and not self._is_client(moment.lane)
        text = moment.brief or ("" if moment.lane in self._layout.place else moment.text)
        return wrapped(visible(text), NODE_BRIEF_CELLS if is_node else BRIEF_CELLS)[:3] if text else []

    def label_lines(self, text: str) -> list[str]:
        return wrapped(visible(text), LABEL_CELLS) if text else []

    def width_of(self, lines: list[str]) -> float:
        return max([0.0, *(cells(each) * CODE for each in lines)])

    def pill_lines(self, bar: Bar) -> list[str]:
        holds = f"{clipped(visible(bar.lane), NAME_CELLS)} {self._layout.story.verbs[0]}"
        return [holds] if bar.token is None else [holds, f"token {bar.token}"]

    def pill_width(self, bar: Bar) -> float:
        return self.width_of(self.pill_lines(bar)) + 14

    def name(self, lane: Lane) -> str:
        return clipped(visible(lane.name), NAME_CELLS)

    def name_width(self, lane: Lane) -> float:
        return max(44.0, cells(self.name(lane)) * 8.0 + 20)
