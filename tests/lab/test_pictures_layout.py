"""What is to be seen in a picture."""

from dataclasses import replace

import pytest

from gripfast.columns import cells, clipped
from gripfast.errors import visible
from gripfast_lab.pictures.layout import Layout, Overlap, Span
from gripfast_lab.pictures.texts import wrapped
from gripfast_lab.story import Arrow, Bar, Broken, Lane, Moment, Story
from lab.drawn_stories import REDIS, STORIES, WORLD, A, B, C, asked


def with_bars(*bars: Bar, rule: str = "exclusion", lanes: tuple[str, ...] = (), length: int = 10) -> Layout:
    moments = tuple(asked("A", "PING", "PONG") for _ in range(length))
    return Layout(Story("s", "s", (A, B, C, REDIS), moments, bars, Broken(rule, "text", lanes)))


def test_clients_come_first_and_the_world_has_no_lane() -> None:
    story = replace(STORIES["paused_holder"], lanes=(WORLD, REDIS, A, B))
    assert [lane.name for lane in Layout(story).lanes] == ["A", "B", "redis"]


def test_bars_overlap_where_both_hold() -> None:
    assert with_bars(Bar("A", 0, 5), Bar("B", 3)).overlaps == [Overlap(("A", "B"), 3, 5)]


def test_whoever_takes_over_in_the_moment_of_the_end_overlaps_nobody() -> None:
    assert with_bars(Bar("A", 0, 3), Bar("B", 3, 5)).overlaps == []


def test_a_bar_without_an_end_lasts_to_the_end_of_the_story() -> None:
    assert with_bars(Bar("A", 2), Bar("B", 4), length=6).overlaps == [Overlap(("A", "B"), 4, 6)]


def test_holds_of_the_same_lane_do_not_overlap() -> None:
    assert with_bars(Bar("A", 0, 5), Bar("A", 3, 5)).overlaps == []


def test_three_who_hold_are_one_overlap_and_each_has_its_part_in_it() -> None:
    layout = with_bars(Bar("A", 0, 5), Bar("B", 3, 8), Bar("C", 4, 6))
    (overlap,) = layout.overlaps
    assert overlap == Overlap(("A", "B", "C"), 3, 6)
    assert overlap.label == "3 hold"
    assert layout.shared(overlap) == [Span("A", 3, 5), Span("B", 3, 6), Span("C", 4, 6)]


def test_more_holders_than_permits_are_an_overlap_in_the_words_of_the_story() -> None:
    layout = with_bars(Bar("A", 0), Bar("B", 3), Bar("C", 4), rule="limit")
    (overlap,) = Layout(replace(layout.story, verbs=("works", "work"))).overlaps
    assert overlap == Overlap(("A", "B", "C"), 3, 10, "work")
    assert overlap.label == "3 work"


def test_only_the_lanes_that_break_the_rule_are_red() -> None:
    layout = with_bars(Bar("A", 0, 5), Bar("B", 3, 5), Bar("C", 3, 4), lanes=("A", "B"))
    assert layout.overlaps == [Overlap(("A", "B"), 3, 5)]


@pytest.mark.parametrize("rule", ["progress", "token", "outlived"])
def test_nothing_overlaps_in_a_story_about_another_rule(rule: str) -> None:
    assert with_bars(Bar("A", 0, 5), Bar("B", 3, 5), rule=rule).overlaps == []


def test_the_first_two_holds_whose_tokens_do_not_grow_are_wrong() -> None:
    bars = Bar("A", 0, 1, 7), Bar("B", 2, 3, 9), Bar("C", 4, 5, 8), Bar("A", 6, 7, 8)
    layout = with_bars(*bars, rule="token")
    assert layout.wrong_tokens == [bars[1], bars[2]]
    assert layout.wrong_moments == {4}


def test_tokens_that_grow_are_right() -> None:
    assert with_bars(Bar("A", 0, 1, 7), Bar("B", 2, 3, 8), Bar("C", 4, 5), rule="token").wrong_tokens == []


def test_a_story_says_where_its_rule_is_broken_if_no_bar_does() -> None:
    assert Layout(STORIES["crashed_holder"]).wrong_moments == {4}


def test_a_pause_lasts_until_it_goes_on_and_a_crash_until_the_restart() -> None:
    told = [("A", "pause"), ("B", "crash"), ("redis", "crash"), ("A", "resume"), ("redis", "restart"), ("A", "slow")]
    moments = tuple(Moment(lane, sign, "") for lane, sign in told)  # type: ignore[arg-type]
    layout = Layout(Story("s", "s", (A, B, REDIS), moments, ()))
    assert [layout.absent("A", moment) for moment in range(6)] == ["paused"] * 3 + [""] * 3
    assert [layout.absent("B", moment) for moment in range(6)] == [""] + ["down"] * 5
    assert [layout.absent("redis", moment) for moment in range(6)] == ["", "", "down", "down", "", ""]


def test_the_same_request_to_several_nodes_is_one_round() -> None:
    layout = Layout(STORIES["restarted_node"])
    (each,) = layout.rounds(STORIES["restarted_node"].moments[0])
    assert (each.start, each.text, len(each.arrows)) == ("A", "SET lock A NX", 5)


def test_requests_of_different_clients_in_one_moment_are_rounds_of_their_own() -> None:
    arrows = Arrow("A", "redis", "x"), Arrow("A", "B"), Arrow("B", "redis", "x"), Arrow("B", "redis", "y")
    layout = Layout(STORIES["paused_holder"])
    rounds = layout.rounds(Moment("A", "ask", "", arrows=(*arrows, Arrow("A", "nobody"))))
    assert [(each.start, each.text, len(each.arrows)) for each in rounds] == [
        ("A", "x", 2),
        ("B", "x", 1),
        ("B", "y", 1),
    ]


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ((0.0, 30.0), ["0 s", "30 s"]),
        ((0.0, 0.5), ["0.0 s", "0.5 s"]),
        ((0.0, 0.1234), ["0.000 s", "0.123 s"]),
        ((2.0, 2.0), ["", ""]),
        ((None, 2.0, 3.0), ["", "2 s", "3 s"]),
    ],
)
def test_seconds_are_told_as_exactly_as_needed(times: tuple[float | None, ...], shown: list[str]) -> None:
    moments = tuple(Moment("A", "ask", "", at=at) for at in times)
    layout = Layout(Story("s", "s", (A,), moments, ()))
    assert [layout.seconds(moment) for moment in moments] == shown


def test_lanes_of_a_story_without_any_are_none() -> None:
    assert Layout(Story("s", "s", (Lane("time", "world"),), (), ())).lanes == []


def test_what_can_not_be_seen_is_told_by_its_number() -> None:
    assert visible("a\x1b[31m\x00\u202e\ud800\n锁🔒") == r"a\x1b[31m\x00\u202e\ud800\n锁🔒"


@pytest.mark.parametrize(("text", "width"), [("lock", 4), ("锁定", 4), ("🔒", 2), ("e\u0301", 1)])
def test_wide_characters_take_two_columns_and_combining_ones_none(text: str, width: int) -> None:
    assert cells(text) == width


@pytest.mark.parametrize("width", range(2, 12))
def test_no_line_is_wider_than_asked_for_and_nothing_is_lost(width: int) -> None:
    text = "one three 锁定服务器 antidisestablishmentarianism x"
    lines = wrapped(text, width)
    assert max(map(cells, lines)) <= width
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert cells(clipped(text, width)) <= width
