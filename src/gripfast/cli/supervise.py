"""The command must not outlive the lease.

    validity left │ what happens
    ──────────────┼──────────────────────────────────────────────────────────────────
    > grace       │ nothing; signals are passed on
    ≤ grace       │ the renewals must be failing: TERM, once for each time this happens
    ≤ MARGIN      │ KILL, to the command and to all that it left behind

It looks at the lease's own clock at least every PACE seconds, and kills a moment before the deadline rather than a
moment after. A lease that was broken or taken has no validity left at all.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from gripfast import Lease
from gripfast.cli import signals as sig
from gripfast.cli.spawn import Command

PACE = 0.25
MARGIN = 0.1

_SILENT = frozenset({getattr(signal, "SIGCHLD", 0)})


class Ending(NamedTuple):
    status: int | None
    """Of the command; None if it was killed because the lock was lost."""
    warned: bool
    """It got TERM because the lock was about to be lost."""
    complete: bool
    """Nothing that had to be killed is left."""


def sane_grace(ttl: float) -> float:
    """Renewals start with two thirds of the ttl left, so a grace beyond half would stop healthy commands."""
    return ttl / 2


class Supervisor:
    def __init__(self, lease: Lease, command: Command, signals: sig.Signals, grace: float) -> None:
        self._lease = lease
        self._command = command
        self._signals = signals
        self._grace = grace
        self._margin = min(MARGIN, lease.ttl / 10)
        self._in_danger = False
        self._warned = False
        self._terminal_stops = False

    def watch(self) -> Ending:
        """Until the command has ended, by itself or by us."""
        while (status := self._command.poll()) is None:
            left = self._lease.remaining()
            if left <= self._margin:
                return Ending(None, self._warned, self._command.end())
            self._warn(left)
            if not self._suspended_with_command():
                self._pass_on(self._signals.next(self._pause(left)))
        return Ending(status, self._warned, self._command.end() if self._warned else True)

    def _warn(self, left: float) -> None:
        was_in_danger, self._in_danger = self._in_danger, left <= self._grace
        if self._in_danger and not was_in_danger:
            self._warned = True
            self._command.send(signal.SIGTERM)
            if self._command.stopped:
                self._command.send(signal.SIGCONT)

    def _pause(self, left: float) -> float:
        next_moment = left - (self._margin if self._in_danger else self._grace)
        return min(PACE, next_moment)

    def _pass_on(self, caught: sig.Caught | None) -> None:
        if caught is None or caught.signum in _SILENT:
            return
        self._terminal_stops |= caught.from_terminal and caught.signum in sig.STOPPING
        if not (caught.from_terminal and self._command.shares_our_terminal()):
            self._command.send(caught.signum)

    def _suspended_with_command(self) -> bool:
        """After Ctrl-Z the shell wants us stopped too; but not before the command, which may go on regardless.

        Nothing is renewed meanwhile. Afterwards the lease is looked at before anything else.
        """
        if not (self._terminal_stops and self._command.stopped):
            return False
        self._terminal_stops = False
        sig.suspend()
        return True
