"""The numbers of a lease."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripfast.core import rules
from gripfast.errors import ConfigurationError

ttls = st.floats(min_value=rules.TTL_MIN, max_value=rules.TTL_MAX)


@given(sent=st.floats(min_value=0, max_value=1e9), ttl=ttls)
def test_a_deadline_is_never_later_than_what_the_engine_was_asked_for(sent: float, ttl: float) -> None:
    assert rules.deadline(sent, ttl) < sent + ttl


@given(ttl=ttls)
def test_a_renewal_leaves_time_for_several_retries_before_the_deadline(ttl: float) -> None:
    left = rules.deadline(0.0, ttl) - rules.dates(0.0, ttl)[1]
    assert left >= 3 * rules.renew_retry(ttl) or ttl < 0.02


@given(ttl=ttls)
def test_a_grant_pushed_right_after_a_refresh_or_just_before_the_next_needs_no_second_question(ttl: float) -> None:
    left = rules.deadline(0.0, ttl) - rules.refresh_pace(ttl)
    assert rules.is_fresh(left, ttl) or ttl < 0.02


@given(ttl=ttls)
def test_a_waiter_that_refreshes_on_time_is_never_taken_for_gone(ttl: float) -> None:
    assert rules.refresh_pace(ttl) < rules.WAITER_WINDOW / 2


@given(now=st.floats(min_value=0, max_value=1e6), ttl=ttls, left=st.floats(min_value=-1, max_value=1e5))
def test_a_waiter_asks_when_the_holder_should_be_over_and_at_the_slow_pace_at_the_latest(
    now: float, ttl: float, left: float
) -> None:
    ask = rules.ask_again_at(now, ttl, left)
    assert now <= ask <= now + rules.refresh_pace(ttl) + 1e-6
    assert ask <= now + max(0.0, left) + 0.0011


@given(last=st.integers(min_value=0, max_value=2**52), wall_us=st.integers(min_value=0, max_value=2**52))
def test_a_token_is_larger_than_the_last_one_whatever_the_clock_says(last: int, wall_us: int) -> None:
    assert rules.next_token(last, wall_us) > last
    assert rules.next_token(last, wall_us) >= wall_us


@pytest.mark.parametrize("wait", [None, math.inf])
def test_to_wait_for_ever_is_none_or_infinity(wait: float | None) -> None:
    assert rules.checked_wait(wait) is None


@pytest.mark.parametrize("ttl", [0, 0.009, -1, math.nan, math.inf, 86401, 10**400, True, "30", None])
def test_a_ttl_that_makes_no_sense_is_refused(ttl: object) -> None:
    with pytest.raises(ConfigurationError, match="ttl"):
        rules.checked_ttl(ttl)


@pytest.mark.parametrize("label", [7, b"x", "\udc80"])
def test_a_label_that_an_engine_could_not_keep_is_refused(label: object) -> None:
    with pytest.raises(ConfigurationError, match="label"):
        rules.checked_label(label)


def test_a_label_has_a_limit_which_its_refusal_names() -> None:
    assert rules.checked_label("ü" * 2048) == "ü" * 2048
    with pytest.raises(ConfigurationError, match="at most 4096 UTF-8 bytes; this one has 4098"):
        rules.checked_label("ü" * 2049)
