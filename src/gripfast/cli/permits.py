"""What people and programs read about semaphores and read/write locks; `text` has the same for locks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gripfast import LockInfo, PermitHolder, PermitInfo
from gripfast.cli import text
from gripfast.errors import visible

HEADINGS = ("NAME", "KIND", "LIMIT", "IN USE", "SLOTS", "HOLDERS", "WAITERS")
HOLDER_HEADINGS = ("LABEL", "HOST", "PID", "HELD FOR", "EXPIRES IN", "TOKEN", "OWNER")


def holder(info: PermitInfo) -> str:
    """Who has it, the one with the smallest token first, for a sentence."""
    first, others = _as_lock(info, info.holders[0]), len(info.holders) - 1
    more = f" and {_counted(others, 'other')}" if others else ""
    waiting = f", {info.waiters} waiting" if info.waiters else ""
    return f"{text.holder(first)}{more}: {_usage(info)}{waiting}"


def has_room(info: PermitInfo) -> bool:
    """Whoever wants one more permit, or to read, need not wait for anybody. A writer that waits is a waiter itself."""
    return not info.waiters and _in_use(info) < info.limit


def portrait(info: PermitInfo, some: Sequence[PermitHolder] = ()) -> str:
    """The whole on several lines, then a table of all holders, or some."""
    lines = {"kind": info.kind, "in use": _usage(info), "waiting": str(info.waiters)}
    use = "SLOTS" if info.kind == "semaphore" else "MODE"
    rows = [(use, *HOLDER_HEADINGS), *(_holder_row(info, each) for each in some or info.holders)]
    facts = (f"  {key:<12}{value}" for key, value in lines.items())
    return "\n".join([visible(info.name), *facts, *(f"  {row}" for row in text.aligned(rows).splitlines())])


def human_table(infos: Sequence[PermitInfo]) -> str:
    return text.aligned([HEADINGS, *((visible(info.name), *_row(info)) for info in infos)])


def plain_table(infos: Sequence[PermitInfo]) -> str:
    """Seven words a line, for awk and cut, without headings."""
    return text.aligned([(text.word(info.name), *_row(info)) for info in infos])


def info_as_dict(info: PermitInfo) -> dict[str, object]:
    """A read/write lock has no limit and no numbered permits."""
    use = {"limit": info.limit, "in_use": _in_use(info)} if info.kind == "semaphore" else {"mode": _mode(info)}
    return {"name": info.name, **use, "waiters": info.waiters, **holders_as_dict(info)}


def holders_as_dict(info: PermitInfo) -> dict[str, object]:
    return {"kind": info.kind, "holders": [_holder_as_dict(info, each) for each in info.holders]}


def broken(info: PermitInfo) -> str:
    """What to say when these holders have lost it by force: there may be others."""
    return f"{info.name!r} is no longer {holder(replace(info, waiters=0))}"


def _usage(info: PermitInfo) -> str:
    if info.kind == "semaphore":
        return f"{_in_use(info)} of {_counted(info.limit, 'permit')}"
    return _counted(len(info.holders), {"read": "reader", "write": "writer"}[_mode(info)])


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _in_use(info: PermitInfo) -> int:
    return sum(each.n for each in info.holders)


def _mode(info: PermitInfo) -> str:
    return "write" if any(each.is_writer for each in info.holders) else "read"


def _slots(slots: Sequence[int]) -> str:
    return ",".join(map(str, slots)) or "-"


def _row(info: PermitInfo) -> Sequence[str]:
    if info.kind == "semaphore":
        slots = sorted(slot for each in info.holders for slot in each.slots)
        use = (str(info.limit), str(_in_use(info)), _slots(slots))
    else:
        use = ("-", _mode(info), "-")
    return (info.kind, *use, str(len(info.holders)), str(info.waiters))


def _holder_row(info: PermitInfo, each: PermitHolder) -> Sequence[str]:
    use = _slots(each.slots) if info.kind == "semaphore" else _mode(info)
    _, *who, _, token = text.human_row(_as_lock(info, each))
    return (use, *who, token, visible(each.owner))


def _holder_as_dict(info: PermitInfo, each: PermitHolder) -> dict[str, object]:
    told = text.info_as_dict(_as_lock(info, each))
    del told["name"], told["waiters"]
    return told | ({"n": each.n, "slots": list(each.slots)} if info.kind == "semaphore" else {"mode": _mode(info)})


def _as_lock(info: PermitInfo, each: PermitHolder) -> LockInfo:
    """So that a holder reads the same everywhere."""
    who = (each.owner, each.token, each.label, each.host, each.pid, each.since, each.expires_in)
    return LockInfo(info.name, *who, info.waiters)
