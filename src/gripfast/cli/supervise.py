"""The command must not outlive the lease.

    validity left │ what happens
    ──────────────┼──────────────────────────────────────────────────────────────────
    > grace       │ nothing; signals are passed on
    ≤ grace       │ the renewals must be failing: TERM, once for each time this happens
    ≤ MARGIN      │ KILL, to the command and to all that it left behind

It looks at the lease's own clock at least every PACE seconds, and kills a moment before the deadline rather than a
moment after. A lease that was broken or taken has no validity left at all.

A command that got TERM or KILL for this reason has lost its lock, whatever is left of the ttl: gripfast says so, and
observers are told of one loss.

What belongs to another user may not be signalled (the command is `sudo …`). That is said, and the process waited for,
while the lock is renewed as ever; if the lock is lost, everything else is killed, and it is waited for all the same:
the caller that reads our exit status may start the next command.

A TERM that ends the command ends its session: what is left there gets it, too, and the lock is kept until all are gone.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from gripfast import Lease, LeaseLost
from gripfast.cli import codes
from gripfast.cli import signals as sig
from gripfast.cli.failure import say
from gripfast.cli.kinds import called
from gripfast.cli.spawn import Command
from gripfast.errors import visible, why_lost

PACE = 0.25
MARGIN = 0.1

KEPT = "the lock is kept until the process has ended"

_ASKS_TO_END = frozenset({signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGQUIT", signal.SIGTERM)})
"""Not SIGHUP, by which many a command reads its configuration again."""
_SILENT = frozenset({getattr(signal, "SIGCHLD", 0)})


class Ending(NamedTuple):
    status: int | None
    """Of the command; None if it was killed because the lock was lost."""
    warned: bool
    """It got TERM because the lock was about to be lost."""
    complete: bool
    """Nothing that had to be killed is left."""
    refused: bool = False
    """Some of it could not be killed, and has ended by itself."""
    asked_to_end: bool = False
    """A signal asked gripfast, and so the command, to end."""
    why: str = ""
    """Why the lock was lost, or was about to be."""


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
        self._was_terminated = False
        self._asked_to_end = False
        self._terminated: set[int] = set()

    def watch(self) -> Ending:
        """Until the command has ended, by itself or by us."""
        while self._is_at_work():
            left = self._lease.remaining()
            if left <= self._margin:
                return self._end(None)
            self._warn(left)
            if not self._suspended_with_command():
                self._pass_on(self._signals.next(self._pause(left)))
        status = self._command.poll()
        return self._end(status) if self._warned else Ending(status, False, True)

    def _is_at_work(self) -> bool:
        status = self._command.poll()
        if status is None or not self._was_terminated or status != codes.of_signal(signal.SIGTERM):
            return status is None
        left = self._command.left_behind()
        self._say_refused(signal.SIGTERM, self._command.send_to(left - self._terminated, signal.SIGTERM))
        self._terminated = left
        return bool(left)

    def _warn(self, left: float) -> None:
        was_in_danger, self._in_danger = self._in_danger, left <= self._grace
        if self._in_danger and not was_in_danger:
            self._warned = True
            self._send(signal.SIGTERM)
            if self._command.stopped:
                self._send(signal.SIGCONT)

    def _send(self, signum: int) -> None:
        self._say_refused(signum, self._command.send(signum))

    def _say_refused(self, signum: int, refused: set[int]) -> None:
        for pid in sorted(refused):
            _say_refused(signum, pid, KEPT)

    def _end(self, status: int | None) -> Ending:
        lost = f"the {called(self._lease)} {visible(self._lease.name)} is lost"
        meanwhile = f"{lost}, and gripfast waits until the process has ended"
        why = _why(self._lease)
        complete, refused = end_family(self._command, self._signals, meanwhile)
        self._lease._give_up()
        return Ending(status, self._warned, complete, refused, self._asked_to_end, why)

    def _pause(self, left: float) -> float:
        next_moment = left - (self._margin if self._in_danger else self._grace)
        return min(PACE, next_moment)

    def _pass_on(self, caught: sig.Caught | None) -> None:
        if caught is None or caught.signum in _SILENT:
            return
        self._asked_to_end |= caught.signum in _ASKS_TO_END
        self._terminal_stops |= caught.from_terminal and caught.signum in sig.STOPPING
        if not (caught.from_terminal and self._command.shares_our_terminal()):
            self._was_terminated |= caught.signum == signal.SIGTERM
            self._send(caught.signum)

    def _suspended_with_command(self) -> bool:
        """After Ctrl-Z the shell wants us stopped too; but not before the command, which may go on regardless.

        Nothing is renewed meanwhile. Afterwards the lease is looked at before anything else.
        """
        if not (self._terminal_stops and self._command.stopped):
            return False
        self._terminal_stops = False
        sig.suspend()
        return True


def _why(lease: Lease) -> str:
    try:
        lease.ensure_held()
    except LeaseLost as lost:
        return why_lost(lost)
    return "it could not be renewed in time"


def end_family(command: Command, signals: sig.Signals, meanwhile: str) -> tuple[bool, bool]:
    """Kill all of it, and wait for what we may not kill: whether all is gone, and whether there was such a one."""
    told: set[int] = set()
    while (killed := command.end()).refused:
        for pid in sorted(killed.refused - told):
            _say_refused(signal.SIGKILL, pid, meanwhile)
        told |= killed.refused
        signals.next(PACE)
    return killed.complete, bool(told)


def _say_refused(signum: int, pid: int, meanwhile: str) -> None:
    name = signal.Signals(signum).name
    say(f"can't send {name} to process {pid} (does it run as another user?): {meanwhile}")
