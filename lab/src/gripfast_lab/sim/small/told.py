"""Histories of a small world, as far as its callers see them, and what is wrong with them.

Each is known by a number. Its events are kept by process: in what order things were told to different processes is
forgotten, but for what it can matter for, and that is grants. So each event is stamped with the number of grants before
it, as a tiny bit of time, and the rules can still tell which came first.
"""

from __future__ import annotations

from gripfast_lab.sim.checks import violations
from gripfast_lab.sim.history import Event
from gripfast_lab.sim.small.alone import Known

STAMP = 1e-7
"""Seconds between what was told before a grant, the grant, and what was told after it."""


class Told:
    """Histories as far as callers see them. They are numbers, too; 0 is the one in which nothing happened."""

    def __init__(self, processes: int) -> None:
        empty: tuple[int, tuple[tuple[Event, ...], ...]] = 0, ((),) * processes
        self._histories = [empty]
        self._numbers = {empty: 0}
        self._wrong: dict[tuple[int, bool], str | None] = {}

    def after(self, history: int, now: float, place: int, everyone: list[Known]) -> int:
        grants, by_process = self._histories[history]
        told = [list(events) for events in by_process]
        for event in everyone[place].noted:
            if event.kind == "granted":
                at = now + (2 * grants + 1) * STAMP
                told[place].append(event._replace(at=at))
                _ask_rivals(event, at, now, everyone, told)
                grants += 1
            else:
                told[place].append(event._replace(at=now + 2 * grants * STAMP))
        new = grants, tuple(tuple(events) for events in told)
        number = self._numbers.setdefault(new, len(self._histories))
        if number == len(self._histories):
            self._histories.append(new)
        return number

    def events(self, history: int) -> list[Event]:
        return [event for events in self._histories[history][1] for event in events]

    def wrong(self, history: int, may_be_unreachable: bool) -> str | None:
        """It goes on: nobody needs to have been answered yet."""
        key = history, may_be_unreachable
        if key not in self._wrong:
            found = violations(self.events(history), may_be_unreachable=may_be_unreachable)
            self._wrong[key] = next((str(each) for each in found if each.rule != "unanswered"), None)
        return self._wrong[key]


def _ask_rivals(granted: Event, at: float, now: float, everyone: list[Known], told: list[list[Event]]) -> None:
    """Whoever else believes to hold it at the moment of a grant says so."""
    for known, events in zip(everyone, told, strict=True):
        for who, name, token, until, ttl in known.beliefs:
            if who != granted.who and name == granted.name and until > now:
                events.append(Event(at, who, name, "held", token=token, until=until, ttl=ttl))
