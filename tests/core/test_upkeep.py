"""Rounds of the watchdog in which something goes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from core.upkeep_stage import Scene
from gripfast import StoreUnavailable
from gripfast.core import rules
from gripfast.core.ports import Hold, Unreachable
from gripfast.core.upkeep import Extend


def test_an_extension_that_raises_does_not_keep_the_next_ones_and_renewals_from_being_made() -> None:
    scene, answers = Scene(), dict[str, Unreachable | None]()
    for name in ("first", "broken", "last", "due"):
        scene.granted(name, 30.0)
    scene.store.raises.add("broken")
    *extended, due = scene.leases
    scene.now = due.renew_at
    for each in extended:
        each.renew_at = 1000.0  # not due
    scene.go_round(
        *(Extend(each, 30.0, lambda answer, name=each.name: answers.update({name: answer})) for each in extended)
    )
    assert answers["first"] is None
    assert answers["last"] is None
    assert isinstance(answers["broken"], Unreachable)
    assert "planted" in str(answers["broken"].error)
    assert scene.store.renewed == ["first", "last", "due"]


def test_a_try_to_renew_a_long_lease_leaves_a_short_one_its_time() -> None:
    """One watchdog renews them all: on a connection that is dead without a word the short one would be over."""
    scene = Scene()
    scene.env.request_timeout = 5.0
    long = scene.granted("long", 9.0)
    scene.now = long.renew_at - 0.4
    short = scene.granted("short", 1.5)
    scene.now = long.renew_at
    scene.go_round()
    assert scene.store.renewed == ["long"]
    [seconds] = scene.store.within
    assert scene.now + seconds + 2 * rules.renewal_timeout(1.5, 5.0) <= short.deadline + 0.001


def test_what_can_not_be_renewed_is_named(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(holds: Sequence[Hold], within: float) -> Any:
        return [Unreachable(StoreUnavailable("no answer")) if hold.name != "fine" else None for hold in holds]

    scene = Scene()
    for name in ("fine", "first", "second"):
        scene.granted(name, 30.0)
    monkeypatch.setattr(scene.store, "renew", fails)
    scene.now = scene.leases[0].renew_at
    scene.go_round()
    assert "can't renew 'first', 'second' yet, will retry until the deadline: no answer" in caplog.text
