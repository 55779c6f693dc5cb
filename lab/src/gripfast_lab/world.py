"""A world of the lab: a protocol with its engine and what may go wrong there, and one state of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from gripfast_lab.engines.port import Engine
from gripfast_lab.moves import Ask, Program

CRASH, SLOW, PAUSE, CUT, LOST_REPLY, MISS, WRONG_CLOCK = (
    "crash",
    "slow",
    "pause",
    "cut",
    "lost reply",
    "miss",
    "wrong clock",
)
"""What happens to clients; engines have faults of their own."""


MOST_REFUSALS = 2


class Words(NamedTuple):
    """How a reader is told that somebody has what it wanted."""

    has: str
    hold: str
    """Of several."""
    verbs: tuple[str, str] = ("holds", "hold")
    """For pictures: of one, of several."""


LOCK = Words("has the lock", "hold the lock")
PERMIT = Words("has a permit", "hold a permit")
READ = Words("may read", "hold the lock", ("reads", "hold"))
LEAD = Words("leads", "lead", ("leads", "lead"))
JOB = Words("begins the work", "do the work", ("works", "work"))


class Work(Enum):
    """What became of work that is to be done once."""

    OPEN = "open"
    BEGUN = "begun"
    DONE = "done"


@dataclass(frozen=True)
class Protocol:
    attempt: Program
    engine: Engine
    clients: tuple[str, ...] = ("A", "B")
    faults: dict[str, int] = field(default_factory=dict)
    """How often each kind may happen."""
    renewal: Ask | None = None
    """What a watchdog asks in the name of the holder, {} in it; its answer is not looked at."""
    renews_every: int = 10
    tells_time: bool = False
    """Programs look at clocks, so the hour matters."""
    takes_time: bool = False
    """Programs look at how long they have taken."""
    in_step: bool = False
    """All clients act at the same moments; which of them is the first at a node is a matter of where they are."""
    words: Words = LOCK
    limit: int = 1
    """How many permits there are."""
    has_roles: bool = False
    """What a client does depends on its name."""
    comes_back: int = 0
    """Seconds after which a client that is done comes again; 0: it does not."""
    is_once: bool = False
    """The work is to be done once."""

    def __post_init__(self) -> None:
        if self.in_step and (self.faults or self.renewal):
            raise ValueError("clients that are in step have no faults and no watchdogs")


class Client(NamedTuple):
    answers: tuple[Any, ...] = ()
    begun: bool = False
    rests: int = 0
    """Seconds."""
    tries_again: bool = False
    """It rests because it was refused."""
    stalls: int = 0
    """Seconds for which it is slow or paused, or waits for an answer."""
    answer: tuple[Any, ...] = ()
    """The one it waits for."""
    is_paused: bool = False
    n: int = 0
    """Permits that it has, as far as it knows."""
    lasts: int | None = None
    """Seconds until it stops by itself."""
    token: int | None = None
    renews_in: int | None = None
    was_refused: bool = False
    refusals: int = 0
    """One after the other, up to MOST_REFUSALS, if clients come back."""
    is_over: bool = False
    is_dead: bool = False
    is_cut: bool = False
    ahead: int = 0
    """Seconds that its clock is wrong."""
    spent: int = 0
    """Seconds since its attempt began, if it looks at that."""

    @property
    def holds(self) -> bool:
        return self.n > 0


class State(NamedTuple):
    now: int
    engine: Any
    clients: tuple[Client, ...]
    left: tuple[int, ...]
    """How often each kind of fault may still happen."""
    tokens: int
    """The largest that was given."""
    trouble: str
    first_at: tuple[int, ...]
    """If all are in step: the client that is first at each node."""
    work: Work = Work.OPEN


class Act(NamedTuple):
    """What happened in a step, for whoever tells of it."""

    kind: str
    who: str = ""
    ask: Ask | None = None
    reply: Any = None
    unreached: tuple[str, ...] = ()
    """Nodes that the request did not get to."""
    text: str = ""
    brief: str = ""
    source: str = ""
    """The node that has sent something to another one."""
    seconds: int = 0
    others: tuple[Act, ...] = ()
    """All that happened in the same moment, if clients are in step."""


Step: TypeAlias = tuple[Act, State]
