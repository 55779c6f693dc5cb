"""A writer among readers that never stop coming: it waits no longer than those before it hold.

GRIPFAST_CHAOS=long: 16 readers, 50 writes on each engine; `-s` shows the figures.
"""

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import gripfast
from gripfast.machine import boottime
from support.family import LONG, PERMITS, store_url
from support.waiting import until

READERS, WRITES = (16, 50) if LONG else (6, 3)
HOLD, PATIENCE = 0.2, 30.0
SLACK = 2.0
"""Seconds for threads to run and requests to travel, on a busy machine. A writer that nobody woke would ask again by
itself after three."""


class Visit(NamedTuple):
    asked: float
    entered: float
    ended: float


class Stream:
    """Readers, one after the other on each of so many threads: when each asked, came in and was out."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = threading.Event()
        self.visits: list[Visit] = []

    @contextlib.contextmanager
    def flowing(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._read, args=(HOLD * number / READERS,)) for number in range(READERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def is_wide_after(self, visits: int) -> bool:
        """As many more have ended as there are readers, and the next ones have begun."""
        return len(self.visits) >= visits + READERS

    def _read(self, begins_in: float) -> None:
        with gripfast.connect(self._url) as client:
            lock = client.rwlock("index").read()
            self._is_over.wait(begins_in)
            while not self._is_over.is_set():
                asked = boottime()
                with lock.acquire(wait=PATIENCE):
                    entered = boottime()
                    self._is_over.wait(HOLD)
                    self.visits.append(Visit(asked, entered, boottime()))


@pytest.mark.parametrize("store", PERMITS)
@pytest.mark.in_turn(4)
def test_a_writer_waits_no_longer_than_the_readers_before_it_hold(store: str, tmp_path: Path) -> None:
    writes: list[Visit] = []
    with store_url(store, tmp_path) as url, gripfast.connect(url) as client:
        stream = Stream(url)
        with stream.flowing():
            for _ in range(WRITES):
                until(partial(stream.is_wide_after, len(stream.visits)), within=PATIENCE)
                asked = boottime()
                with client.rwlock("index").write().acquire(wait=PATIENCE):
                    entered = boottime()
                    writes.append(Visit(asked, entered, boottime()))
    late = [write.entered - _all_before_are_out(stream.visits, write) for write in writes]
    longest = max(write.entered - write.asked for write in writes)
    print(
        f"\n{store}: {len(stream.visits)} visits of {READERS} readers, {HOLD:g} s each; {WRITES} writes waited "
        f"{longest:.3f} s at most, and began {max(late) * 1000:.0f} ms after the last reader before them at the latest"
    )
    assert not [
        (read, write) for write in writes for read in stream.visits if read.entered < write.entered < read.ended
    ]
    assert max(late) < SLACK


def _all_before_are_out(visits: list[Visit], write: Visit) -> float:
    return max(
        (read.ended for read in visits if read.asked < write.asked and read.ended < write.entered), default=write.asked
    )
