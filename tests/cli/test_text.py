"""What people and programs read."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from gripfast import LockInfo, LockTimeout
from gripfast.api.rows import row_of
from gripfast.cli.locks import _verdict
from gripfast.cli.text import (
    aligned,
    as_json,
    holder,
    human_table,
    plain_table,
    portrait,
    row_as_dict,
)
from gripfast.columns import cells, clipped
from gripfast.durations import shown
from gripfast.errors import visible

FOREIGN = LockInfo("job", "their id", 0, None, "", 0, None, math.inf, 0)
ROW = row_of(FOREIGN, sees_waiters=True)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0.0s"),
        (0.42, "0.4s"),
        (1, "1s"),
        (59.9, "59s"),
        (60, "1m 00s"),
        (3599, "59m 59s"),
        (3600, "1h 00m"),
        (86399, "23h 59m"),
        (90000, "1d 01h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, words: str) -> None:
    assert shown(seconds) == words


def test_what_could_steer_a_terminal_is_written_out() -> None:
    assert visible("a\x1b[31m\n\t\u202e备 é") == "a\\x1b[31m\\n\\t\\u202e备 é"


def test_wide_characters_take_two_columns() -> None:
    assert cells("a备é") == 4
    assert cells("e\u0301") == 1


def test_columns_are_aligned_by_what_a_terminal_shows() -> None:
    assert aligned([["a", "b"], ["备份", "c"]]) == "a     b\n备份  c"


@pytest.mark.parametrize(("width", "text"), [(20, "one two"), (7, "one two"), (6, "one t…"), (1, "…"), (0, "")])
def test_what_does_not_fit_is_cut(width: int, text: str) -> None:
    assert clipped("one two", width) == text


def test_a_lock_of_other_software_is_shown_as_what_it_is() -> None:
    shown = portrait(ROW)
    assert "software other than Gripfast" in shown
    assert "unknown\n" in shown
    assert "never\n" in shown
    assert "their id" in holder(FOREIGN)
    assert "never" in human_table([ROW])
    assert plain_table([ROW]).split()[8:] == ["foreign", "lock"]


def test_a_label_is_quoted() -> None:
    info = LockInfo("job", "id", 1, "by hand", "vm", 12, datetime.now(UTC), 30.0, 0)
    assert holder(info).startswith('held by "by hand", pid 12 on vm for 0.')


def test_what_is_not_known_of_it_is_null_in_json() -> None:
    told = json.loads(as_json(row_as_dict(ROW)))
    assert (told["since"], told["expires_in"]) == (None, None)


def test_nor_is_a_number_of_waiters_that_the_store_can_not_count() -> None:
    busy = LockTimeout("job", 0.0, FOREIGN)
    for sees_waiters, waiters in ((True, 0), (False, None)):
        verdict: Any = _verdict("job", 0.0, busy, sees_waiters)
        assert verdict["holder"]["waiters"] == waiters
