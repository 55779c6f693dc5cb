"""The exit codes of `gripfast`, from sysexits.h where it has one that fits, from the shell where the shell has."""

from __future__ import annotations

DECLINED = 1
USAGE = 64
NOT_FOUND = 66
UNAVAILABLE = 69
INTERNAL = 70
BUSY = 75
LOST = 76
NOT_EXECUTABLE = 126
NO_COMMAND = 127
SIGNALLED = 128

MEANINGS = {
    DECLINED: "break was answered with no",
    USAGE: "wrong usage: an option, name, ttl or URL",
    NOT_FOUND: "nobody holds that lock (show, break)",
    UNAVAILABLE: "the store could not be asked",
    INTERNAL: "a bug in gripfast",
    BUSY: "someone else has the lock (run: see --busy-exit-code)",
    LOST: "run lost the lock; the command was stopped",
    NOT_EXECUTABLE: "run: the command can't be executed",
    NO_COMMAND: "run: the command was not found",
}


def of_signal(signum: int) -> int:
    """As shells tell it."""
    return SIGNALLED + signum


def listing() -> str:
    lines = [f"  {code:<7}{meaning}" for code, meaning in sorted(MEANINGS.items())]
    return "\n".join(["\b", "Exit codes:", "  0      done", *lines, "  128+n  ended by signal n"])
