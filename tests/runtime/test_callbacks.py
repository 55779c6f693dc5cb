"""on_lost where no thread can be had for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import gripfast
from gripfast.runtime import callbacks
from gripfast.runtime.callbacks import Callbacks
from support.waiting import until


class Threads:
    """As a limit of the container would have it."""

    def __init__(self) -> None:
        self.can_start = False
        self.refused = 0
        self._start: Callable[[threading.Thread], None] = threading.Thread.start

    def start(self, thread: threading.Thread) -> None:
        if thread.name == "gripfast-on-lost" and not self.can_start:
            self.refused += 1
            raise RuntimeError("can't start new thread")
        self._start(thread)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads = Threads()
    monkeypatch.setattr(threading.Thread, "start", lambda thread: threads.start(thread))
    monkeypatch.setattr(callbacks, "RETRY", 0.02)
    return threads


def lose(client: gripfast.Client, called: list[str], count: int) -> list[gripfast.Lease]:
    def on_lost(lease: gripfast.Lease, reason: str) -> None:
        called.append(f"{lease.name} {reason}")

    locks = [client.lock(f"{at}", ttl=0.02, renew=False, on_lost=on_lost) for at in range(count)]
    return [lock.acquire() for lock in locks]


def test_a_callback_that_no_thread_can_be_started_for_is_made_later(threads: Threads) -> None:
    called: list[str] = []
    with gripfast.connect("memory://") as client:
        leases = lose(client, called, 5)
        until(lambda: threads.refused > 10 and not any(lease.held for lease in leases))
        assert called == []
        threads.can_start = True
        until(lambda: sorted(called) == [f"{at} expired" for at in range(5)])


def test_closing_makes_those_that_still_wait(threads: Threads) -> None:
    called: list[str] = []
    with gripfast.connect("memory://") as client:
        leases = lose(client, called, 5)
        until(lambda: threads.refused > 10 and not any(lease.held for lease in leases))
    assert sorted(called) == [f"{at} expired" for at in range(5)]


def test_a_thread_that_is_done_takes_over_what_waits(threads: Threads) -> None:
    each, may_end, done = Callbacks("gripfast-on-lost"), threading.Event(), list[str]()
    threads.can_start = True
    each.start(may_end.wait)
    threads.can_start = False
    each.start(lambda: done.append("one"))
    each.start(lambda: done.append("two"))
    assert done == []
    may_end.set()
    until(lambda: done == ["one", "two"])


def test_a_slow_callback_delays_no_other(threads: Threads) -> None:
    each, may_end, done = Callbacks("gripfast-on-lost"), threading.Event(), list[str]()
    threads.can_start = True
    each.start(may_end.wait)
    each.start(lambda: done.append("one"))
    until(lambda: done == ["one"])
    may_end.set()


def test_settling_waits_for_a_thread_that_is_just_being_started() -> None:
    """`threading.enumerate()` lists it before it can be joined."""
    calls, made = Callbacks("gripfast-on-lost"), []

    def start_many() -> None:
        for number in range(1000):
            calls.start(lambda number=number: made.append(number))

    starter = threading.Thread(target=start_many)
    starter.start()
    while starter.is_alive():
        assert calls.settle(30)
    assert calls.settle(30)
    assert len(made) == 1000
