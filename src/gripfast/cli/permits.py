"""What people and programs read about semaphores and read/write locks; `text` has the same for locks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gripfast import PermitInfo
from gripfast.api.rows import Holder, Row, row_of
from gripfast.cli import text
from gripfast.errors import visible

HEADINGS = ("NAME", "KIND", "LIMIT", "IN USE", "SLOTS", "HOLDERS", "WAITERS")
HOLDER_HEADINGS = ("LABEL", "HOST", "PID", "HELD FOR", "EXPIRES IN", "TOKEN", "OWNER")


def holder(info: PermitInfo) -> str:
    """Who has it, the one with the smallest token first, for a sentence."""
    row, others = row_of(info, sees_waiters=False), len(info.holders) - 1
    more = f" and {_counted(others, 'other')}" if others else ""
    waiting = f", {info.waiters} waiting" if info.waiters else ""
    return f"{text.held_by(row.holders[0])}{more}: {usage(row)}{waiting}"


def has_room(info: PermitInfo) -> bool:
    """Whoever wants one more permit, or to read, need not wait for anybody. A writer that waits is a waiter itself."""
    return not info.waiters and row_of(info, sees_waiters=False).in_use < info.limit


def portrait(row: Row, some: Sequence[Holder] = ()) -> str:
    """The whole on several lines, then a table of all holders, or some. Where that is too wide for the terminal, each
    holder has several lines, too: nothing is left out."""
    lines = {"kind": row.kind, "in use": usage(row), "waiting": row.waiting}
    use = "SLOTS" if row.kind == "semaphore" else "MODE"
    holders = some or row.holders
    rows = [(use, *HOLDER_HEADINGS), *(_holder_row(row, each) for each in holders)]
    facts = [visible(row.name), *(f"  {key:<12}{value}" for key, value in lines.items())]
    table = "\n".join(f"  {line}" for line in text.aligned(rows).splitlines())
    if not text.is_too_wide(table):
        return "\n".join([*facts, table])
    each_use = ({use.lower(): words[0]} for words in rows[1:])
    blocks = (text.facts(each, use=said) for each, said in zip(holders, each_use, strict=True))
    return "\n".join([*facts, *(line for block in blocks for line in ("", *block))])


def human_table(rows: Sequence[Row]) -> str:
    return text.fitted([HEADINGS, *((visible(row.name), *_row(row)) for row in rows)])


def plain_table(rows: Sequence[Row]) -> str:
    """Seven words a line, for awk and cut, without headings."""
    return text.aligned([(text.word(row.name), *_row(row)) for row in rows])


def row_as_dict(row: Row) -> dict[str, object]:
    return row.to_json()


def holders_as_dict(row: Row) -> dict[str, object]:
    return {"kind": row.kind, "holders": row.holders_as_json()}


def broken(info: PermitInfo) -> str:
    """What to say when these holders have lost it by force: there may be others."""
    return f"{info.name!r} is no longer {holder(replace(info, waiters=0))}"


def usage(row: Row) -> str:
    """How much of it is in use, for a sentence."""
    if row.kind == "semaphore":
        return f"{row.in_use} of {_counted(row.limit, 'permit')}"
    return _counted(len(row.holders), "writer" if row.mode == "write" else "reader")


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _slots(slots: Sequence[int]) -> str:
    return ",".join(map(str, slots)) or "-"


def _row(row: Row) -> Sequence[str]:
    if row.kind == "semaphore":
        use = (str(row.limit), str(row.in_use), _slots(row.slots))
    else:
        use = ("-", str(row.mode), "-")
    return (row.kind, *use, str(len(row.holders)), row.waiting)


def _holder_row(row: Row, each: Holder) -> Sequence[str]:
    use = _slots(each.slots) if row.kind == "semaphore" else str(row.mode)
    return (use, *text.holder_row(each), str(each.token), visible(each.owner))
