"""The exit codes of `gripfast`, from sysexits.h where it has one that fits, from the shell where the shell has."""

from __future__ import annotations

DECLINED = PROBLEM = 1
USAGE = 64
NOT_FOUND = 66
UNAVAILABLE = 69
INTERNAL = 70
BUSY = 75
LOST = 76
DONE = 79
"""sysexits.h ends before it."""
NOT_EXECUTABLE = 126
NO_COMMAND = 127
SIGNALLED = 128

MEANINGS = {
    DECLINED: "nothing was changed: you answered no, or the lock has a new holder (break); or there is a problem "
    "(doctor), or a rule was broken (verify)",
    USAGE: "wrong usage: an option, name, ttl or URL",
    NOT_FOUND: "nobody holds that lock (show, break), or it is not recorded as done (forget)",
    UNAVAILABLE: "the store can't be reached, or refused the request",
    INTERNAL: "a bug in gripfast",
    BUSY: "someone else holds the lock (run: see --busy-exit-code)",
    LOST: "the lock was lost while the command ran, or before it could start (run, and lead if it ends because of "
    "that); or it is not held (renew, release)",
    DONE: "it is recorded as done (run --once: the command did not run again, see --done-exit-code; show: nobody "
    "holds it now)",
    NOT_EXECUTABLE: "the command can't be executed (run, lead)",
    NO_COMMAND: "the command was not found (run, lead)",
}


def of_signal(signum: int) -> int:
    """As shells tell it."""
    return SIGNALLED + signum


def listing() -> str:
    lines = [f"  {code:<7}{meaning}" for code, meaning in sorted(MEANINGS.items())]
    return "\n".join(["\b", "Exit codes:", "  0      done", *lines, "  128+n  ended by signal n"])
