"""The thread behind the watchdog and the notices."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

from gripfast.machine import boottime
from gripfast.runtime import ticker as ticker_module
from gripfast.runtime.parts import LINGER_ROUNDS
from gripfast.runtime.ticker import Ticker
from support.waiting import until


class Work:
    def __init__(self) -> None:
        self.rounds = 0
        self.items: list[str] = []
        self.next_moment = math.inf

    def __call__(self, items: Sequence[str]) -> float:
        self.rounds += 1
        self.items += items
        return self.next_moment


def started(work: Work) -> Ticker[str]:
    ticker = Ticker("test-ticker", work)
    ticker.start()
    until(lambda: work.rounds > 0)
    return ticker


def stopped(ticker: Ticker[str]) -> bool:
    ticker.stop()
    return ticker.join(5.0)


def test_what_was_put_before_the_stop_is_still_done() -> None:
    work = Work()
    ticker = started(work)
    ticker.queue.put("one")
    ticker.queue.put("two")
    assert stopped(ticker)
    assert work.items == ["one", "two"]


def test_it_works_when_its_moment_has_come() -> None:
    work = Work()
    ticker = started(work)
    work.next_moment = boottime() + 0.02
    ticker.wake()
    until(lambda: work.rounds >= 4)
    assert stopped(ticker)


def test_an_error_does_not_end_it() -> None:
    class Failing(Work):
        def __call__(self, items: Sequence[str]) -> float:
            super().__call__(items)
            if items:
                raise ValueError("planted")
            return math.inf

    work = Failing()
    ticker = started(work)
    ticker.queue.put("one")
    until(lambda: work.items == ["one"])
    ticker.queue.put("two")
    until(lambda: work.items == ["one", "two"])
    assert stopped(ticker)


def test_it_sleeps_when_there_is_nothing_to_do_for_a_while_and_lingers_again_once_called(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Being called costs more than a look: one call must be enough for many leases that come and go."""
    monkeypatch.setattr(ticker_module, "LOOK_AT_LEAST", 0.02)
    work = Work()
    ticker = started(work)
    until(lambda: ticker.wakes_at == math.inf and work.rounds > LINGER_ROUNDS)
    monkeypatch.setattr(ticker_module, "LOOK_AT_LEAST", 60.0)
    ticker.wake()
    until(lambda: ticker.wakes_at < math.inf)
    assert stopped(ticker)


def test_it_ends_with_the_one_it_works_for() -> None:
    class Owner:
        pass

    owner = Owner()
    ticker = Ticker("test-ticker", Work())
    ticker.work_for(owner)
    ticker.start()
    del owner
    assert ticker.join(5.0)
    until(lambda: not ticker._thread.is_alive())


def test_of_a_thread_that_ends_meanwhile_nothing_is_due_any_more() -> None:
    """A client is closed on one thread while a test moves the clock on another."""
    goes_on, settled = threading.Event(), list[bool]()

    def work(_: Sequence[object]) -> float:
        goes_on.wait(30)
        return math.inf

    ticker = Ticker[object]("ends", work)
    ticker.start()
    ticker.stop()
    asking = threading.Thread(target=lambda: settled.append(ticker.settle(5)))
    asking.start()
    until(lambda: ticker.queue.qsize() > 1)  # what is put behind the end is never read
    goes_on.set()
    asking.join()
    assert settled == [True]
