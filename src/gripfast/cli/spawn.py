"""The command's process.

On POSIX it begins as `child`, which waits at a gate: between its birth and the opening of the gate, `run` makes the
lock count for it. On Linux it dies with `run`, even by kill -9; elsewhere it ends by the signals that reach `run`, and
after a kill -9 of `run` the embedded store still sees that it lives. Windows has no gate either.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gripfast.cli import codes
from gripfast.cli.failure import Failure
from gripfast.cli.family import adopt_orphans, end_what_is_left
from gripfast.cli.signals import Signals

CHILD = Path(__file__).with_name("child.py")


class Command:
    """A started command, for systems that have neither gates nor job control."""

    stopped = False

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(words, env=env, close_fds=False)
        self.pid = self._process.pid

    def open_gate(self) -> None:
        """Let the command begin."""

    def poll(self) -> int | None:
        """Its exit status as a shell tells it, once it has ended."""
        return self._process.poll()

    def send(self, signum: int) -> None:
        try:
            self._process.send_signal(signum)
        except (OSError, ValueError):
            pass  # ended just now, or a signal this system can't send

    def shares_our_terminal(self) -> bool:
        """Whether a signal of the terminal reaches it without our help."""
        return True

    def end(self) -> bool:
        """Kill it and all that it left behind; False if something resists. Costs nothing if it never began."""
        self._process.kill()
        self._process.wait()
        return True


class GatedCommand(Command):
    def __init__(self, words: Sequence[str], env: Mapping[str, str], signals: Signals) -> None:
        adopt_orphans()
        at_child, self._gate = os.pipe()
        os.set_inheritable(at_child, True)
        whom = [str(at_child), str(os.getpid()), _listed(signals.inherited_mask), _listed(signals.ignored)]
        try:
            super().__init__([sys.executable, "-I", "-S", str(CHILD), *whom, *words], env)
        finally:
            os.close(at_child)
        self._status: int | None = None

    def open_gate(self) -> None:
        try:
            os.write(self._gate, b"1")
        except BrokenPipeError:
            pass  # it was killed meanwhile; its exit status tells
        self._close_gate()

    def poll(self) -> int | None:
        while (event := _next_event()) is not None:
            pid, status = event
            if pid == self.pid:
                self._note(status)
        return self._status

    def send(self, signum: int) -> None:
        # Not collected yet, so the pid is still its own.
        if self.poll() is None:
            os.kill(self.pid, signum)

    def shares_our_terminal(self) -> bool:
        """A command with job control of its own, such as a shell, has left our process group."""
        return self.poll() is None and os.getpgid(self.pid) == os.getpgrp()

    def end(self) -> bool:
        self._close_gate()
        self.send(signal.SIGKILL)
        all_ended = end_what_is_left()
        self._process.returncode = -signal.SIGKILL
        return all_ended

    def _note(self, status: int) -> None:
        if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            self.stopped = os.WIFSTOPPED(status)
            return
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code
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


def _next_event() -> tuple[int, int] | None:
    """Pid and status of a child, ours or adopted, that ended, stopped or went on."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(str(int(number)) for number in numbers)
