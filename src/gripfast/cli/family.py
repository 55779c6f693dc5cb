"""Processes that the command started and left behind.

A shell that is told to end does so, and its own command goes on. On Linux such orphans become children of `run` (it is
their subreaper), so that when the lock is lost nothing of the family survives. When the command ends by itself, what it
left behind is left alone: daemons are started that way.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 2.0
_PAUSE = 0.005


def adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_what_is_left() -> bool:
    """Kill our children until there are none: each one that ends hands its own children to us. False if some resist."""
    give_up = time.monotonic() + _PATIENCE
    while _has_children():
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up:
            return False
        time.sleep(_PAUSE)
    return True


def _has_children() -> bool:
    """Collects those that have ended. Only this thread does, so a pid seen by it can't have been given away again."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    """Pids of our own children, running or not; their parent is the second field after the name."""
    found = []
    for entry in os.listdir("/proc") if sys.platform == "linux" else []:
        try:
            with open(f"/proc/{int(entry)}/stat", encoding="utf-8", errors="replace") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
        except (ValueError, OSError):
            continue
        if parent == os.getpid():
            found.append(int(entry))
    return found
