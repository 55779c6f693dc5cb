"""What the search says about an entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from gripfast_lab.entry import Entry
from gripfast_lab.model import Lab
from gripfast_lab.own import Own, Searched
from gripfast_lab.sim.explore import Report, explore
from gripfast_lab.story import Story
from gripfast_lab.telling import told

MOST_STATES = 200_000


@dataclass(frozen=True)
class Verdict:
    """Of a protocol of the field."""

    entry: Entry
    states: int
    story: Story | None
    """None: nothing was found that breaks it."""

    @property
    def rule(self) -> str:
        return self.story.broken.rule if self.story is not None and self.story.broken is not None else ""

    @property
    def is_as_expected(self) -> bool:
        return self.rule == self.entry.breaks

    @cached_property
    def calm(self) -> Report:
        """The same world without any fault. It holds there if the search has `ended`."""
        protocol = self.entry.protocol()
        return explore(Lab(self.entry.name, replace(protocol, faults={})), MOST_STATES)

    def __str__(self) -> str:
        if self.story is None:
            return f"nothing found in {self.states:,} states"
        return f"{self.rule} breaks after {len(self.story.moments)} events"


def judged(entry: Entry) -> Verdict:
    lab = Lab(entry.name, entry.protocol())
    report = explore(lab, MOST_STATES)
    story = told(lab, report.violations[0], entry.title) if report.violations else None
    return Verdict(entry, report.states, story)


@dataclass(frozen=True)
class OwnVerdict:
    own: Own
    searched: tuple[Searched, ...]

    @property
    def wrong(self) -> str:
        return "; ".join(f"{each.where}: {each.wrong}" for each in self.searched if each.wrong)

    @property
    def is_as_expected(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        return self.wrong or f"nothing found in {' and '.join(self._counts())}"

    def _counts(self) -> Iterator[str]:
        for unit in ("states", "seeds"):
            count = sum(each.number for each in self.searched if each.unit == unit)
            if count:
                yield f"{count:,} {unit}"


def judged_own(own: Own) -> OwnVerdict:
    return OwnVerdict(own, tuple(own.searched()))
