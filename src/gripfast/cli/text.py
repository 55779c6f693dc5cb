"""What people and programs read: holders, tables, JSON."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from operator import itemgetter

from gripfast import LockInfo
from gripfast.api.rows import Holder, Row
from gripfast.columns import cells
from gripfast.durations import shown
from gripfast.errors import describe_holder, visible

HEADINGS = ("NAME", "LABEL", "HOST", "PID", "HELD FOR", "EXPIRES IN", "WAITERS", "TOKEN")
FOREIGN = "software other than Gripfast"
"""A key that other software has set: who that is, it does not tell."""

CUT_TO = {"NAME": 20, "HOST": 9, "LABEL": 8, "SLOTS": 5}
"""What may be cut on a narrow terminal, and to how many columns at least."""
FIRST = ("NAME", "HELD FOR", "HOST", "WAITERS", "KIND", "PID", "EXPIRES IN")
"""What stays longest there; what is not named goes first."""

_SINCE = {None: "held since", "done": "done at", "min_hold": "released at"}
"""Nobody holds what is kept."""


def held_for(info: LockInfo | Holder) -> str:
    return "?" if info.since is None else shown((datetime.now(UTC) - info.since).total_seconds())


def expires_in(info: LockInfo | Holder) -> str:
    return "never" if math.isinf(info.expires_in) else shown(info.expires_in)


def holder(info: LockInfo | None) -> str:
    """Who has it and since when, for a sentence."""
    if info is None:
        return "held, but the holder is unknown"
    if info.kept is not None:
        return describe_holder(info)
    return held_by(info)


def to_forget(name: str) -> str:
    return f"gripfast forget {shlex.quote(name)}"


def advice(forget: str, info: LockInfo | None, otherwise: str) -> str:
    """For who can't have the lock: what was done stays recorded for days. `forget`: what has it done again."""
    if info is None or info.kept != "done":
        return otherwise
    return f"This record keeps the name taken: use another name, or have it done again: {forget}"


def held_by(info: LockInfo | Holder) -> str:
    if info.since is None:
        return f"held by {FOREIGN} ({visible(info.owner)})"
    label = f'"{visible(info.label)}", ' if info.label else ""  # first: on a narrow terminal the rest is cut off
    return f"held by {label}pid {info.pid} on {visible(info.host)} for {held_for(info)} (since {_moment(info)})"


def has_room(info: LockInfo) -> bool:
    """For one more holder: never, but permits have it."""
    return False


def portrait(row: Row) -> str:
    """One lock on several lines."""
    return "\n".join([visible(row.name), *facts(row.holders[0], row.waiting)])


def facts(info: LockInfo | Holder, waiting: str | None = None, use: dict[str, str] | None = None) -> Iterator[str]:
    """One holder on several lines."""
    lines = {
        **(use or {}),
        "label": visible(info.label) if info.label else "-",
        "holder": occupant(info),
        _SINCE[info.kept]: "unknown" if info.since is None else f"{_moment(info)} ({held_for(info)})",
        "expires in": expires_in(info) + ("" if info.kept or math.isinf(info.expires_in) else " unless renewed"),
        "waiting": waiting,
        "token": str(info.token),
        "owner": visible(info.owner),
    }
    return (f"  {key:<12}{value}" for key, value in lines.items() if value is not None)


def occupant(info: LockInfo | Holder) -> str:
    """Who is at work, or why nobody is."""
    if info.kept is not None:
        what = "done" if info.kept == "done" else "released, but kept for its min_hold"
        return f"nobody: {what}, by {visible(info.host) or 'somebody'}"
    return FOREIGN if info.since is None else f"pid {info.pid} on {visible(info.host)}"


def human_table(rows: Sequence[Row]) -> str:
    return fitted([HEADINGS, *(_human_row(row, row.holders[0]) for row in rows)])


def plain_table(rows: Sequence[Row]) -> str:
    """Ten words a line, for awk and cut: no headings, exact values, blanks inside a word written as \\x20."""
    return aligned([line for row in rows for line in plain_rows(row)])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell + " " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def terminal_width() -> int | None:
    """None if no person reads it."""
    if not sys.stdout.isatty():
        return None
    import shutil  # with all the archives that it knows: most commands print no table

    return shutil.get_terminal_size().columns


def is_too_wide(table: str) -> bool:
    width = terminal_width()
    return width is not None and any(cells(line) > width for line in table.splitlines())


def fitted(rows: Sequence[Sequence[str]]) -> str:
    """With headings. On a terminal where that has no room, long texts are cut, and what matters least is left out: a
    table whose lines are broken is unreadable."""
    table, width = aligned(rows), terminal_width()
    if width is None or not is_too_wide(table):
        return table
    from gripfast.cli.top.grid import Column, placed  # for those who need it

    rank = {heading: place for place, heading in enumerate(FIRST)}
    columns = [
        Column[Sequence[str]](
            heading,
            itemgetter(at),
            CUT_TO.get(heading, width),
            rank.get(heading, len(rank)),
            keeps_end=heading == "NAME",
            is_extra=heading == "TOKEN",
        )
        for at, heading in enumerate(rows[0])
    ]
    lines = []
    grid = placed(columns, rows[1:], width)
    for row in rows:
        line = ""
        for piece in (each.piece(each.column.text(row)) for each in grid):
            line += " " * (piece.at - cells(line)) + piece.text
        lines.append(line)
    return "\n".join(lines)


def broken(info: LockInfo) -> str:
    """What to say when this holder has lost it by force."""
    return f"{info.name!r} is released; it was {holder(info)}"


def as_json(value: object) -> str:
    import json  # for those who want it

    return json.dumps(value, indent=2)


def row_as_dict(row: Row) -> dict[str, object]:
    """A lock has one holder: flat."""
    return {"name": row.name, **row.holders[0].to_json(), "waiters": row.waiters}


def holders_as_dict(row: Row) -> dict[str, object]:
    return {"holder": row_as_dict(row)}


def _moment(info: LockInfo | Holder) -> str:
    return "unknown" if info.since is None else f"{info.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _human_row(row: Row, each: Holder) -> Sequence[str]:
    return (visible(row.name), *holder_row(each), row.waiting, str(each.token))


def holder_row(info: LockInfo | Holder) -> Sequence[str]:
    """Label, host, pid, held for, expires in."""
    who = (visible(info.label) if info.label else "-", visible(info.host) or "?", pid(info))
    return (*who, held_for(info), expires_in(info))


def pid(info: LockInfo | Holder) -> str:
    """Or why there is nobody at work."""
    return {"done": "done", "min_hold": "kept"}[info.kept] if info.kept else str(info.pid)


def plain_rows(row: Row) -> Iterator[Sequence[str]]:
    """One for each holder. Programs count on the order: what is new comes last."""
    for each in row.holders:
        since = "-" if each.since is None else each.since.astimezone(UTC).isoformat(timespec="milliseconds")
        who = (word(row.name), word(each.label or "-"), word(each.host or "-"), str(each.pid), since)
        yield (*who, f"{each.expires_in:.3f}", row.waiting, str(each.token), each.state, row.kind)


def word(text: str) -> str:
    return visible(text).replace(" ", r"\x20")
