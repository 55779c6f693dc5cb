"""What can be requested from N nodes at once, and what each of them may answer.

A value at a node is `owner.attempt`: each try of an owner has its own, so that the clean-up of one that failed, however
late it arrives, can't take away what a later one got. The clean-up of an owner that is done frees whatever has its id.

What an adapter promises:
- The request goes to all nodes at the same time, and the ballot counts each answer as it comes. `poll` returns when the
  ballot is decided, or when every node that got the request has answered or failed: a node that stays silent for the
  length of a time-out has `Failed`.
- A node that failed costs its time-out once. From then on it gets no requests (`Failed`, `was_asked` false), and is
  probed in the background until it answers again. But if fewer than a majority are left, all nodes get the request.
- Requests of one owner arrive at a node in the order in which they were polled or sent, answered or not, as long as the
  connection that carried the earlier one lives: a late claim can't outlive its release.
- An answer that comes after the decision is read and dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from gripfast.core.ports import Inbox, Label, LockInfo, Loss
from gripfast.errors import StoreUnavailable

# Requests -----------------------------------------------------------------------------------------------------------


class Vote(NamedTuple):
    """Round 1: take it if it is free, and accept the proposal if it is larger than every token accepted before."""

    name: str
    owner: str
    attempt: int
    ttl: float
    label: Label
    proposal: int
    waits: bool
    """If it is taken, remember who wants to be woken. Where nobody listens this has no effect."""


class Accept(NamedTuple):
    """Round 2: accept this token if the lock is still this attempt's."""

    name: str
    owner: str
    attempt: int
    ttl: float
    label: Label
    token: int


class Renew(NamedTuple):
    name: str
    owner: str
    attempt: int
    ttl: float
    shortens: bool


class TakeBack(NamedTuple):
    """Have the lock again at a node that has lost it, if no larger token was accepted there."""

    name: str
    owner: str
    attempt: int
    ttl: float
    label: Label
    token: int


class Why(NamedTuple):
    name: str
    owner: str
    attempt: int


class Unlock(NamedTuple):
    """This attempt has failed; its owner may try again, and stays queued."""

    name: str
    owner: str
    attempt: int


class Free(NamedTuple):
    """This owner is done: whatever it has is gone afterwards, lock or position in the queue."""

    name: str
    owner: str


class Wake(NamedTuple):
    """Tell the first one who waits."""

    name: str


class Inspect(NamedTuple):
    name: str


class ForceRelease(NamedTuple):
    name: str
    note: str | None = None
    """What the holder is to be told."""


class Scan(NamedTuple):
    prefix: str
    cursor: str


class Mark(NamedTuple):
    """The node has no birth marker, and others have: it was born just now."""


class Establish(NamedTuple):
    """No node has a birth marker: the cluster is new, and this one may vote. Only for a moment after it said so."""

    seen: int


class Each(NamedTuple):
    """Several requests that leave together; the answer is a list."""

    requests: Sequence[Request]


Request = (
    Vote
    | Accept
    | Renew
    | TakeBack
    | Why
    | Unlock
    | Free
    | Wake
    | Inspect
    | ForceRelease
    | Scan
    | Mark
    | Establish
    | Each
)

# Answers ------------------------------------------------------------------------------------------------------------


class Locked(NamedTuple):
    """To Vote and Accept: it is this attempt's."""

    has_accepted: bool
    fence: int = 0
    """The largest token accepted there, if the proposed one was not."""


LOCKED = Locked(True)


class Busy(NamedTuple):
    """To Vote and Accept: it is someone else's; or nobody's, if it was this attempt's before."""

    holder: LockInfo | None
    fence: int


class Unmarked(NamedTuple):
    """To Vote: the node has no birth marker; it may have lost its memory."""

    moment: int
    """By the node's own clock, for `Establish`."""


class Newborn(NamedTuple):
    """To Vote: the node came back empty not long ago, and does not vote yet."""

    votes_in: float


class Freed(NamedTuple):
    """To Free, Unlock and ForceRelease."""

    was_held: bool
    has_waiters: bool


class Failed(NamedTuple):
    """Instead of an answer."""

    error: StoreUnavailable
    was_asked: bool
    """It may have arrived."""
    is_permanent: bool = False
    """Asking again will not help."""
    was_refused: bool = False
    """The connection was."""


class Names(NamedTuple):
    """To Scan."""

    cursor: str
    names: Sequence[str]


Answer = Locked | Busy | Unmarked | Newborn | Freed | Failed | Names | LockInfo | Loss | bool | None | list["Answer"]
"""Renew, TakeBack, Mark and Establish are answered by a bool, Why by a Loss, Inspect by a LockInfo or None; of what
someone may have at a node, `LockInfo.owner` is without the attempt."""


class Ballot(Protocol):
    @property
    def is_lost(self) -> bool:
        """Once it is decided: nobody wants what has not left yet."""
        ...

    def add(self, node: int, answer: Answer) -> bool:
        """True once it is decided: nobody has to wait for the others."""
        ...


class Decided(Protocol):
    """Who is told that a ballot is decided."""

    def done(self) -> bool: ...

    def set_result(self, error: Exception | None, /) -> None:
        """None, or what went wrong."""
        ...


class Nodes(Protocol):
    names: Sequence[str]
    """How each is called in messages."""

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        """Ask each node what stands in its place; None asks it nothing, and the ballot hears nothing of it.

        `within`: seconds, if that is less than the time-out of a node."""
        ...

    def begin(self, requests: Sequence[Request | None], ballot: Ballot, decided: Decided) -> bool:
        """As `poll`, but return when the requests have left. Whoever reads the answers tells `decided`, from any
        thread. False if nothing was done, because too few nodes could be asked at once.

        Until that is told, requests of the same client for the same name arrive at each node behind these."""
        ...

    async def read_late(self, within: float = 0.0) -> bool:
        """As `ReleasesLazily.read_late`."""
        ...

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        """Nobody waits for the answers, and nothing says whether it arrived."""
        ...

    def inbox(self) -> Inbox: ...

    def hears(self, owner: str, inbox: Inbox) -> bool:
        """Whether this inbox gets, from now on, what is said to this owner: somebody listens at a majority."""
        ...

    async def listen(self) -> None:
        """Listen wherever it works and nobody does yet."""
        ...

    def wall_us(self) -> int:
        """What the wall clock shows. Nothing depends on its being right."""
        ...

    def chance(self) -> float:
        """At least 0, less than 1."""
        ...

    def shut(self) -> None:
        """Have whoever waits ask."""
        ...

    async def close(self) -> None: ...
