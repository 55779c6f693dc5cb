"""Pictures for a terminal."""

import re
from dataclasses import replace

import pytest

from gripfast.columns import cells
from gripfast_lab.pictures.terminal import drawn
from gripfast_lab.story import Lane, Story
from lab.drawn_stories import STORIES

EACH = pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def test_a_picture_reads_from_top_to_bottom() -> None:
    expected = """\
SET NX PX, with a holder that is paused

               A       B     redis
1    0.0 s     ●◀──────┼──────▶│    A: SET lock A NX PX 30000 → OK
               █33     │       │
2    0.1 s     ‖       │       │    A is paused: its machine has no time for it
3   30.1 s ┄┄┄┄▒┄┄┄┄┄┄┄│┄┄┄┄┄┄┄│┄┄┄ 30 seconds pass, and the key expires
4 ! 31.0 s     ▓       ●◀─────▶│    B: SET lock B NX PX 30000 → OK
               ▓       ▓34     │    ▓ both hold
5   32.0 s     >       ▓       │    A goes on and believes that it holds the lock
6   33.0 s     ○◀──────█──────▶│    A: EVAL compare-and-delete A → 0
               │       █       │
█ holds   ▓ both hold   ○ ends   ‖ paused   > goes on

Broken: exclusion
A and B hold the lock at the same time. A can't know it: its clock stood still while it was paused."""
    assert drawn(STORIES["paused_holder"], 100, colour=False) == expected


def test_ascii_is_enough() -> None:
    expected = """\
Redlock with a restarted node

       A     B     n1    n2    n3    n4    n5
1      o<----+---->+---->+---->+----x+---x>|   A asks all nodes and has 3 of 5 votes
       #7    |     |     |     |     |     |
2      #     |     |     |     X     |     |   n3 crashes
3      #     |     |     |     R     |     |   n3 comes back without its memory
4      #     |     |     J     |     |     |   the clock of n2 jumps 30 s ahead
5 !    %     o<--->+---->+---->+---->+---->|   B asks all nodes and has 3 of 5 votes
       %     %8    |     |     |     |     |   % both hold
       %     %     |     |     |     |     |
# holds   % both hold   X crashed   R restarted   J clock jumped   x lost

Broken: exclusion
A and B both have a majority, and n3 has voted for both."""
    assert drawn(STORIES["restarted_node"], 100, colour=False, ascii_only=True) == expected


@EACH
@pytest.mark.parametrize("ascii_only", [False, True], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [20, 33, 47, 60, 80, 132])
def test_no_line_is_wider_than_the_terminal(story: Story, width: int, ascii_only: bool) -> None:
    text = drawn(story, width, colour=False, ascii_only=ascii_only)
    assert max(map(cells, text.splitlines())) <= width
    assert not ascii_only or text.isascii()


@EACH
@pytest.mark.parametrize("width", [20, 80])
def test_colours_add_nothing_but_colours(story: Story, width: int) -> None:
    painted, plain = (drawn(story, width, colour=colour).splitlines() for colour in (True, False))
    assert [ESCAPE.sub("", line).rstrip() for line in painted] == [line.rstrip() for line in plain]


def test_there_are_colours_only_if_asked_for() -> None:
    story = STORIES["paused_holder"]
    assert ESCAPE.search(drawn(story, 100, colour=True))
    assert "\x1b" not in drawn(story, 100, colour=False)


def test_texts_of_others_do_not_steer_the_terminal() -> None:
    painted = drawn(STORIES["odd_story"], 100, colour=True)
    assert all(char.isprintable() or char == "\n" for char in ESCAPE.sub("", painted))
    assert r"\x1b[31m\x00\u202e\ud800" in painted


@pytest.mark.parametrize("width", [30, 100])
def test_a_token_is_told_even_if_its_lane_has_no_room_for_it(width: int) -> None:
    text = drawn(STORIES["long_story"], width, colour=False)
    assert "token 1700000000000003" in text


def test_what_goes_on_for_ever_is_said() -> None:
    text = drawn(STORIES["crashed_holder"], 100, colour=False)
    assert "And so on: B and C ask again and are refused, for ever" in text
    assert "both hold" not in text


def test_the_legend_says_what_bars_stand_for() -> None:
    text = drawn(replace(STORIES["paused_holder"], verbs=("leads", "lead")), 100, colour=False)
    assert "█ leads   ▓ both lead" in text


def test_lanes_of_a_long_story_are_named_again() -> None:
    assert drawn(STORIES["long_story"], 100, colour=False).count("p1/b       node") == 3


def test_more_lanes_than_fit_are_cut_off() -> None:
    lanes = tuple(Lane(f"n{number}", "node") for number in range(40))
    story = replace(STORIES["paused_holder"], lanes=(*STORIES["paused_holder"].lanes, *lanes))
    text = drawn(story, 80, colour=True)
    assert "\x1b" not in text
    assert max(map(cells, text.splitlines())) == 80
