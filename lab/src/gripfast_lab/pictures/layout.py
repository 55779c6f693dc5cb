"""What a picture of a story has to show, whatever it is drawn with.

Moments are counted from 0, as in the story; a span that lasts to the end of the story ends at the number of moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal, NamedTuple

from gripfast_lab.story import Arrow, Bar, Lane, Moment, Sign, Story

EXCLUSION = ("exclusion", "limit", "overlap")
"""What the lab and the simulation call the rule that only one holds, or only so many."""
TOKEN = "token"
HEADERS_EVERY = 24
"""Moments: then the lanes are named again."""

ABSENCES: dict[Sign, tuple[Literal["paused", "down"], tuple[Sign, ...]]] = {
    "pause": ("paused", ("resume", "crash")),
    "slow": ("paused", ("resume", "crash")),
    "crash": ("down", ("restart",)),
}
"""What begins one, and what ends it."""


class Span(NamedTuple):
    lane: str
    begins: int
    ends: int


class Absence(NamedTuple):
    """A lane on which nothing moves."""

    kind: Literal["paused", "down"]
    span: Span


class Overlap(NamedTuple):
    lanes: tuple[str, ...]
    begins: int
    ends: int
    verb: str = "hold"

    @property
    def label(self) -> str:
        return f"both {self.verb}" if len(self.lanes) == 2 else f"{len(self.lanes)} {self.verb}"


class Round(NamedTuple):
    """The same request to one lane or to several."""

    start: str
    text: str
    arrows: tuple[Arrow, ...]

    @property
    def is_answered(self) -> bool:
        return any(arrow.back or arrow.is_back_lost for arrow in self.arrows)


@dataclass(frozen=True)
class Layout:
    story: Story

    @cached_property
    def clients(self) -> list[Lane]:
        return [lane for lane in self.story.lanes if lane.part == "client"]

    @cached_property
    def nodes(self) -> list[Lane]:
        return [lane for lane in self.story.lanes if lane.part == "node"]

    @cached_property
    def lanes(self) -> list[Lane]:
        """Clients first. The world has none: what belongs to nobody goes across."""
        return self.clients + self.nodes

    @cached_property
    def place(self) -> dict[str, int]:
        return {lane.name: place for place, lane in enumerate(self.lanes)}

    @property
    def length(self) -> int:
        return len(self.story.moments)

    def seconds(self, moment: Moment) -> str:
        return "" if moment.at is None or len(self._times) < 2 else f"{moment.at:.{self._digits}f} s"

    @cached_property
    def _times(self) -> set[float]:
        """If there is only one, it says nothing."""
        return {moment.at for moment in self.story.moments if moment.at is not None}

    @cached_property
    def _digits(self) -> int:
        """As few as tell them apart."""
        return next((few for few in (0, 1) if all(round(at, few) == at for at in self._times)), 3)

    @cached_property
    def bars(self) -> list[tuple[Bar, Span]]:
        return [(bar, self.span(bar)) for bar in self.story.bars if bar.lane in self.place]

    def span(self, bar: Bar) -> Span:
        return Span(bar.lane, bar.begins, self.length if bar.ends is None else bar.ends)

    def is_held(self, lane: str, moment: int) -> bool:
        """Whoever lets go in a moment does not hold any more."""
        return any(span.lane == lane and span.begins <= moment < span.ends for _, span in self.bars)

    @cached_property
    def overlaps(self) -> list[Overlap]:
        """Where more than one holds, if that is what is broken: not before the story says so, since who is paused may
        hold and does no harm."""
        broken = self.story.broken
        if broken is None or broken.rule not in EXCLUSION:
            return []
        first = broken.begins or 0
        spans = [
            span._replace(begins=max(span.begins, first))
            for _, span in self.bars
            if not broken.lanes or span.lane in broken.lanes
        ]
        pairs = [pair for one, other in combinations(spans, 2) if (pair := _overlap(one, other)) is not None]
        return [overlap._replace(verb=self.story.verbs[1]) for overlap in _joined(pairs)]

    def shared(self, overlap: Overlap) -> list[Span]:
        """The part that each of the bars has in it."""
        cut = [
            span._replace(begins=max(span.begins, overlap.begins), ends=min(span.ends, overlap.ends))
            for _, span in self.bars
        ]
        return [span for span in cut if span.lane in overlap.lanes and span.begins < span.ends]

    @cached_property
    def wrong_tokens(self) -> list[Bar]:
        """The first two holds of which the later one has no larger token, if that is what is broken."""
        if self.story.broken is None or self.story.broken.rule != TOKEN:
            return []
        bars = sorted((bar for bar, _ in self.bars if bar.token is not None), key=lambda bar: bar.begins)
        for place, later in enumerate(bars):
            for earlier in bars[:place]:
                if (later.token or 0) <= (earlier.token or 0):
                    return [earlier, later]
        return []

    @cached_property
    def wrong_moments(self) -> set[int]:
        """Those in which the rule is broken: where an overlap or the wrong token begins, or what the story says."""
        broken = self.story.broken
        if self.overlaps:
            return {overlap.begins for overlap in self.overlaps}
        if self.wrong_tokens:
            return {self.wrong_tokens[-1].begins}
        return set() if broken is None or broken.begins is None else {broken.begins}

    @cached_property
    def absences(self) -> list[Absence]:
        return list(self._absences())

    def _absences(self) -> Iterator[Absence]:
        for begins, moment in enumerate(self.story.moments):
            if moment.sign in ABSENCES and moment.lane in self.place:
                kind, over = ABSENCES[moment.sign]
                later = enumerate(self.story.moments[begins + 1 :], begins + 1)
                ends = next((place for place, each in later if each.lane == moment.lane and each.sign in over), None)
                if ends is not None or moment.sign != "slow":  # only some who are slow stand still
                    yield Absence(kind, Span(moment.lane, begins, self.length if ends is None else ends))

    def absent(self, lane: str, moment: int) -> str:
        """Why nothing moves on this lane, or nothing."""
        kinds = (kind for kind, span in self.absences if span.lane == lane and span.begins <= moment < span.ends)
        return next(kinds, "")

    def rounds(self, moment: Moment) -> list[Round]:
        """The messages of a moment; those that differ by nothing but where they go to are one round. One that says
        nothing belongs to the round before it."""
        rounds: list[Round] = []
        for arrow in moment.arrows:
            if arrow.start == arrow.end or not {arrow.start, arrow.end} <= self.place.keys():
                continue
            last = rounds[-1] if rounds else None
            if last is not None and last.start == arrow.start and arrow.text in ("", last.text):
                rounds[-1] = last._replace(arrows=(*last.arrows, arrow))
            else:
                rounds.append(Round(arrow.start, arrow.text, (arrow,)))
        return rounds


def _overlap(one: Span, other: Span) -> Overlap | None:
    begins, ends = max(one.begins, other.begins), min(one.ends, other.ends)
    if one.lane == other.lane or begins >= ends:
        return None
    return Overlap((one.lane, other.lane), begins, ends)


def _joined(pairs: list[Overlap]) -> list[Overlap]:
    """Three who hold at the same moment are one overlap, not three pairs."""
    joined: list[Overlap] = []
    for pair in sorted(pairs, key=lambda pair: pair.begins):
        if joined and pair.begins < joined[-1].ends:
            last = joined.pop()
            lanes = tuple(dict.fromkeys(last.lanes + pair.lanes))
            joined.append(Overlap(lanes, last.begins, max(last.ends, pair.ends)))
        else:
            joined.append(pair)
    return joined
