"""The pace at which the watchdog releases what nobody has any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gripfast.core import rules
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Ledger, Mark
from gripfast.core.ports import Hold, Unreachable, unreachable
from gripfast.core.renew import _by_urgency
from gripfast.core.upkeep import Reaper
from gripfast.errors import StoreUnavailable
from gripfast.runtime.blocking import drive
from gripfast.stores.redis.spec import CAPABILITIES

MANY = 5000


class Engine:
    """Notes how many it was asked to release each time."""

    capabilities = CAPABILITIES

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.works = False
        self.forgot: list[str] = []

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        self.asked.append(len(holds))
        return [None if self.works else unreachable(StoreUnavailable("no"))] * len(holds)

    def forget(self, owner: str) -> None:
        self.forgot.append(owner)


class Stage:
    def __init__(self) -> None:
        self.now = 100.0
        self.engine = Engine()
        self.ledger = Ledger(lambda mark: None)
        engine: Any = self.engine
        self.reaper = Reaper(engine, lambda: self.now)
        self._states: list[LeaseState] = []

    def dropped(self, count: int, ttl: float = 600.0) -> list[Mark]:
        marks: list[Mark] = []
        for _ in range(count):
            state = LeaseState(Want("job", "job", ttl, True, None, None), f"owner-{len(self._states)}")
            self._states.append(state)
            mark = self.ledger.enter(state)
            mark.sent = self.now
            marks.append(mark)
        return marks

    def reap(self, marks: Sequence[Mark] = ()) -> float:
        return drive(self.reaper.reap(marks))

    def rest(self, seconds: float) -> None:
        """As its thread does: it comes whenever it said it would."""
        ends = self.now + seconds
        moment = self.reap()
        while moment <= ends:
            self.now = max(self.now, moment)
            moment = self.reap()
        self.now = ends


def test_an_engine_that_does_not_answer_is_tried_with_few_and_seldom() -> None:
    stage = Stage()
    stage.reap(stage.dropped(MANY))
    del stage.engine.asked[:]
    stage.rest(60.0)
    assert max(stage.engine.asked) == rules.GIVE_BACK_TRY
    assert 30 <= len(stage.engine.asked) <= 40


def test_everything_is_released_soon_after_it_answers_again_in_bounded_batches() -> None:
    stage = Stage()
    stage.reap(stage.dropped(MANY))
    stage.rest(60.0)
    stage.engine.works = True
    stage.rest(2.1)
    assert len(stage.ledger) == 0
    assert max(stage.engine.asked) == rules.GIVE_BACK_MOST


def test_what_is_new_is_tried_at_once_though_others_fail() -> None:
    stage = Stage()
    stage.reap(stage.dropped(MANY))
    stage.rest(60.0)
    stage.now += 0.01
    stage.engine.works = True
    del stage.engine.asked[:]
    stage.reap(stage.dropped(3))
    assert stage.engine.asked == [3]
    assert len(stage.ledger) == MANY


def test_what_the_engine_has_forgotten_by_itself_is_not_tried_any_more() -> None:
    stage = Stage()
    stage.reap(stage.dropped(MANY, ttl=20.0))
    stage.rest(25.0)
    assert len(stage.ledger) == 0
    assert len(stage.engine.forgot) == MANY


def test_closing_tries_everything_whatever_failed_before() -> None:
    stage = Stage()
    stage.reap(stage.dropped(MANY))
    stage.engine.works = True
    drive(stage.reaper.reap_all(stage.ledger))
    assert stage.engine.asked[-1] == MANY
    assert len(stage.ledger) == 0


def test_short_leases_are_renewed_first_and_do_not_hurry_long_ones() -> None:
    ttls = [60.0, 0.4, 30.0, 2.0, 0.3, 120.0]
    states = [LeaseState(Want("job", "job", ttl, True, None, None), str(ttl)) for ttl in ttls]
    groups = [[state.ttl for state in group] for group in _by_urgency(states, request_timeout=5.0)]
    assert groups == [[0.4, 0.3], [2.0], [60.0, 30.0, 120.0]]
    assert _by_urgency([], 5.0) == []


def test_a_try_to_renew_leaves_time_for_another() -> None:
    for ttl in (1.0, 5.0, 15.0, 60.0):
        tries = rules.renewal_timeout(ttl, request_timeout=5.0)
        assert ttl / 3 + tries + rules.renew_retry(ttl) + tries < rules.deadline(0.0, ttl)
    assert rules.renewal_timeout(60.0, request_timeout=5.0) == 5.0
    assert rules.renewal_timeout(0.01, request_timeout=5.0) == rules.RENEWAL_LEAST


def test_a_client_that_is_closed_is_closed_whatever_its_engine_raises() -> None:
    stage = Stage()
    stage.dropped(1)

    async def broken(holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        raise ValueError("a path that the engine does not take")

    stage.engine.abandon = broken  # type: ignore[method-assign]
    drive(stage.reaper.reap_all(stage.ledger))
