"""How long to stay away: random, growing, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gripfast.core.redlock import pauses

tries = st.integers(min_value=0, max_value=10_000)
chances = st.floats(min_value=0, max_value=1, exclude_max=True)
A_MOMENT = 0.002


@given(tries, chances)
def test_after_a_split_vote_nobody_stays_away_for_longer_than_the_bound(tries: int, chance: float) -> None:
    assert 0 <= pauses.after_split(tries, chance) <= pauses.SPLIT_MOST


@given(tries, chances)
def test_after_a_split_vote_the_range_of_the_pause_grows_until_the_bound(tries: int, chance: float) -> None:
    sooner, later = pauses.after_split(tries, 0.999), pauses.after_split(tries + 1, 0.999)
    assert later > sooner or sooner >= 0.99 * pauses.SPLIT_MOST


@given(tries, chances, chances)
def test_two_clients_of_different_luck_do_not_come_back_together(tries: int, one: float, other: float) -> None:
    apart = abs(pauses.after_split(tries, one) - pauses.after_split(tries, other))
    assert apart >= 0.99 * pauses.SPLIT_FIRST * abs(one - other)


@given(tries, chances, st.floats(min_value=0, max_value=1e5))
def test_while_somebody_has_it_a_waiter_asks_now_and_then_but_not_all_the_time(
    tries: int, chance: float, expires_in: float
) -> None:
    pause = pauses.while_held(tries, chance, expires_in)
    assert pause <= pauses.HELD_MOST
    assert pause >= min(pauses.HELD_FIRST / 2, expires_in)


@given(tries, chances, st.floats(min_value=0, max_value=1))
def test_a_waiter_asks_soon_after_the_holders_time_is_over(tries: int, chance: float, expires_in: float) -> None:
    assert pauses.while_held(tries, chance, expires_in) <= expires_in + A_MOMENT + pauses.SPLIT_MOST


@given(tries, st.floats(min_value=0.1, max_value=1))
def test_those_who_wait_for_the_same_end_do_not_come_all_at_once(tries: int, apart: float) -> None:
    soon = 0.001
    assert pauses.while_held(tries, 0.99 * apart, soon) != pauses.while_held(tries, 0.0, soon)


@given(tries, chances, st.floats(min_value=-1e5, max_value=0))
def test_one_that_should_be_over_already_is_no_reason_to_wait_long(tries: int, chance: float, since: float) -> None:
    assert 0 < pauses.while_held(tries, chance, since) <= A_MOMENT + pauses.SPLIT_MOST


def test_one_that_never_expires_is_asked_about_at_the_slow_pace() -> None:
    assert pauses.while_held(0, 0.0, float("inf")) == pauses.HELD_FIRST / 2
    assert pauses.while_held(100, 0.999, float("inf")) <= pauses.HELD_MOST
