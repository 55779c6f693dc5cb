"""The processes of the command: itself, and what it started and left behind.

A shell that is told to end does so, and its own command goes on. On Linux such orphans become children of `run` (it is
their subreaper), so that when the lock is lost nothing of the family survives. When the command ends by itself, what it
left behind is left alone: daemons are started that way.

Processes of another user (the command is `sudo …`, or has started one) can't be signalled by a plain user. They are
told apart from those that can: `run` says so and waits for them.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def may_signal(pid: int, signum: int) -> bool:
    """Send the signal to a child that was not collected yet: so the pid is its own. False if that is not allowed."""
    try:
        os.kill(pid, signum)
    except PermissionError:
        return False
    return True


def next_event() -> tuple[int, int] | None:
    """Pid and status of a child, ours or adopted, that ended, stopped or went on. Only one thread may ask."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def children() -> set[int]:
    """Pids of our own children, running or not; their parent is the second field after the name."""
    return {int(entry) for entry in _listed_processes() if _stat(entry)[1:2] == [str(os.getpid())]}


def in_session(pids: set[int], session: int) -> set[int]:
    return {pid for pid in pids if _stat(str(pid))[3:4] == [str(session)]}


def _listed_processes() -> list[str]:
    return [entry for entry in os.listdir("/proc") if entry.isdecimal()] if sys.platform == "linux" else []


def _stat(entry: str) -> list[str]:
    """State, parent, group, session and so on; nothing if it has gone, or may not be looked at."""
    try:
        with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []
