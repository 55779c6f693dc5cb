"""The parts of `gripfast top` that need no terminal: keys, columns, what each key does."""

import math
import re
from datetime import UTC, datetime, timedelta

import pytest

from gripfast import LockInfo, StoreUnavailable
from gripfast.api.rows import Row, Scan, row_of
from gripfast.api.watching import View
from gripfast.cli.top.grid import DIM, GAP, RED, Column, Line, Piece, line, painted, placed
from gripfast.cli.top.keys import Keys
from gripfast.cli.top.picture import columns, picture, rate
from gripfast.cli.top.state import Break, State
from gripfast.columns import cells

NOW = datetime(2026, 11, 17, 12, 0, 0, tzinfo=UTC)


def held(name: str, *, waiters: int = 0, **who: object) -> Row:
    told = {"owner": f"id of {name}", "token": 1, "label": None, "host": "vm", "pid": 7, "trace": None, **who}
    return row_of(LockInfo(name, since=NOW - timedelta(seconds=9), expires_in=20.0, waiters=waiters, **told), True)  # type: ignore[arg-type]


def view(*rows: Row, **more: object) -> View:
    return View(Scan("redis://vm", rows, 1.0, NOW, 0.1, ()), **more)  # type: ignore[arg-type]


def seeing(*names: str) -> State:
    state = State(order="name")
    state.see(view(*map(held, names)))
    state.fit(10)
    return state


def plain(lines: list[Line], width: int) -> str:
    """As painted, without codes; a step to a column becomes blanks."""
    return "\n".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", painted(each, width)) for each in lines)


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"aQ/", ["a", "Q", "/"]),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[1~\x1bOF", ["up", "down", "pageup", "home", "end"]),
        ("é备".encode(), ["é", "备"]),
        (b"\r\n\x7f\x08\x0c", ["enter", "enter", "backspace", "backspace", "ctrl-l"]),
        (b"\x1b[1;5C\x1b[15~x", ["x"]),
        (b"\x1b[200~by\r\x1b[201~n", ["paste:by\r", "n"]),
        (b"\xff", ["\ufffd"]),
        (b"\x1bx", ["escape", "x"]),
    ],
)
def test_bytes_become_keys_however_they_are_cut(typed: bytes, keys: list[str]) -> None:
    whole = Keys()
    assert whole.feed(typed) == keys
    cut = Keys()
    assert [key for at in range(len(typed)) for key in cut.feed(typed[at : at + 1])] == keys


@pytest.mark.parametrize(("typed", "keys"), [(b"\x1b", ["escape"]), (b"\x1b[", ["escape", "["]), (b"\x1b[200~b", [])])
def test_an_escape_without_a_sequence_is_a_key_and_half_a_paste_is_none(typed: bytes, keys: list[str]) -> None:
    parser = Keys()
    assert parser.feed(typed) == []
    assert parser.is_waiting
    assert parser.flush() == keys


def test_nothing_in_a_text_reaches_the_terminal_unseen() -> None:
    text = painted(Line([Piece(0, "a\x1b[2J\x07\x9b\n")]), 40)
    assert text == "\x1b[1Ga\\x1b[2J\\x07\\x9b\\n\x1b[0m"
    assert painted(line("a\tb", "c"), 40) == "\x1b[1Ga\\tb\x1b[0m\x1b[5Gc\x1b[0m"


def test_what_stands_behind_the_margin_is_cut() -> None:
    assert painted(Line([Piece(0, "abcdef"), Piece(9, "x")]), 4) == "\x1b[1Gabc…\x1b[0m"


def test_colours_can_be_left_out_but_not_what_is_bold_or_faint() -> None:
    assert painted(line(("x", f"{DIM};{RED}")), 9, with_colours=False) == "\x1b[1G\x1b[2mx\x1b[0m"


def test_columns_that_matter_less_go_first() -> None:
    def text(item: str) -> str:
        return item

    given = [Column("A", text, 4, 1), Column("B", text, 4, 0), Column("C", text, 4, 2, is_extra=True)]
    for width, headings in [(30, "ABC"), (26, "AB"), (10, "AB"), (9, "B"), (1, "B")]:
        found = placed(given, ["12345678"], width)
        assert "".join(each.column.heading for each in found) == headings
        assert sum(each.width + GAP for each in found) - GAP <= max(width, 4)


def test_one_long_text_does_not_take_all_the_room() -> None:
    given: list[Column[tuple[str, str]]] = [
        Column("A", lambda item: item[0], 4, 0),
        Column("B", lambda item: item[1], 4, 1),
    ]
    long, short = placed(given, [("x" * 500, "y" * 20)], 60)
    assert (short.width, long.width) == (20, 38)


def test_names_are_cut_in_the_middle() -> None:
    def text(item: str) -> str:
        return item

    (name,) = placed([Column("NAME", text, 4, 0, keeps_end=True)], ["x" * 99], 10)
    assert name.piece("report:12345").text == "repo…12345"
    assert name.piece("report:1").text == "report:1"
    assert cells(name.piece("备份备份备份备份").text) <= 10


