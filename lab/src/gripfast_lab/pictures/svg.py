"""A story as one SVG picture that needs nothing else: its own background, for light and dark, text as text."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from gripfast.errors import visible
from gripfast_lab.pictures import colours
from gripfast_lab.pictures.grid import BAR, HEADER, LINE_STEP, TEXT_STEP, Grid, Row
from gripfast_lab.pictures.layout import Absence, Layout, Overlap, Round
from gripfast_lab.pictures.shapes import box, cross, element, head, line, lines_written, plain, sign, written
from gripfast_lab.story import Arrow, Bar, Lane, Story

SCOPE = "gripfast-story"
CLIENT_OFFSET = BAR / 2 + 2
NODE_OFFSET = 4.0


def drawn(story: Story, has_title: bool = True) -> str:
    """`has_title`: not if the title stands above it anyway."""
    return _Picture(story, has_title).svg()


class _Picture:
    def __init__(self, story: Story, has_title: bool) -> None:
        self._story = story
        self._layout = Layout(story)
        self._grid = Grid(self._layout, has_title)
        # Pictures may stand in one page: what is referred to needs names of its own.
        self._id = f"s{crc32(repr(story).encode(errors='backslashreplace')):08x}"

    def svg(self) -> str:
        grid, story = self._grid, self._story
        return element(
            "svg",
            element("title", plain(story.title), id=f"{self._id}-title"),
            element("desc", plain(self._description()), id=f"{self._id}-desc"),
            element("style", colours.css(SCOPE)),
            self._patterns(),
            box(0, 0, grid.width, grid.height, "page", 8),
            *self._parts(),
            class_=SCOPE,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {grid.width:g} {grid.height:g}",
            width=grid.width,
            height=grid.height,
            role="img",
            aria_labelledby=f"{self._id}-title {self._id}-desc",
        )

    def _description(self) -> str:
        """For whoever hears the picture: the whole story."""
        broken = self._story.broken
        told = [f"{place}. {moment.text}" for place, moment in enumerate(self._story.moments, 1)]
        ends = [f"Then again and again: {self._story.goes_on}"] if self._story.goes_on else []
        ends += [f"Broken: {broken.rule}. {broken.text}"] if broken else []
        return " ".join([*told, *ends])

    def _patterns(self) -> str:
        return element(
            "defs",
            self._pattern("alarm", line(0, 0, 0, 8, "hatch", 4), "rotate(45)"),
            self._pattern("still", line(0, 2, 8, 2, "page-halo", 3), "rotate(0)"),
        )

    def _pattern(self, name: str, inside: str, turned: str) -> str:
        units, id_ = "userSpaceOnUse", f"{self._id}-{name}"
        return element("pattern", inside, id=id_, width=8, height=8, patternUnits=units, patternTransform=turned)

    def _parts(self) -> Iterator[str]:
        """From the back to the front."""
        layout = self._layout
        yield from (self._stripe(row) for row in self._grid.rows)
        yield from (self._lane(lane) for lane in layout.lanes)
        yield from (self._zone(overlap) for overlap in layout.overlaps)
        for row in self._grid.rows:
            yield from (self._round(row, place, each) for place, each in enumerate(row.rounds))
        yield from (self._bar(bar) for bar, _ in layout.bars)
        yield from (self._stillness(absence) for absence in layout.absences)
        yield from (self._shared(overlap) for overlap in layout.overlaps)
        yield from (self._end_of(bar) for bar, _ in layout.bars)
        for row in self._grid.rows:
            yield self._mark(row)
            yield self._texts(row)
        yield from (self._pill(bar) for bar, _ in layout.bars)
        yield from (self._shared_label(overlap) for overlap in layout.overlaps)
        yield from (self._headers(y) for y in self._grid.headers)
        yield from self._frame()

    # What is behind ---------------------------------------------------------------------------------------------------

    def _ground(self, row: Row) -> str:
        """What is behind a row."""
        if row.number - 1 in self._layout.wrong_moments:
            return "alarmed"
        return "stripe" if row.number % 2 else "page"

    def _stripe(self, row: Row) -> str:
        return box(8, row.top, self._grid.width - 16, row.height, self._ground(row), 4)

    def _lane(self, lane: Lane) -> str:
        """A line, dotted where its owner is down."""
        x, grid = self._grid.x[lane.name], self._grid
        downs = [each.span for each in self._layout.absences if each.kind == "down" and each.span.lane == lane.name]
        parts, since = [], grid.top
        for span in downs:
            until = grid.y_at(span.begins)
            parts.append(line(x, since, x, until, "line", 2))
            since = grid.y_at(span.ends)
            parts.append(line(x, until, x, since, "line", 2, stroke_dasharray="1 6", stroke_linecap="round"))
        return "".join([*parts, line(x, since, x, grid.bottom, "line", 2) if since < grid.bottom else ""])

    def _zone(self, overlap: Overlap) -> str:
        """Behind all bars that overlap."""
        left, top, width, height = self._extent(overlap)
        if overlap.ends < self._layout.length:
            height -= 11  # not through the words that tell how it ends
        return box(left, top, width, height, "alarmed alarm-edge", 6, stroke_width=2, stroke_dasharray="6 4")

    def _extent(self, overlap: Overlap) -> tuple[float, float, float, float]:
        xs = [self._grid.x[lane] for lane in overlap.lanes]
        top, bottom = self._grid.span_y(overlap.begins, overlap.ends)
        return min(xs) - BAR, top, max(xs) - min(xs) + 2 * BAR, bottom - top

    # Holds ------------------------------------------------------------------------------------------------------------

    def _colour(self, lane: str) -> str:
        place = self._layout.place[lane]
        return colours.client(place) if place < len(self._layout.clients) else "plain"

    def _bar(self, bar: Bar) -> str:
        span = self._layout.span(bar)
        top, bottom = self._grid.span_y(span.begins, span.ends)
        x = self._grid.x[bar.lane] - BAR / 2
        return box(x, top, BAR, max(8.0, bottom - top), f"{self._colour(bar.lane)} edge", 4, stroke_width=1)

    def _end_of(self, bar: Bar) -> str:
        """Where no moment of its own tells of it: it ends because time has passed."""
        ends = self._layout.span(bar).ends
        if ends == self._layout.length or self._story.moments[ends].lane == bar.lane:
            return ""
        return sign("leave", self._grid.x[bar.lane], self._grid.y_at(ends))

    def _stillness(self, absence: Absence) -> str:
        """A pause: rungs in the colour of the page over lane and bar, in a dashed frame."""
        if absence.kind != "paused":
            return ""
        span, x = absence.span, self._grid.x[absence.span.lane]
        top, bottom = self._grid.y_at(span.begins), self._grid.y_at(span.ends)
        place = (x - BAR / 2 - 4, top, BAR + 8, bottom - top)
        rungs = box(*place, "", 4, fill=f"url(#{self._id}-still)", opacity=0.75)
        return rungs + box(*place, "open soft-edge", 4, stroke_width=1.5, stroke_dasharray="4 3")

    def _shared(self, overlap: Overlap) -> str:
        """Hatched, in each of the bars that overlap."""
        parts = []
        for lane, begins, ends in self._layout.shared(overlap):
            top, bottom = self._grid.span_y(begins, ends)
            place = (self._grid.x[lane] - BAR / 2, top, BAR, bottom - top)
            parts.append(box(*place, "alarm-edge", 4, fill=f"url(#{self._id}-alarm)", stroke_width=2))
        return "".join(parts)

    def _shared_label(self, overlap: Overlap) -> str:
        left, top, width, _ = self._extent(overlap)
        room = 9.0 * len(overlap.label)
        middle, y = left + width / 2, self._grid.label_y(overlap, top)
        label = box(middle - room / 2, y, room, 20, "label", 10)
        return label + written(middle, y + 14, overlap.label, "white small strong", "middle")

    def _pill(self, bar: Bar) -> str:
        """Who holds, and with which token; on the bar, so that it takes no colour to see whose it is."""
        lines = self._grid.pill_lines(bar)
        x, y = self._grid.x[bar.lane], self._grid.pill_y(bar)
        width, height = self._grid.pill_width(bar), len(lines) * LINE_STEP + 7.0
        is_wrong = bar in self._layout.wrong_tokens
        edge = "alarm-edge" if is_wrong else f"{self._colour(bar.lane)}-edge"
        frame = box(x - width / 2, y, width, height, f"page {edge}", 6, stroke_width=3 if is_wrong else 2)
        colour = "alarm strong" if is_wrong else "ink"
        first = written(x, y + 14, lines[0], "ink small strong", "middle")
        rest = lines_written(x, y + 14 + LINE_STEP, lines[1:], LINE_STEP, f"{colour} small", "middle")
        return frame + first + rest

    # Messages ---------------------------------------------------------------------------------------------------------

    def _round(self, row: Row, place: int, each: Round) -> str:
        ask_y, back_y = row.ys[place]
        answers = self._answers(row, each, back_y) if each.is_answered else ""
        busy = (self._activity(arrow, ask_y, back_y) for arrow in each.arrows if not arrow.is_lost)
        return "".join([self._requests(row, each, ask_y), answers, *busy])

    def _requests(self, row: Row, each: Round, y: float) -> str:
        """One line as far as it goes, and on it a head or a cross for everyone it is sent to."""
        start, shafts, ends = self._grid.x[each.start], [], []
        for arrow in self._nearest_first(each):
            to_the_right = self._grid.x[arrow.end] >= start
            x = self._end(arrow.end, to_the_right) + (0 if not arrow.is_lost else -16 if to_the_right else 16)
            shafts.append(self._shaft(row, self._end(each.start, not to_the_right), x, y, "edge"))
            ends.append(cross(x, y) if arrow.is_lost else head(x, y, to_the_right, "ink"))
        lines = self._grid.label_lines(each.text)
        return "".join([*shafts, *ends, self._label(row, self._grid.label_x(each), y, lines)])

    def _answers(self, row: Row, each: Round, y: float) -> str:
        """One line from the farthest that is heard, and a cross for every answer that is lost."""
        start, parts, labels = self._grid.x[each.start], [], []
        farthest: dict[bool, str] = {}
        for arrow in self._nearest_first(each):
            if not arrow.back and not arrow.is_back_lost:
                continue
            to_the_right = start > self._grid.x[arrow.end]
            begins, ends = self._end(arrow.end, not to_the_right, by=2), self._end(each.start, to_the_right)
            if arrow.is_back_lost:
                ends = self._grid.lost_x(each, begins, to_the_right)
                parts.append(self._shaft(row, begins, ends, y, "soft-edge", stroke_dasharray="5 3") + cross(ends, y))
            else:
                shaft = self._shaft(row, begins, ends, y, "soft-edge", stroke_dasharray="5 3")
                farthest[to_the_right] = shaft + head(ends, y, to_the_right, "faint")
            labels.append(self._label(row, self._grid.back_x(each, arrow), y, self._grid.label_lines(arrow.back)))
        return "".join([*farthest.values(), *parts, *labels])

    def _nearest_first(self, each: Round) -> list[Arrow]:
        start = self._grid.x[each.start]
        return sorted(each.arrows, key=lambda arrow: abs(self._grid.x[arrow.end] - start))

    def _end(self, lane: str, to_the_right: bool, by: float = 0.0) -> float:
        """Where an arrow that goes so touches a lane."""
        offset = (NODE_OFFSET if self._layout.place[lane] >= len(self._layout.clients) else CLIENT_OFFSET) + by
        return self._grid.x[lane] + (-offset if to_the_right else offset)

    def _shaft(self, row: Row, x1: float, x2: float, y: float, class_: str, **more: str) -> str:
        """With some space around it, where it crosses lanes and bars."""
        return line(x1, y, x2, y, f"{self._ground(row)}-halo", 5) + line(x1, y, x2, y, class_, 1.5, **more)

    def _label(self, row: Row, x: float, y: float, lines: list[str]) -> str:
        first = y - 5 - LINE_STEP * (len(lines) - 1)
        return lines_written(x, first, lines, LINE_STEP, f"code ink haloed {self._ground(row)}-halo", "middle")

    def _activity(self, arrow: Arrow, ask_y: float, back_y: float) -> str:
        return box(self._grid.x[arrow.end] - 4, ask_y - 4, 8, back_y - ask_y + 8, "node soft-edge", 2)

    # Moments ----------------------------------------------------------------------------------------------------------

    def _mark(self, row: Row) -> str:
        moment, place = row.moment, self._layout.place.get(row.moment.lane)
        dots = "".join(self._dot(row, number) for number in range(len(row.rounds)))
        if place is None:
            return dots or self._across(row)
        if dots and moment.sign in ("ask", "enter", "lost", "refused"):  # the arrows show the rest
            return dots
        x, y = self._grid.x[moment.lane], row.mark_y
        is_plain = moment.sign in ("ask", "enter")
        mark = self._speaks(moment.lane, y) if is_plain else dots + sign(moment.sign, x, y)
        if place >= len(self._layout.clients):
            return mark + self._brief(row, x, y + 23, "middle")
        return mark + self._brief(row, x + BAR / 2 + 9, y + 4 - LINE_STEP * (len(row.brief) - 1) / 2)

    def _dot(self, row: Row, number: int) -> str:
        """Where a round begins; and where it ends, if its asker is refused."""
        lane, (ask_y, back_y) = row.rounds[number].start, row.ys[number]
        dot = self._speaks(lane, ask_y)
        if row.moment.sign != "refused" or self._layout.is_held(lane, row.number - 1):
            return dot
        return dot + sign("refused", self._grid.x[lane], back_y)

    def _speaks(self, lane: str, y: float) -> str:
        edge = f"{self._colour(lane)}-edge" if self._layout.place[lane] < len(self._layout.clients) else "soft-edge"
        return element("circle", class_=f"page {edge}", cx=self._grid.x[lane], cy=y, r=4.5, stroke_width=2.5)

    def _brief(self, row: Row, x: float, y: float, anchor: str = "start") -> str:
        return lines_written(x, y, row.brief, LINE_STEP, f"ink small haloed {self._ground(row)}-halo", anchor)

    def _across(self, row: Row) -> str:
        """What belongs to nobody: a line through all lanes, and what it is, in the space between clients and nodes."""
        grid, y = self._grid, row.mark_y
        x = grid.middle - grid.width_of(row.brief) / 2
        across = line(grid.left, y, grid.right, y, "soft-edge", 1, stroke_dasharray="2 4")
        first = y + 4 - LINE_STEP * (len(row.brief) - 1) / 2
        return across + sign(row.moment.sign, x - 4, y) + self._brief(row, x + 12, first)

    def _texts(self, row: Row) -> str:
        is_wrong = row.number - 1 in self._layout.wrong_moments
        y = row.mark_y + 4
        number = box(18, y - 15, 26, 21, "label" if is_wrong else "node", 10.5)
        number += written(31, y, str(row.number), ("white" if is_wrong else "ink") + " small strong", "middle")
        seconds = written(self._grid.left - 12, y, self._layout.seconds(row.moment), "faint small", "end")
        first = min(y, row.top + row.height - 10 - TEXT_STEP * (len(row.text) - 1))
        texts = lines_written(self._grid.text_x, max(first, row.top + 18), row.text, TEXT_STEP, "ink")
        return number + seconds + texts

    # Around it --------------------------------------------------------------------------------------------------------

    def _headers(self, y: float) -> str:
        return "".join(self._header(lane, y) for lane in self._layout.lanes)

    def _header(self, lane: Lane, y: float) -> str:
        x, name = self._grid.x[lane.name], self._grid.name(lane)
        width = self._grid.name_width(lane)
        if lane.part == "node":
            frame = box(x - width / 2, y, width, HEADER, "node soft-edge", 3)
        else:
            edge = f"page {self._colour(lane.name)}-edge"
            frame = box(x - width / 2, y, width, HEADER, edge, HEADER / 2, stroke_width=2.5)
        return frame + written(x, y + 18, name, "ink strong", "middle")

    def _frame(self) -> Iterator[str]:
        grid, story = self._grid, self._story
        yield lines_written(20, 30, grid.title, 20, "ink heading")
        if grid.note:
            yield written(20, grid.title_bottom - 14, grid.note, "faint small")
        y = grid.bottom
        if story.goes_on:
            yield from (self._dots(grid.x[lane.name], y) for lane in self._layout.lanes)
            y += 22
            yield sign("restart", 32, y + 12)
            yield lines_written(52, y + 16, grid.goes_on, TEXT_STEP, "ink strong")
        if story.broken is not None:
            y = grid.broken_y
            yield box(18, y, 5, grid.broken_height, "label", 2.5)
            yield written(34, y + 14, f"Broken: {visible(story.broken.rule)}", "alarm strong")
            yield lines_written(34, y + 14 + TEXT_STEP, grid.broken, TEXT_STEP, "ink")

    def _dots(self, x: float, y: float) -> str:
        dots = (element("circle", class_="faint", cx=x, cy=y + 6 * place, r=1.6) for place in (1, 2, 3))
        return "".join(dots)
