"""The command's process.

On POSIX it begins as `child`, which waits at a gate: between its birth and the opening of the gate, `run` makes the
lock count for it. On Linux it dies with `run`, even by kill -9; elsewhere it ends by the signals that reach `run`, and
after a kill -9 of `run` the embedded store still sees that it lives. Windows has no gate either.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gripfast.cli import codes, family
from gripfast.cli.failure import Failure
from gripfast.cli.signals import Signals

CHILD = os.path.join(os.path.dirname(__file__), "child.py")

_PATIENCE = 2.0
_PAUSE = 0.005


class Killed(NamedTuple):
    complete: bool
    """All that could be killed is gone."""
    refused: set[int]
    """Pids of those that we may not signal: they live on."""


class Command:
    """A started command, for systems that have neither gates nor job control."""

    stopped = False

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        import subprocess  # only here

        self._process = subprocess.Popen(words, env=env, close_fds=False)
        self.pid = self._process.pid

    def open_gate(self) -> None:
        """Let the command begin."""

    def poll(self) -> int | None:
        """Its exit status as a shell tells it, once it has ended."""
        return self._process.poll()

    def send(self, signum: int) -> set[int]:
        """Pids of those that we may not signal."""
        try:
            self._process.send_signal(signum)
        except (OSError, ValueError):
            pass  # ended just now, or a signal this system can't send
        return set()

    def send_to(self, pids: set[int], signum: int) -> set[int]:
        """The same to members of its family."""
        return set()

    def left_behind(self) -> set[int]:
        """Pids of what goes on in its session although it has ended itself, as far as the system tells."""
        return set()

    def family(self) -> set[int]:
        """Pids of itself and of what it left behind, as far as the system tells."""
        return set() if self._process.poll() is not None else {self.pid}

    def shares_our_terminal(self) -> bool:
        """Whether a signal of the terminal reaches it without our help."""
        return True

    def end(self) -> Killed:
        """Kill it and all that it left behind. Costs nothing if it never began."""
        self._process.kill()
        self._process.wait()
        return Killed(True, set())


class GatedCommand(Command):
    def __init__(self, words: Sequence[str], env: Mapping[str, str], signals: Signals) -> None:
        family.adopt_orphans()
        at_child, self._gate = os.pipe()
        os.set_inheritable(at_child, True)
        whom = [str(at_child), str(os.getpid()), _listed(signals.inherited_mask), _listed(signals.ignored)]
        try:
            self.pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", CHILD, *whom, *words], env)
        finally:
            os.close(at_child)
        self._status: int | None = None
        self._session = os.getsid(0)

    def open_gate(self) -> None:
        try:
            os.write(self._gate, b"1")
        except BrokenPipeError:
            pass  # it was killed meanwhile; its exit status tells
        self._close_gate()

    def poll(self) -> int | None:
        while (event := family.next_event()) is not None:
            pid, status = event
            if pid == self.pid:
                self._note(status)
        return self._status

    def send(self, signum: int) -> set[int]:
        """To the command; once that has ended, to what it left behind in its session."""
        if self.poll() is None:
            self._session = os.getsid(self.pid)
        return self.send_to({self.pid} if self._status is None else self.left_behind(), signum)

    def send_to(self, pids: set[int], signum: int) -> set[int]:
        """Not collected yet, so the pids are still their own."""
        return {pid for pid in pids if not family.may_signal(pid, signum)}

    def left_behind(self) -> set[int]:
        return family.in_session(self.family(), self._session) - {self.pid}

    def family(self) -> set[int]:
        """Its own counts even where /proc hides other users'."""
        own = set() if self.poll() is not None else {self.pid}
        return own | family.children()

    def shares_our_terminal(self) -> bool:
        """A command with job control of its own, such as a shell, has left our process group."""
        return self.poll() is None and os.getpgid(self.pid) == os.getpgrp()

    def end(self) -> Killed:
        """Each one that ends hands its own children to us, until there are none, or none that we may kill."""
        self._close_gate()
        give_up = time.monotonic() + _PATIENCE
        while True:
            left = self.family()
            refused = self.send_to(left, signal.SIGKILL)
            if left == refused or time.monotonic() > give_up:
                break
            time.sleep(_PAUSE)
        return Killed(left == refused, refused)

    def _note(self, status: int) -> None:
        if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            self.stopped = os.WIFSTOPPED(status)
            return
        code = os.waitstatus_to_exitcode(status)
        self._status = code if code >= 0 else codes.of_signal(-code)

    def _close_gate(self) -> None:
        gate, self._gate = self._gate, -1
        if gate >= 0:
            os.close(gate)


def start(words: Sequence[str], env: Mapping[str, str], signals: Signals) -> Command:
    """Call it on the main thread: the kernel ends the command with the thread that started it."""
    if os.name == "posix":
        return GatedCommand(words, env, signals)
    try:
        return Command(words, env)
    except FileNotFoundError:
        raise Failure(codes.NO_COMMAND, f"command not found: {words[0]}") from None
    except OSError as error:
        raise Failure(codes.NOT_EXECUTABLE, f"can't execute {words[0]}: {error.strerror}") from None


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(str(int(number)) for number in numbers)
