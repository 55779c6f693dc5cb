"""What docs/observing.md says of events and loggers is what the code has."""

import re
from typing import get_args

import gripfast
from gripfast.core.events import EventKind
from quality.tree import PACKAGE
from support.pages import page

PAGE = page("observing")


def first_cells(heading: str) -> list[str]:
    rows = PAGE.partition(f"\n| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [row.split("|")[1].strip().strip("`") for row in rows]


def test_the_page_has_every_event() -> None:
    assert tuple(first_cells("method")) == get_args(EventKind)


def test_the_page_names_fields_that_there_are() -> None:
    told = PAGE.partition("## The events")[2].partition("**Every claim")[0]
    fields = set(re.findall(r"`(\w+)`", told)) & {
        "at", "wall", "ttl", "name", "group", "owner", "store", "engine", "token", "queued", "trace", "holder_trace",
    }  # fmt: skip
    assert fields | {"waited", "held", "margin", "reason", "error", "request", "kind"} == set(gripfast.Event._fields)


def test_the_page_has_every_logger() -> None:
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    found = {name for text in sources for name in re.findall(r'getLogger\("(gripfast\.[a-z.]+)"\)', text)}
    assert set(first_cells("logger")) == found | {"gripfast.events"}
