"""What was given up is released owner by owner: the trouble of one is not that of the others."""

import logging
from collections.abc import Sequence

import pytest

from gripfast import StoreUnavailable
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Entry, Ledger, Mark
from gripfast.core.ports import Hold, Unreachable
from gripfast.core.upkeep import Reaper
from gripfast.runtime.blocking import drive
from gripfast.stores.sql.store import capabilities

DOWN = Unreachable(StoreUnavailable("no answer"))


class OneStuck:
    """A store that can't release what is called stuck."""

    capabilities = capabilities(pushes=False)

    def __init__(self, is_down: bool = False) -> None:
        self.is_down = is_down

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        return [DOWN if self.is_down or hold.name == "stuck" else None for hold in holds]

    def forget(self, owner: str) -> None:
        """Nothing is kept."""


def reaped(store: OneStuck, *names: str) -> tuple[Ledger, float]:
    """The ledger after a round in which these were given up, and the moment of the next round."""
    ledger = Ledger(lambda mark: None)
    states = [
        LeaseState(Want(name, name, 30.0, renews=True, max_hold=None, label=None), f"owner of {name}") for name in names
    ]
    marks = [ledger.enter(state) for state in states]
    reaper = Reaper(store, lambda: 0.0)  # type: ignore[arg-type]
    return ledger, drive(reaper.reap(marks))


def names_left(ledger: Ledger) -> list[str]:
    return [mark.name for mark in ledger.marks()]


def test_one_that_can_not_be_released_does_not_keep_the_others_waiting() -> None:
    ledger, again_at = reaped(OneStuck(), "first", "stuck", "last")
    assert names_left(ledger) == ["stuck"]
    assert again_at < 1.0


def test_nothing_is_confirmed_by_a_store_that_is_down() -> None:
    ledger, _ = reaped(OneStuck(is_down=True), "first", "last")
    assert names_left(ledger) == ["first", "last"]


def test_what_can_not_be_released_is_named(caplog: pytest.LogCaptureFixture) -> None:
    reaped(OneStuck(is_down=True), "first", "second", "third", "fourth", "fifth")
    assert "can't clean up for 'first', 'second', 'third' and 2 more yet" in caplog.text


class Dropped:
    """A lease that was granted at 0 for 30 s and dropped; the rounds of the watchdog are called by the test."""

    def __init__(self, entry: Entry = False) -> None:
        self.now = 1.0
        self.marks: list[Mark] = []
        self.ledger = Ledger(self.marks.append)
        state = LeaseState(Want("job", "job", 30.0, True, None, None), "owner")
        mark = self.ledger.enter(state, entry)
        mark.may_be_there = mark.granted = True
        self.reaper = Reaper(OneStuck(), lambda: self.now)  # type: ignore[arg-type]

    def reap(self) -> None:
        drive(self.reaper.reap(self.marks))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "dropped" in record.msg]


def test_a_dropped_lease_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    dropped = Dropped()
    dropped.reap()
    dropped.reap()
    assert len(told(caplog)) == 1
    assert "'job'" in told(caplog)[0]
    assert len(dropped.ledger) == 0


def test_one_whose_time_was_over_is_not(caplog: pytest.LogCaptureFixture) -> None:
    dropped = Dropped()
    dropped.now = 29.9
    dropped.reap()
    assert told(caplog) == []
    assert len(dropped.ledger) == 0


def test_nor_is_one_of_a_block(caplog: pytest.LogCaptureFixture) -> None:
    dropped = Dropped(entry=True)
    dropped.reap()
    assert told(caplog) == []
    assert len(dropped.ledger) == 0


class Broken(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        raise ValueError("planted")


def test_a_log_that_fails_does_not_keep_what_was_dropped() -> None:
    log, broken = logging.getLogger("gripfast.lease"), Broken()
    dropped = Dropped()
    log.addHandler(broken)
    try:
        dropped.reap()
    finally:
        log.removeHandler(broken)
    assert len(dropped.ledger) == 0
