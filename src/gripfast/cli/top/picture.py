"""From the state to the lines of a screen."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from gripfast.api.rows import Holder, Row, Scan
from gripfast.api.watching import View
from gripfast.cli import permits, text
from gripfast.cli.failure import redacted
from gripfast.cli.top.grid import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    RED,
    REVERSE,
    UNDERLINED,
    YELLOW,
    Column,
    Line,
    Piece,
    Placed,
    line,
    placed,
)
from gripfast.cli.top.state import Page, State, holders_of
from gripfast.columns import cells, clipped, head
from gripfast.durations import shown
from gripfast.errors import visible

HEAD = 4
"""Lines above the rows: where, figures, status, headings."""
FACT = 12
SILENT = 3.0
"""Seconds without an answer of which the user is told."""
KEYS = (
    ("↑ ↓", "move; also PgUp PgDn Home End"),
    ("Enter", "show one row; Esc goes back"),
    ("s", "sort by the next column"),
    ("< > r", "sort both ways, or reversed"),
    ("/", "filter by words; Esc clears it"),
    ("b", "break: by force, asks first"),
    ("p", "pause, and go on"),
    ("u", "scan the store now"),
    ("q", "quit"),
)
ABOUT = """RATE is how often a name is acquired, at least: top counts the tokens that changed between two scans.
LEFT is the time until a lock expires unless its holder renews it. KIND “kept” or “done”: nobody is at work, but the
name is taken, for its min_hold or by once()."""
HINTS: dict[Page, Sequence[tuple[str, str]]] = {
    "list": [
        ("↵", "show"), ("/", "filter"), ("s", "sort"), ("b", "break"), ("p", "pause"), ("?", "help"), ("q", "quit"),
    ],
    "one": [("Esc", "back"), ("b", "break"), ("p", "pause"), ("?", "help")],
    "help": [("any key", "back")],
}  # fmt: skip


def held_for(each: Holder, now: datetime) -> str:
    seconds = each.held_for(now)
    return "?" if seconds is None else shown(seconds)


def left(seconds: float) -> str:
    return "never" if math.isinf(seconds) else shown(seconds)


def who(each: Holder) -> str:
    if each.state == "foreign":
        return "other software"
    return each.host or "somebody" if each.kept else f"{each.host or '?'}:{each.pid}"


def use(row: Row) -> str:
    if row.kind == "semaphore":
        return f"sem {row.in_use}/{row.limit}"
    if row.kind == "rwlock":
        return "write" if row.mode == "write" else f"read {len(row.holders)}"
    return {"done": "done", "min_hold": "kept"}.get(row.holders[0].state, "lock")


def rate(per_second: float | None) -> str:
    if not per_second:
        return "?" if per_second is None else "0"
    return f"≥{per_second:.2g}/s" if per_second < 99.5 else f"≥{per_second:,.0f}/s"


def _whose(row: Row) -> str:
    others = len(row.holders) - 1
    return who(row.holders[0]) + (f" +{others}" if others else "")


def _label(row: Row) -> str:
    return next((each.label for each in row.holders if each.label), "-")


def _waiting(row: Row) -> str:
    return row.waiting


def columns(now: datetime) -> list[Column[Row]]:
    """`now`: when the store was looked at."""

    def since(row: Row) -> str:
        return "?" if row.since is None else shown((now - row.since).total_seconds())

    def age(row: Row) -> str:
        return DIM if row.holders[0].kept else ""

    return [
        Column("NAME", lambda row: row.name, 12, 0, style=lambda row: age(row) or BOLD, order="name", keeps_end=True),
        Column("KIND", use, 7, 5, style=age, order="kind"),
        Column("LABEL", _label, 8, 7, style=lambda row: CYAN if _label(row) != "-" else DIM),
        Column("HOLDER", _whose, 9, 3, style=age, order="host"),
        Column("HELD", since, 7, 1, True, age, "held"),
        Column("LEFT", lambda row: left(row.expires_in), 6, 6, True, age, "expires"),
        Column("WAIT", _waiting, 5, 2, True, lambda row: f"{BOLD};{YELLOW}" if row.waiters else DIM, "waiting"),
        Column("RATE", lambda row: rate(row.rate), 6, 4, True, lambda row: GREEN if row.rate else DIM, "rate"),
        Column("TOKEN", lambda row: str(row.token), 6, 8, True, age, is_extra=True),
    ]


def holder_columns(now: datetime, kind: str) -> list[Column[tuple[Row, Holder]]]:
    def share(of: tuple[Row, Holder]) -> str:
        return ",".join(map(str, of[1].slots)) if kind == "semaphore" else str(of[0].mode)

    return [
        Column("SLOTS" if kind == "semaphore" else "MODE", share, 5, 2),
        Column("LABEL", lambda of: of[1].label or "-", 8, 3, style=lambda of: CYAN if of[1].label else DIM),
        Column("HOLDER", lambda of: who(of[1]), 9, 0),
        Column("HELD", lambda of: held_for(of[1], now), 7, 1, True),
        Column("LEFT", lambda of: left(of[1].expires_in), 6, 4, True),
        Column("TOKEN", lambda of: str(of[1].token), 6, 5, True, is_extra=True),
        Column("OWNER", lambda of: of[1].owner, 10, 6, style=lambda _: DIM),
    ]


def picture(state: State, width: int, height: int) -> list[Line]:
    """As many lines as the screen has. Tells the state how many rows there is room for."""
    state.fit(height - HEAD - 1)
    page = {"list": _list, "one": _one, "help": _help}[state.page]
    foot = _foot(state, width)[-height:]
    body = [*_top(state, width), *page(state, width)][: height - len(foot)]
    return [*body, *[Line()] * (height - len(foot) - len(body)), *foot]


def _top(state: State, width: int) -> Iterator[Line]:
    scan = state.view.scan
    yield _title(state, width)
    yield _figures(scan, state)
    yield _status(state, width)


def _title(state: State, width: int) -> Line:
    scan = state.view.scan
    clock = f"{scan.wall.astimezone(UTC):%H:%M:%S} UTC" if scan else ""
    room = width - 14 - len(clock) - 2
    if room < 8:
        return line(("gripfast top  ", BOLD), state.where)
    title = line(("gripfast top  ", BOLD), clipped(visible(state.where), room))
    return Line([*title.pieces, Piece(width - len(clock), clock, DIM)])


def _figures(scan: Scan | None, state: State) -> Line:
    if scan is None:
        return line("")
    waiting = sum(row.waiters or 0 for row in scan.rows)
    can_tell = all(row.waiters is not None for row in scan.rows)
    total = state.view.rate
    return line(
        (f"{len(scan.rows):,}", BOLD),
        " held   ",
        (f"{waiting:,}" if can_tell else "?", f"{BOLD};{YELLOW}" if waiting else BOLD),
        " waiting   ",
        (rate(total), f"{BOLD};{GREEN}" if total else BOLD),
        " entries",
    )


def _status(state: State, width: int) -> Line:
    """The most important thing that there is to say."""
    view = state.view
    if state.message:
        return line((clipped(visible(state.message), width), YELLOW))
    if view.error is not None:
        return line((_unreachable(state, view), f"{BOLD};{RED}"))
    if state.silent_for > max(SILENT, 2 * view.scan.took if view.scan else 0.0):
        return line((f"The store has not answered for {shown(state.silent_for)}.", YELLOW))
    if view.scan is None:
        return line(("Scanning the store …", DIM))
    words = [*_choices(state), *view.scan.notes]
    return line((clipped(visible("   ".join(words)), width), DIM))


def _choices(state: State) -> Iterator[str]:
    if state.is_paused:
        yield "PAUSED: p goes on"
    if state.filter and not state.is_typing:
        yield f"{len(state.rows):,} match{'es' * (len(state.rows) == 1)} “{state.filter}”"
    first = min(len(state.rows), state.first + 1)
    if len(state.rows) > state.room and state.page == "list":
        yield f"rows {first:,}–{min(len(state.rows), state.first + state.room):,} of {len(state.rows):,}"


def _unreachable(state: State, view: View) -> str:
    """Where it is stands above."""
    why = redacted(str(view.error)).removeprefix(state.where).strip().removeprefix("can't be reached: ")
    return f"Unreachable for {shown(time.monotonic() - view.error_since)}, retrying: {why}"


def _list(state: State, width: int) -> Iterator[Line]:
    scan = state.view.scan
    if scan is None:
        return
    seen = state.rows[state.first : state.first + state.room]
    grid = placed(columns(scan.wall), seen, width, at=1)
    yield Line([_heading(each, state) for each in grid], f"{UNDERLINED};{BOLD}")
    for index, row in enumerate(seen, state.first):
        yield _row(grid, row, index == state.index, state.view.error is not None)
    if not seen:
        yield Line()
        yield line((f" {_nothing(state)}", DIM))


def _nothing(state: State) -> str:
    if state.filter:
        return "Nothing that is held matches the filter. Esc clears it."
    return "Nothing is held."


def _heading(each: Placed[Row], state: State) -> Piece:
    is_sorted = each.column.order == state.order
    sign = ("▴" if state.is_backwards else "▾") if is_sorted else ""
    return each.piece(f"{each.column.heading}{sign}")


def _row(grid: Sequence[Placed[Row]], row: Row, is_chosen: bool, is_stale: bool) -> Line:
    whole = ";".join([REVERSE] * is_chosen + [DIM] * is_stale)
    pieces = [each.piece(each.column.text(row), "" if whole else each.column.style(row)) for each in grid]
    return Line([Piece(0, "▸"), *pieces] if is_chosen else pieces, whole)


def _one(state: State, width: int) -> Iterator[Line]:
    row, scan = state.one, state.view.scan
    if row is None or scan is None:
        return
    yield Line()
    for part in _wrapped(visible(row.name), width):
        yield line((part, BOLD))
    if state.is_gone:
        yield line((clipped("Nobody holds it any more. What follows was seen last.", width), YELLOW))
    single = row.kind == "lock"
    for key, value in (_facts(row, row.holders[0], scan.wall) if single else _facts_of_permits(row)).items():
        yield from _fact(key, value, width, DIM if state.is_gone else "")
    if not single:
        yield Line()
        yield from _holders(row, state, scan.wall, width)


def _facts(row: Row, each: Holder, now: datetime) -> dict[str, str]:
    since = "unknown" if each.since is None else f"{each.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    forever = each.kept or math.isinf(each.expires_in)
    facts = {
        "label": each.label or "-",
        "holder": text.occupant(each),
        "held for": held_for(each, now),
        "since": since,
        "expires in": left(each.expires_in) + ("" if forever else " unless renewed"),
        "waiting": _queue(row),
        "entries": _entries(row),
        "token": str(each.token),
        "owner": each.owner,
    }
    return facts | ({"trace": each.trace} if each.trace else {})


def _facts_of_permits(row: Row) -> dict[str, str]:
    kind = "semaphore" if row.kind == "semaphore" else "read/write lock"
    return {"kind": kind, "in use": permits.usage(row), "waiting": _queue(row), "entries": _entries(row)}


def _queue(row: Row) -> str:
    return "this store can't tell" if row.waiters is None else f"{row.waiters:,}"


def _entries(row: Row) -> str:
    return (
        "not known yet"
        if row.rate is None
        else f"{rate(row.rate)}, counted by its tokens"
        if row.rate
        else "none lately"
    )


def _fact(key: str, value: str, width: int, style: str) -> Iterator[Line]:
    """On several lines if it must be: what is looked at is seen whole."""
    for at, part in enumerate(_wrapped(visible(value), width - FACT)):
        yield Line([Piece(0, "" if at else key, DIM), Piece(FACT, part, style)])


def _wrapped(words: str, width: int) -> Iterator[str]:
    width = max(4, width)
    while cells(words) > width:
        part = head(words, width)
        yield part
        words = words[len(part) :]
    yield words


def _holders(row: Row, state: State, now: datetime, width: int) -> Iterator[Line]:
    room = max(1, state.room - 8)
    first = max(0, state.holder - room + 1)
    seen = holders_of(row)[first : first + room]
    grid = placed(holder_columns(now, row.kind), seen, width, at=1)
    yield Line([each.piece(each.column.heading) for each in grid], f"{UNDERLINED};{BOLD}")
    for index, each in enumerate(seen, first):
        is_chosen = index == state.holder
        pieces = [place.piece(place.column.text(each), "" if is_chosen else place.column.style(each)) for place in grid]
        yield Line([Piece(0, "▸"), *pieces] if is_chosen else pieces, REVERSE if is_chosen else "")


def _help(_: State, width: int) -> Iterator[Line]:
    yield Line()
    yield from (Line([Piece(0, keys, BOLD), Piece(7, does)]) for keys, does in KEYS)
    yield Line()
    yield from (line((part, DIM)) for part in textwrap.wrap(ABOUT, max(10, width)))


def _foot(state: State, width: int) -> list[Line]:
    if state.question is not None:
        return list(_question(state.question.row, width))
    if state.is_typing:
        return [_prompt(state.filter, width)]
    hints = [*HINTS[state.page]]
    while len(hints) > 2 and sum(cells(key + does) + 3 for key, does in hints) - 2 > width:
        del hints[-3]  # how to get help and how to quit stay
    parts = [part for key, does in hints for part in ("  ", (key, BOLD), f" {does}")]
    return [line(*parts[1:])]


def _prompt(words: str, width: int) -> Line:
    words = visible(words)
    while cells(words) > width - 10:
        words = words[1:]
    return line(("Filter: ", BOLD), words, ("█", DIM))


def _question(row: Row, width: int) -> Iterator[Line]:
    """Over the last rows, so that nobody answers it unread."""
    yield Line(style=UNDERLINED)
    for part in _wrapped(f"Release “{visible(row.name)}” by force?", width):
        yield line((part, f"{BOLD};{RED}"))
    several = f"All of its {len(row.holders)} holders lose it. The first is"
    first = row.holders[0]
    who_has_it = f"held by {text.occupant(first)}" if first.kept else text.held_by(first)
    about = f"{several} {who_has_it}." if len(row.holders) > 1 else f"It is {who_has_it}."
    if first.kept:
        risk = "Then it can be acquired at once, although its min_hold is not over."
    else:
        risk = "The holder may still be at work: then only fencing tokens protect the data."
    for words in (about, risk):
        yield from (line(part) for part in textwrap.wrap(words, max(10, width)))
    yield line(("y", BOLD), " break it   ", ("any other key", BOLD), " leave it")
