"""The rows of a store, read again and again."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from gripfast import StoreUnavailable
from gripfast.api.rows import Holder, Row, Scan
from gripfast.api.watching import Rates, Watcher
from support.waiting import until

NOW = datetime(2026, 11, 17, 12, 0, 0, tzinfo=UTC)


def scanned(at: float, **tokens: int | list[int]) -> Scan:
    """Names to tokens of their holders."""
    rows = [
        Row("lock", name, tuple(Holder(f"id {token}", token, None, "vm", 1, NOW, 9.0) for token in of), 0)
        for name, token in tokens.items()
        for of in [token if isinstance(token, list) else [token]]
    ]
    return Scan("memory://", rows, at, NOW, 0.0, ())


def rates(*scans: Scan) -> list[tuple[dict[str, float | None], float | None]]:
    counting = Rates()
    seen = [counting.of(scan) for scan in scans]
    return [({row.name: row.rate for row in rows}, total) for rows, total in seen]


def test_one_scan_tells_no_rate() -> None:
    assert rates(scanned(0.0, a=1)) == [({"a": None}, None)]


def test_a_new_token_is_an_entry_at_least() -> None:
    assert rates(scanned(0.0, a=1, b=1), scanned(2.0, a=9, b=1))[-1] == ({"a": 0.5, "b": 0.0}, 0.5)


def test_a_new_name_is_an_entry() -> None:
    assert rates(scanned(0.0), scanned(1.0, a=1))[-1] == ({"a": 1.0}, 1.0)


def test_what_is_gone_still_counts_in_the_sum() -> None:
    assert rates(scanned(0.0), scanned(1.0, a=1), scanned(2.0))[-1] == ({}, 0.5)


def test_every_new_holder_of_a_semaphore_counts() -> None:
    assert rates(scanned(0.0, a=[1, 2]), scanned(1.0, a=[2, 3, 4]))[-1] == ({"a": 2.0}, 2.0)


def test_a_new_owner_counts_where_there_are_no_tokens() -> None:
    counting = Rates()
    for at, owner in enumerate("xyy"):
        row = Row("lock", "a", (Holder(owner, 0, None, "", 0, None, 9.0),), 0)
        rows, _ = counting.of(Scan("redis://", [row], float(at), NOW, 0.0, ()))
    assert rows[0].rate == 0.5


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    busy = [scanned(float(at), a=at) for at in range(1, 31)]
    quiet = [scanned(float(at), a=30) for at in range(31, 50)]
    seen = [of["a"] for of, _ in rates(*busy, *quiet)]
    assert seen[1:30] == [1.0] * 29
    assert seen[30] == 0.9
    assert seen[-1] == 0.0


def test_after_an_outage_the_rate_is_that_of_the_whole_gap() -> None:
    assert rates(scanned(0.0, a=1), scanned(1.0, a=2), scanned(101.0, a=3))[-1] == ({"a": 0.01}, 0.01)


class Store:
    """Answers when it is let, and fails when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_once = 0
        self.is_down = False
        self.may_answer = threading.Event()
        self.may_answer.set()

    def scan(self) -> Scan:
        self.begun += 1
        self.at_once += 1
        assert self.at_once == 1
        self.may_answer.wait(15)
        self.at_once -= 1
        if self.is_down:
            raise StoreUnavailable("gone")
        return scanned(float(self.begun), a=self.begun)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def watching() -> Iterator[Callable[[Store, float], Watcher]]:
    started: list[Watcher] = []

    def watch(store: Store, interval: float) -> Watcher:
        started.append(Watcher(store.scan, interval))
        started[-1].start()
        return started[-1]

    yield watch
    for watcher in started:
        watcher.close()


Watch = Callable[[Store, float], Watcher]


def test_a_watcher_scans_again_and_again(store: Store, watching: Watch) -> None:
    view = watching(store, 0.01).wait(after=2, timeout=15)
    assert view.number >= 3
    assert view.scan.rows[0].rate == pytest.approx(1.0)


def test_it_scans_at_once_when_asked(store: Store, watching: Watch) -> None:
    watcher = watching(store, 600.0)
    watcher.wait(0, 15)
    watcher.refresh()
    assert watcher.wait(1, 15).number == 2


def test_a_pause_stops_it_but_not_a_refresh(store: Store) -> None:
    watcher = Watcher(store.scan, 0.01)
    watcher.pause(True)
    watcher.start()
    assert watcher.wait(0, 0.1).number == 0
    watcher.refresh()
    assert watcher.wait(0, 15).number == 1
    assert watcher.wait(1, 0.1).number == 1
    watcher.pause(False)
    assert watcher.wait(1, 15).number > 1
    watcher.close()


def test_it_never_scans_twice_at_the_same_time(store: Store, watching: Watch) -> None:
    store.may_answer.clear()
    watcher = watching(store, 0.01)
    until(lambda: store.begun == 1)
    for _ in range(5):
        watcher.refresh()
    assert store.begun == 1
    store.may_answer.set()
    assert watcher.wait(1, 15).number >= 2


def test_what_was_seen_last_stays_while_the_store_is_down(store: Store, watching: Watch) -> None:
    watcher = watching(store, 0.01)
    watcher.wait(0, 15)
    store.is_down = True
    first = until(lambda: watcher.view if watcher.view.error else None)
    later = watcher.wait(first.number, 15)
    assert str(later.error) == "gone"
    assert later.scan is not None
    assert later.error_since == first.error_since
    store.is_down = False
    assert until(lambda: watcher.view if not watcher.view.error else None).scan.rows


def test_closing_does_not_wait_for_a_scan(store: Store, watching: Watch) -> None:
    store.may_answer.clear()
    watcher = watching(store, 0.01)
    until(lambda: store.begun == 1)
    watcher.close()
    assert watcher.wait(0, 15).number == 0
    store.may_answer.set()


def test_every_view_is_told(store: Store) -> None:
    told: list[int] = []
    watcher = Watcher(store.scan, 0.01, lambda view: told.append(view.number))
    watcher.start()
    until(lambda: len(told) >= 3)
    watcher.close()
    assert told[:3] == [1, 2, 3]
