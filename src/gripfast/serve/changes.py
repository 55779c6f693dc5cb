"""What a page must be told after each scan: everything once, then only what has changed.

A page keeps its rows by id. A *patch* is a row's id with those of its fields that are new; a patch with an id that the
page does not have is a row. When a lock expires changes with each renewal, and most locks are renewed between two
scans: so a row has its moments apart from its holders, and a renewal sends no more than a number. Moments are whole
seconds, and the same if they differ by no more than the scan took: when exactly a row was read in it, nobody knows.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gripfast.api.rows import Row, Scan
from gripfast.api.watching import View

Entry = dict[str, object]
"""A row as the page gets it."""
ROUNDING = 1
"""Seconds by which a moment may be off in any case."""


@dataclass(frozen=True)
class News:
    """What one scan has found, and what of it is new."""

    view: View
    entries: Mapping[int, Entry]
    patches: list[Entry] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    @cached_property
    def whole(self) -> bytes:
        """For a page that knows nothing yet. As long as no scan has succeeded, there is nothing but the trouble."""
        rows = self._rows(True, list(self.entries.values()), []) if self.view.scan else b""
        return rows + self._trouble()

    @cached_property
    def changed(self) -> bytes:
        """For a page that knows everything up to the scan before."""
        return self._trouble() or self._rows(False, self.patches, self.gone)

    def _rows(self, whole: bool, rows: list[Entry], gone: list[int]) -> bytes:
        scan = self.view.scan
        assert scan is not None
        at, took, rate = scan.wall.timestamp(), round(scan.took, 3), self.view.rate
        head = {"whole": whole, "at": at, "took": took, "notes": list(scan.notes), "rate": rate}
        return event("rows", {**head, "rows": rows, "gone": gone})

    def _trouble(self) -> bytes:
        error, since = self.view.error, self.view.error_since
        if error is None:
            return b""
        return event("trouble", {"reason": str(error), "for": round(time.monotonic() - since, 1)})


class Changes:
    """Compares each scan with the one before. Not for several threads."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], int] = {}
        self._entries: Mapping[int, Entry] = {}
        self._last = 0

    def after(self, view: View) -> News:
        if view.scan is None or view.error is not None:
            return News(view, self._entries)
        before, self._ids = self._ids, {row.key: self._id(row) for row in view.scan.rows}
        old, new = self._entries, {}
        for row in view.scan.rows:
            number = self._ids[row.key]
            new[number] = entry(number, row, view.scan, old.get(number))
        self._entries = new
        patches = [patch for number, each in new.items() if (patch := _patch(old.get(number), each))]
        return News(view, new, patches, [number for key, number in before.items() if key not in self._ids])

    def _id(self, row: Row) -> int:
        known = self._ids.get(row.key)
        if known is None:
            self._last += 1
        return self._last if known is None else known


def entry(number: int, row: Row, scan: Scan, before: Entry | None) -> Entry:
    told: Entry = {"id": number, **row.to_json(live=True)}
    holders: list[dict[str, object]] = told["holders"]  # type: ignore[assignment]
    for each in holders:
        del each["expires_in"]
    moments = [_moment(scan, each.expires_in) for each in row.holders]
    told["expires"] = _steady(moments, before["expires"] if before else None, ROUNDING + scan.took)
    return told


def _moment(scan: Scan, seconds: float) -> int | None:
    return None if math.isinf(seconds) else round(scan.wall.timestamp() + seconds)


def _steady(moments: list[int | None], before: object, tolerance: float) -> list[int | None]:
    if not isinstance(before, list) or len(before) != len(moments):
        return moments
    return [was if _same(now, was, tolerance) else now for now, was in zip(moments, before, strict=True)]


def _same(now: int | None, was: int | None, tolerance: float) -> bool:
    return now is not None and was is not None and abs(now - was) <= tolerance


def _patch(before: Entry | None, now: Entry) -> Entry | None:
    if before is None:
        return now
    new = {name: value for name, value in now.items() if before.get(name) != value}
    return {"id": now["id"], **new} if new else None


def event(name: str, data: object) -> bytes:
    """As server-sent events are written. JSON without line breaks is one line."""
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
