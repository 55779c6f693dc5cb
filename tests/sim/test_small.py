"""Every interleaving of small worlds: nothing is wrong with the real thing, and planted bugs are found."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from gripfast.core import rules
from gripfast.core.lease import LeaseState
from gripfast.stores.redis import permit_scripts, scripts
from gripfast.stores.redis.scripts import Script
from gripfast.stores.redis.store import RedisStore
from gripfast_lab.sim.explore import Found
from gripfast_lab.sim.redis.lua import ENGINE
from gripfast_lab.sim.small import alone
from gripfast_lab.sim.small.worlds import WORLDS, errand, explored

SMALL = [name for name in WORLDS if not name.endswith("-large")]
CLAIMS = {"passes": 0, "knows_scripts": True}
"""Other bounds for `claims`, with which it is done at once."""


@pytest.mark.parametrize("name", SMALL)
def test_nothing_is_wrong_in(name: str) -> None:
    report = explored(name)
    assert not report.violations, str(report)
    assert report.ended
    assert report.states > 1000 or name == "queue"


def test_two_claims_have_few_ways_to_go() -> None:
    """A figure to compare with: whatever makes it larger makes all the others larger."""
    report = explored("claims", **CLAIMS)
    assert report.ended
    assert report.states == 53


def test_a_process_that_was_put_back_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {**CLAIMS, "kinds": ("cancel",), "faults": 1}
    kept = explored("claims", **bounds)
    monkeypatch.setattr(alone, "MOST_ALIVE", 0)
    assert explored("claims", **bounds) == kept


PLANTED = """
from unittest import mock
from gripfast_lab.sim.small.worlds import explored
from gripfast.stores.redis.store import RedisStore
with mock.patch.object(RedisStore, "_clean_up_after", lambda *_: None):
    print(explored("cancelled"))
"""


def test_hashes_decide_nothing() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", PLANTED],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
    assert "wrong after" in told.pop()


# Planted bugs -------------------------------------------------------------------------------------------------------

Rewrite = Callable[[Script, str, str], None]


@pytest.fixture
def rewrite() -> Iterator[Rewrite]:
    def plant(script: Script, old: str, new: str) -> None:
        assert old in script.text
        wrong = script.text.replace(old, new)
        ENGINE.rewrite = lambda text: wrong if text == script.text else text

    yield plant
    ENGINE.rewrite = None


def only_one(name: str, **bounds: object) -> Found:
    (found,) = explored(name, **bounds).violations
    return found


def test_a_release_that_takes_away_anyone_s_lock_is_found(rewrite: Rewrite) -> None:
    rewrite(scripts.RELEASE, "holder == ARGV[1] and 1 or 0", "holder and 1 or 0")
    found = only_one("faults")
    assert found.what.startswith("stolen: 'job', p1/a#1 took it away from p2/b#1")
    assert len(found.path) == 10
    assert found.path[-1] == "the node gets, from p1 1, twice: release job p1/a#1"


def test_a_claim_that_passes_the_line_is_found(rewrite: Rewrite) -> None:
    rewrite(scripts.CLAIM, "redis.call('EXISTS', lock, line) == 0", "redis.call('EXISTS', lock) == 0")
    found = only_one("queue")
    assert found.what.startswith("passed: 'job', handed to p3/c#1")
    assert len(found.path) < 20


def test_a_hand_off_that_nobody_hears_is_found(rewrite: Rewrite) -> None:
    rewrite(scripts.RELEASE, "if not is_heard(channel) then", "if false then")
    three = (errand("p1/a"), errand("p2/b", after=0.01), errand("p3/c", after=0.02))
    found = only_one("faults", errands=three, kinds=("reset",))
    assert found.what.startswith("passed: 'job', handed to p2/b#1")
    assert found.path[-2:] == ("p2 2 is reset", "the node gets, from p1 1: release job p1/a#1")


def test_a_claim_for_permits_that_passes_the_queue_is_found(rewrite: Rewrite) -> None:
    rewrite(permit_scripts.CLAIM, "if is_free and used + n <= limit and is_open then", "if used + n <= limit then")
    found = only_one("permits")
    assert found.what.startswith("passed: 'job', handed to p3/c#1")


def test_a_downgrade_that_frees_everything_is_found(rewrite: Rewrite) -> None:
    rewrite(
        permit_scripts.DOWNGRADE, "used, is_changed = used - (had - n), true", "used, is_changed = used - had, true"
    )
    assert only_one("readers").what.startswith("exceeded: 'job', ")


def test_a_clean_up_that_forgets_the_place_in_line_is_found(rewrite: Rewrite) -> None:
    rewrite(scripts.ABANDON, "leave(ARGV[1])\nlocal", "local")
    found = only_one("cancelled")
    assert found.what.startswith("left behind: '*', node: key")
    assert "p2/b is cancelled" in found.path


def test_a_clean_up_that_does_not_follow_the_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisStore, "_clean_up_after", lambda *_: None)
    found = only_one("cancelled")
    assert found.what.startswith("left behind: ")
    assert len(found.path) <= 10


def test_a_renewal_that_is_dated_by_its_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = LeaseState.renewed
    monkeypatch.setattr(LeaseState, "renewed", lambda self, _, ttl, now: renewed(self, now, ttl, now))
    # An answer that is a quarter of the ttl late is too little to be seen in the long steps of this world.
    monkeypatch.setattr(rules, "renewal_timeout", lambda ttl, request_timeout: request_timeout)
    two = (errand("p1/a", ttl=1.0, works=1.8), errand("p2/b", ttl=1.0, after=0.7))
    found = only_one("expiry", errands=two, passes=4)
    assert found.what.startswith("overlap: 'job', p1/a")
    assert len(found.path) == 21


def test_deadlines_that_trust_the_clocks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "dates", lambda sent, ttl: (sent + ttl, sent + ttl / 3))
    assert only_one("paused").what.startswith("boasted: ")


def test_an_exception_that_no_caller_should_see_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(self: RedisStore, hold: object) -> None:
        raise ValueError("not today")

    monkeypatch.setattr(RedisStore, "release", release)
    assert only_one("claims", **CLAIMS).what == "ValueError: not today"
