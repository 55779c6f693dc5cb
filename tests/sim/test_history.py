"""A line of a history: the same everywhere, one for each event."""

import pytest

from gripfast_lab.sim.history import Event, line
from sim.events import asked, event, granted, world


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            asked(0, "p0/t1", until=2.0, patience=3.0, renews=True),
            "      0.000000  p0/t1        job      asked       until 2.000000 ttl 10.000000 patience 3.000000 renews",
        ),
        (
            granted(1.0000004, "p0/t1", 2**53 - 1),
            "      1.000000  p0/t1        job      granted     token 9007199254740991 until 10.000000",
        ),
        (event(12.5, "p0/t1", "released"), "     12.500000  p0/t1        job      released"),
        (
            world(2, "jumped", until=float("inf"), note="node clock +3.5 s"),
            "      2.000000  world        *        jumped      until inf (node clock +3.5 s)",
        ),
    ],
)
def test_a_line_is_laid_out_in_columns(event: Event, text: str) -> None:
    assert line(event) == text


@pytest.mark.parametrize("text", ["two\nlines", "\u2028", "grün", "\x1b[31m", "\U0001fae8"])
def test_whatever_a_name_or_a_note_holds_it_stays_one_line_of_ascii(text: str) -> None:
    shown = line(event(1, text, "failed", name=text, note=text))
    assert shown.isascii()
    assert shown.isprintable()
    assert shown.count(ascii(text)) == 3
