"""Facts of this machine: its boot clock, and which process is which.

A process is known by machine, boot, pid namespace, pid and start time. Only when all but the last two are
the same as ours can its pid be looked up here, and only a pid that is absent, or that started at another time, is proof
of death: "not allowed to look" and "another namespace" are unknown, never dead.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import NamedTuple

REFUSED = (ConnectionRefusedError, FileNotFoundError)
"""How the system says that nothing listens at an address, or at the path of a socket."""


def _boottime_clock() -> int | None:
    """The clock that also counts suspended time: BOOTTIME on Linux, MONOTONIC on macOS (not time.monotonic there)."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.CLOCK_BOOTTIME
    return time.CLOCK_MONOTONIC if sys.platform == "darwin" else None


_CLOCK = _boottime_clock()


def _new_boottime() -> functools.partial[float]:
    """A partial keeps this a single C call: it is read several times per acquisition."""
    return functools.partial(time.monotonic) if _CLOCK is None else functools.partial(time.clock_gettime, _CLOCK)


boottime = _new_boottime()
"""What this process goes by."""
shared_boottime = _new_boottime()
"""The same, for what other processes of this machine read as well: no test moves it."""
_ahead = [0.0]


def advance_boottime(seconds: float) -> None:
    """For `gripfast.testing`: from now on `boottime` is so many seconds later, also for those who have imported it.

    It never goes back. So a client of a real engine takes it for a while in which this process was suspended: it may
    give up a lease too early, and never holds one for too long.
    """
    _ahead[0] += seconds
    boottime.__setstate__((_moved_boottime, (), {}, None))  # type: ignore[attr-defined] # the only way to change one


def _moved_boottime() -> float:
    return shared_boottime() + _ahead[0]


def wall_us() -> int:
    """Wall clock in microseconds: what tokens start from."""
    return time.time_ns() // 1000


class _This:
    """This process. Kept here because asking the system costs more than all else that a check for a fork does."""

    pid = os.getpid()


this = _This()


def _after_fork() -> None:
    this.pid = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Process(NamedTuple):
    """One process, as far as another process of the same machine can recognise it."""

    machine: str
    boot: str
    namespace: str
    pid: int
    started: str


@functools.cache
def hostname() -> str:
    if hasattr(os, "uname"):
        return os.uname().nodename  # what gethostname() says, without loading all of `socket`
    import socket

    return socket.gethostname()


@functools.cache
def machine_id() -> str:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        if text := _read(path):
            return text
    import uuid

    return f"{uuid.getnode():012x}"


@functools.cache
def boot_id() -> str:
    """Changes with every boot, and with every time namespace: what the boot clock's readings belong to."""
    boot = _read("/proc/sys/kernel/random/boot_id") or _boot_session()
    return f"{boot} {_link('/proc/self/ns/time')}".strip()


def _boot_session() -> str:
    """What macOS has instead; elsewhere the moment of boot, rounded because both clocks are read apart."""
    import subprocess

    try:
        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, check=True, text=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return f"booted {round((time.time() - shared_boottime()) / 10)}"


def this_process() -> Process:
    """This process; cached per pid, because a fork changes it."""
    return _process_of(os.getpid())


@functools.lru_cache(maxsize=4)
def _process_of(pid: int) -> Process:
    return Process(machine_id(), boot_id(), _link("/proc/self/ns/pid"), pid, start_time(pid) or "")


def start_time(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; None if it can't be told."""
    stat = _read(f"/proc/{pid}/stat")
    # The command name may contain spaces and parentheses: fields are counted after the last one.
    return stat.rpartition(")")[2].split()[19] if stat else None


def is_gone(process: Process) -> bool:
    """True only if the system shows that this process no longer runs; unknown is False."""
    here = this_process()
    if (process.machine, process.boot, process.namespace) != (here.machine, here.boot, here.namespace):
        return False
    if process.pid == here.pid:
        return "" != process.started != here.started
    if not _can_look():
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_over(process)


def _can_look() -> bool:
    """Linux without /proc can't tell pid namespaces apart; on Windows signal 0 is Ctrl-C."""
    return sys.platform != "win32" and (sys.platform != "linux" or bool(this_process().namespace))


def _is_over(process: Process) -> bool:
    """The pid exists: but is it a zombie (whose other threads have ended too), or someone who came later?"""
    stat = _read(f"/proc/{process.pid}/stat")
    if not stat:
        return False
    fields = stat.rpartition(")")[2].split()
    state, threads, started = fields[0], int(fields[17]), fields[19]
    return (state in "ZX" and threads <= 1) or "" != process.started != started


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