@pytest.mark.parametrize("width", [1, 5, 20, 40, 79, 80, 81, 132, 200])
def test_rows_fit_into_every_width(width: int) -> None:
    rows = [held("备份" * 30, label="e\u0301" * 90, host="h" * 99, waiters=12345), held("x")]
    for each in placed(columns(NOW), rows, width, at=1):
        for row in rows:
            at, text, _ = each.piece(each.column.text(row))
            assert at >= each.at
            assert at + cells(text) <= max(width, 1 + each.column.least)


@pytest.mark.parametrize(
    ("per_second", "words"), [(None, "?"), (0.0, "0"), (0.25, "≥0.25/s"), (3.14, "≥3.1/s"), (12345.0, "≥12,345/s")]
)
def test_rates_are_what_happens_at_least(per_second: float | None, words: str) -> None:
    assert rate(per_second) == words


def test_what_is_not_known_is_a_question_mark() -> None:
    foreign = row_of(LockInfo("job", "their id", 0, None, "", 0, None, math.inf, 0), sees_waiters=False)
    state = State()
    state.see(view(foreign))
    text = plain(picture(state, 80, 10), 80)
    assert re.search(r"job +lock +- +other software +\? +never +\? +\?", text)
    assert "? " in text.splitlines()[1]


def test_a_picture_has_as_many_lines_as_the_screen() -> None:
    state = seeing(*"abcdefghijklmnop")
    for page in ("", "?", "\r", "b"):
        state = seeing(*"abcdefghijklmnop")
        for key in page:
            state.press("enter" if key == "\r" else key)
        for height in (1, 2, 5, 24):
            assert len(picture(state, 40, height)) == height


def test_rows_of_a_store_that_is_gone_are_grey_and_it_says_why() -> None:
    state = seeing("a", "b")
    state.where = "redis://vm"
    state.see(view(held("a"), held("b"), error=StoreUnavailable("redis://vm is gone"), number=2))
    lines = picture(state, 80, 10)
    assert "retrying: is gone" in plain([lines[2]], 80)
    assert [DIM in each.style for each in lines[4:6]] == [True, True]


def test_an_address_that_was_never_reached_is_named() -> None:
    state = State("redis://vm")
    state.see(View(error=StoreUnavailable("redis://u:secret@vm is gone"), number=1))
    text = plain(picture(state, 80, 10), 80)
    assert "redis://vm" in text.splitlines()[0]
    assert "secret" not in text


def test_a_store_that_does_not_answer_is_told_before_it_is_given_up() -> None:
    state = seeing("a")
    state.silent_for = 4.2
    assert "has not answered for 4s" in plain(picture(state, 80, 10), 80)


def test_the_cursor_moves_and_the_rows_scroll() -> None:
    state = seeing(*(f"{n:02}" for n in range(30)))
    state.press("end")
    assert (state.chosen.name, state.first) == ("29", 20)
    state.press("pageup")
    state.press("up")
    assert (state.chosen.name, state.first) == ("18", 18)
    state.press("home")
    assert (state.chosen.name, state.first) == ("00", 0)


def test_the_cursor_follows_its_row_into_another_scan() -> None:
    state = seeing("b", "c")
    state.press("down")
    state.see(view(held("a"), held("b"), held("c"), number=2))
    state.fit(10)
    assert state.chosen.name == "c"
    state.see(view(held("a"), number=3))
    state.fit(10)
    assert state.chosen.name == "a"


def test_a_question_is_about_the_row_that_was_seen_when_it_was_asked() -> None:
    state = seeing("a", "b")
    state.press("b")
    state.see(view(held("b"), number=2))
    state.fit(10)
    wish = state.press("y")
    assert isinstance(wish, Break)
    assert wish.row.name == "a"


@pytest.mark.parametrize("key", ["n", "enter", "escape", "q", "paste:y", "b", " "])
def test_only_y_breaks(key: str) -> None:
    state = seeing("a")
    state.press("b")
    assert state.press(key) is None
    assert (state.question, state.message) == (None, "Nothing was changed.")


def test_nothing_is_broken_where_nothing_is_held() -> None:
    state = seeing()
    assert state.press("b") is None
    assert state.question is None
    assert state.press("enter") is None
    assert state.page == "list"


def test_escape_takes_back_what_was_typed_and_enter_keeps_it() -> None:
    state = seeing("a", "b")
    for key in ("/", "b", "enter", "/", "x", "escape"):
        state.press(key)
    state.fit(10)
    assert (state.filter, [row.name for row in state.rows]) == ("b", ["b"])


def test_keys_mean_what_they_are_in_a_filter() -> None:
    state = seeing("a")
    for key in "/qb?":
        assert state.press(key) is None
    assert (state.filter, state.page) == ("qb?", "list")


def test_q_leaves_what_is_looked_at_and_then_the_program() -> None:
    state = seeing("a")
    state.press("enter")
    assert (state.press("q"), state.page) == (None, "list")
    assert state.press("q") == "quit"
