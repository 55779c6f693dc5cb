"""Runs in the command's process before the command does; started by `spawn`, never imported by it.

A fresh interpreter without site-packages, because a process with threads must not run code between fork and exec. It
arranges that the kernel ends it together with `gripfast run` (Linux), waits at the gate until the lock counts for this
process too, puts the signals back as they were, and becomes the command. If the gate closes unopened, `run` is gone or
has given up: then the command never starts.

Arguments: gate's file descriptor, parent's pid, signals to block, signals to ignore (both comma-separated), command.
"""

from __future__ import annotations

# What `signal` is made of, without its enums: those take longer to load than everything else here.
import _signal as signal  # type: ignore[import-not-found]
import os
import sys

NOT_EXECUTABLE = 126
NO_COMMAND = 127
NEVER_STARTED = 125
_PR_SET_PDEATHSIG = 1


def main(gate: str, parent: str, blocked: str, ignored: str, *command: str) -> int:
    _die_with_parent()
    # The parent may have died before the line above: then nobody will end this process.
    if os.getppid() != int(parent) or os.read(int(gate), 1) != b"1":
        return NEVER_STARTED
    os.close(int(gate))
    _restore_signals(_numbers(blocked), _numbers(ignored))
    return _become(command)


def _die_with_parent() -> None:
    """Where there is no such thing, the process ends only by the signals that reach `run`."""
    if sys.platform != "linux":
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (ImportError, AttributeError, OSError):
        pass


def _numbers(text: str) -> set[int]:
    return {int(number) for number in text.split(",") if number}


def _restore_signals(blocked: set[int], ignored: set[int]) -> None:
    """Handlers first, the mask last: what was pending then meets the command's own dispositions."""
    for name in ("SIGINT", "SIGPIPE", "SIGXFSZ", "SIGXFZ"):
        number = getattr(signal, name, None)
        if number is not None and number not in ignored:
            signal.signal(number, signal.SIG_DFL)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _become(command: tuple[str, ...]) -> int:
    try:
        os.execvp(command[0], command)
    except (FileNotFoundError, NotADirectoryError):
        return _complain(NO_COMMAND, f"command not found: {command[0]}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return _complain(NOT_EXECUTABLE, f"can't execute {command[0]}: {reason}")


def _complain(code: int, message: str) -> int:
    if sys.stderr is not None:  # it may be closed
        sys.stderr.write(f"gripfast: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
