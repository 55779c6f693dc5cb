"""Holder details: what a holder or waiter leaves at an engine, for people, and on this machine for the check that its
process still lives.

Whoever can write to the engine can write them, so reading never fails: details that make no sense are those of a holder
that is not known.
"""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeGuard

from gripfast import machine
from gripfast.core.ports import Label, LockInfo, Traced
from gripfast.machine import Process

PID_MOST = 2**31 - 1
TRACE_MOST = 128
"""Characters: a `traceparent` has 55."""


class Details(NamedTuple):
    """What people are told about a holder."""

    host: str = ""
    label: str | None = None
    pid: int = 0
    trace: str | None = None


def told(label: Label) -> dict[str, str | None]:
    """What the caller tells, as it stands in the details. Versions that know no traces read past them."""
    return {"label": label.label, "trace": label.trace} if isinstance(label, Traced) else {"label": label}


def read_details(text: str | bytes) -> Details | None:
    """None if it has none."""
    data = read_object(text)
    host, label, pid = data.get("host"), data.get("label"), data.get("pid")
    if not isinstance(host, str) or not isinstance(label, str | None) or not _is_pid(pid):
        return None
    return Details(host, label, pid, _read_trace(data))


def _read_trace(data: dict[str, Any]) -> str | None:
    trace = data.get("trace")
    return trace if isinstance(trace, str) and len(trace) <= TRACE_MOST else None


def read_object(text: str | bytes) -> dict[str, Any]:
    """Empty if it is none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def read_moment(microseconds: float) -> datetime | None:
    """None if it is no time that a calendar has."""
    try:
        return datetime.fromtimestamp(microseconds / 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def lock_info(
    name: str, owner: str, token: int, holder: Details | Holder, since_us: float, expires_in: float, waiters: int
) -> LockInfo:
    """With what is known of the holder."""
    since = read_moment(since_us)
    return LockInfo(name, owner, token, holder.label, holder.host, holder.pid, since, expires_in, waiters, holder.trace)


def _is_pid(pid: object) -> TypeGuard[int]:
    return type(pid) is int and 0 <= pid <= PID_MOST


class Holder(NamedTuple):
    host: str
    label: str | None
    processes: tuple[Process, ...]
    """The holder's own process first, then those that were vouched for: it is gone when all of them are."""
    trace: str | None = None

    @property
    def pid(self) -> int:
        return self.processes[0].pid if self.processes else 0


def write_holder(label: Label) -> str:
    """The details of this process."""
    text, trace = label if isinstance(label, Traced) else (label, None)
    return dump_holder(Holder(machine.hostname(), text, (machine.this_process(),), trace))


def vouched_for(text: str, pid: int) -> str:
    """The same with another process of this machine."""
    holder = read_holder(text)
    here = machine.this_process()
    other = Process(here.machine, here.boot, here.namespace, pid, machine.start_time(pid) or "")
    return dump_holder(holder._replace(processes=(*holder.processes, other)))


def without_process(text: str) -> str:
    """The same, of nobody whose death would end it."""
    return dump_holder(read_holder(text)._replace(processes=()))


def is_gone(text: str) -> bool:
    """Whether every process in it is provably dead."""
    processes = read_holder(text).processes
    return bool(processes) and all(machine.is_gone(process) for process in processes)


@functools.lru_cache(maxsize=1024)
def read_holder(text: str) -> Holder:
    data = read_object(text)
    host, label, processes = data.get("host"), data.get("label"), data.get("processes")
    if not isinstance(host, str) or not isinstance(label, str | None) or not _are_processes(processes):
        return Holder("", None, ())
    return Holder(host, label, tuple(Process(*process) for process in processes), _read_trace(data))


def _are_processes(found: Any) -> TypeGuard[list[list[Any]]]:
    return isinstance(found, list) and all(isinstance(each, list) and _is_process(each) for each in found)


def _is_process(found: list[Any]) -> bool:
    if [type(part) for part in found] != [str, str, str, int, str]:
        return False
    return found[3] > 0 and _is_pid(found[3])


def dump_holder(holder: Holder) -> str:
    processes = [[p.machine, p.boot, p.namespace, p.pid, p.started] for p in holder.processes]
    traced = {} if holder.trace is None else {"trace": holder.trace}
    return json.dumps({"host": holder.host, "label": holder.label, "processes": processes, **traced})
