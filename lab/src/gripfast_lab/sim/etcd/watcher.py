"""One watch at one member: what it is told, and when it is cancelled. Pure.

`loses_deletes` is a fault of versions before 3.4.34 and 3.5.16: a compaction drops the deletions up to its revision, so
a watch that starts right there is not told of them, nor that something is missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from gripfast.stores.etcd.messages import (
    DELETE,
    NODELETE,
    NOPUT,
    PUT,
    Event,
    ResponseHeader,
    WatchCreate,
    WatchResponse,
)
from gripfast_lab.sim.etcd.state import ALL, State


class Watcher:
    def __init__(self, create: WatchCreate) -> None:
        self.number = create.watch_id
        self._create = create

    def begin(self, state: State, loses_deletes: bool = False) -> list[WatchResponse]:
        """What it is told at once. It is over if the last of that says `canceled`."""
        number, header = self.number, ResponseHeader(revision=state.revision)
        told = [WatchResponse(header, number, created=True)]
        start = self._create.start_revision or state.revision + 1
        if start <= state.revision and start < state.compacted:
            return [*told, WatchResponse(header, number, canceled=True, compact_revision=state.compacted)]
        events = state.events_from(start)
        if loses_deletes:
            events = (each for each in events if each.type == PUT or each.kv.mod_revision > state.compacted)
        response = self.take(events, state.revision)
        return told if response is None else [*told, response]

    def take(self, events: Iterable[Event], revision: int) -> WatchResponse | None:
        start = self._create.start_revision
        told = tuple(event for event in events if event.kv.mod_revision >= start and self._wants(event))
        return WatchResponse(ResponseHeader(revision=revision), self.number, events=told) if told else None

    def _wants(self, event: Event) -> bool:
        create, key = self._create, event.kv.key
        if (NOPUT if event.type == PUT else NODELETE) in create.filters:
            return False
        assert event.type in (PUT, DELETE)
        if not create.range_end:
            return key == create.key
        return create.key <= key and (create.range_end == ALL or key < create.range_end)
