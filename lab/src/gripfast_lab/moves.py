"""What a protocol can do. It is a generator: it yields moves, and is sent what came of them.

    def attempt(me):
        if not (yield ask(f"SETNX lock {me}")):
            return REFUSED
        yield enter()
        yield rest(WORK)
        yield leave()
        yield ask("DEL lock")
        return DONE

That is one attempt to get the lock, to work and to give the lock back. Who was refused rests and tries again from the
start, knowing nothing of its attempts before. All times are whole seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, NamedTuple, TypeAlias


class Outcome(Enum):
    DONE = "done"
    REFUSED = "refused"


DONE, REFUSED = Outcome.DONE, Outcome.REFUSED

TTL = 30
WORK = 5
"""How long the holder means to work."""
RETRY = 20
"""How long who was refused waits before it tries again."""
STALL = 40
"""How long who is slow or paused is."""

ALL = "all nodes"
SERVER = "server"


class Ask(NamedTuple):
    """Answers: what the server replies; of ALL, a tuple of what the nodes reply; None: not reached, or no answer."""

    commands: tuple[str, ...]
    """Several are a transaction: done together, whatever the first of them replies."""
    at: str = SERVER
    script: str = ""
    """In Lua; then the commands are its key and its argument."""
    shown: str = ""
    """How a reader is told of it."""
    insists: bool = False
    """If the answer is no, it is asked again after RETRY seconds, until it is yes."""
    records: bool = False
    """If the answer is yes, the work that is to be done once counts as done, even if nobody receives this answer."""

    def __str__(self) -> str:
        return self.shown or "; ".join(self.commands)


class Enter(NamedTuple):
    token: int | None = None
    lasts: int | None = None
    """After so many seconds it stops by itself, because it knows that its time is over."""
    n: int = 1
    """So many permits it has from now on."""


class Leave(NamedTuple):
    is_done: bool = False
    """The work that is to be done once is done."""


class Rest(NamedTuple):
    seconds: tuple[int, ...]
    """Several: one of them, as luck has it."""


class Look(NamedTuple):
    """Answers: the seconds on its own clock, or since the attempt began."""

    at: str


Move: TypeAlias = Ask | Enter | Leave | Rest | Look
Program: TypeAlias = Callable[[str], Generator[Move, Any, Outcome]]


def ask(*commands: str, at: str = SERVER) -> Ask:
    shown = f"MULTI; {'; '.join(commands)}; EXEC" if len(commands) > 1 else ""
    return Ask(commands, at, "", shown)


def ask_all(*commands: str) -> Ask:
    return ask(*commands, at=ALL)


def run(script: str, key: str, argument: str, shown: str, at: str = SERVER) -> Ask:
    """A script, which the server runs as one step."""
    return Ask((key, argument), at, script, shown)


def insist(ask: Ask) -> Ask:
    return ask._replace(insists=True)


def record(ask: Ask) -> Ask:
    return ask._replace(records=True)


def enter(token: int | None = None, lasts: int | None = None, n: int = 1) -> Enter:
    return Enter(token, lasts, n)


def leave() -> Leave:
    return Leave()


def finish() -> Leave:
    return Leave(is_done=True)


def rest(*seconds: int) -> Rest:
    if not seconds or min(seconds) < 1:
        raise ValueError("a rest takes a second at least")
    return Rest(seconds)


def clock() -> Look:
    return Look("clock")


def elapsed() -> Look:
    return Look("stopwatch")
