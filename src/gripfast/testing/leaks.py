"""Locks that the code under test has not released: held at the end of a test, or dropped before.

Gripfast releases a lease that was dropped, and says so in its log. In a test that is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gripfast.core.ledger import Mark
from gripfast.core.upkeep import DROPPED, where_acquired

HEADING = "the code under test has not released every lock (world.may_stay_held(name) allows it):"


class Dropped(NamedTuple):
    name: str
    text: str


def told_of_held(mark: Mark) -> str:
    how = " by a `with` block that has not ended" if mark.entry is True else ""
    return f"- {mark.name!r} is still held{how}{where_acquired(mark.entry)}"


class _Collector(logging.Handler):
    def __init__(self, found: list[Dropped]) -> None:
        super().__init__(logging.WARNING)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg in DROPPED:
            name = str(getattr(record, "gripfast_name", ""))
            self._found.append(Dropped(name, f"- {record.getMessage()}"))


@contextmanager
def collected(found: list[Dropped]) -> Iterator[None]:
    """What the log says of dropped leases, while the block runs."""
    logger, handler = logging.getLogger("gripfast.lease"), _Collector(found)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
