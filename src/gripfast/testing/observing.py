"""An observer that keeps what it is told, and what is wrong with it: a claim without an end, or with two."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

import gripfast

WHOLE = re.compile("claimed (granted ((renewed|unreachable) )*(released|lost) |refused |unreachable )")
OPEN = re.compile("claimed (granted ((renewed|unreachable) )*)?")


class Recorder(gripfast.Observer):
    def __init__(self) -> None:
        self.events: list[gripfast.Event] = []

    def _keep(self, event: gripfast.Event) -> None:
        self.events.append(event)

    claimed = granted = refused = renewed = lost = released = unreachable = _keep

    def of(self, name: str, kind: str | None = None) -> list[gripfast.Event]:
        return [event for event in list(self.events) if event.name == name and kind in (None, event.kind)]

    def kinds(self, name: str) -> list[str]:
        """Without renewals, which come when they come."""
        return [event.kind for event in self.of(name) if event.kind != "renewed"]


def broken_stories(events: Iterable[gripfast.Event], may_be_open: bool = False) -> list[str]:
    """Claims that were not told as they should: from the beginning, in order, to one end."""
    stories: dict[str, list[str]] = defaultdict(list)
    for event in events:
        stories[f"{event.name}, {event.owner}"].append(event.kind)
    texts = {claim: "".join(f"{kind} " for kind in kinds) for claim, kinds in stories.items()}
    return [
        f"{claim}: {text}"
        for claim, text in texts.items()
        if not WHOLE.fullmatch(text) and not (may_be_open and OPEN.fullmatch(text))
    ]
