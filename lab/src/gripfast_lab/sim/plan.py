"""What will happen in one run, all of it decided beforehand: who asks for what, and which faults come when.

A plan is data. Everything in `items` can be left out on its own, which is how a failing run is made smaller; what is
not in the plan (how long each message takes) is drawn from streams that do not depend on the items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from gripfast.core.ports import Share

WITNESS = "witness"
"""A process that no fault happens to: it asks for each lock when the faults are over."""


class Errand(NamedTuple):
    """Something an actor does: ask for a lock, work, give it back. An actor does its errands one after the other."""

    actor: str
    """`process/actor`"""
    name: str
    after: float
    """Seconds since its last errand."""
    ttl: float
    wait: float | None
    renews: bool
    max_hold: float | None
    works: float
    """Seconds of work under the lock, if it stays its own for so long."""
    heeds: bool
    """It stops working as soon as it is told of a loss; otherwise when it looks next."""
    looks: int
    """How often it looks meanwhile whether it still holds."""
    writes: bool
    """It reads the guarded register first, and writes it at the end."""
    extends: float | None
    """A ttl to extend to on the way."""
    ending: Literal["release", "drop", "detach", "fail"]
    """`fail`: what is to be done once raises, and is not done. `detach`: somebody else may adopt it."""
    share: Share | None = None
    """Permits instead of a lock."""
    downgrades: bool = False
    """It becomes a reader when half its work is done."""
    keep: float | None = None
    """It is to be done once; and for so many seconds nobody does it again."""
    min_hold: float | None = None
    detaches: float = 0.0
    """The ttl for which it is detached."""
    dies: bool = False
    """Its process is killed when it has detached it."""
    adopts: float | None = None
    """So many seconds after a text appeared, it adopts what was detached, instead of asking for the lock."""
    is_lazy: bool = False
    """Nobody waits for the answer to its release."""


class Fault(NamedTuple):
    kind: str
    at: float
    lasts: float
    target: str
    """The process, actor or lock that it happens to; empty for nodes."""
    size: float
    """How much, for those that have a size; from 0 to 1."""
    nodes: tuple[int, ...] = ()
    """The nodes that it happens to, or between which and the process it happens; none stands for all."""


Item = Errand | Fault


class Host(NamedTuple):
    """A process and the clock of its machine."""

    name: str
    offset: float
    rate: float
    shares: bool
    """One connection for all requests, as asyncio clients do; otherwise one is lent to each."""
    wall: float = 0.0
    """What the wall clock of a process shows at the beginning. Nothing may depend on its being right."""


class Quorum(NamedTuple):
    """How a lock on several nodes is set up: Redlock."""

    grace: float
    """Seconds for which a node that came back empty does not vote; 0 turns that off."""
    is_established: bool
    """The nodes have their birth markers already."""


class Copies(NamedTuple):
    """How a lock on a primary with replicas is set up. The first node is the primary at the beginning."""

    level: int
    """What is done against failovers: 0: nothing; 1: grace; 2: grace, and acknowledgements of all replicas."""
    max_ttl: float
    goes_on: float
    """Seconds for which an old primary is said to go on at most. A fault may take longer."""
    is_established: bool
    """The primary is known to be the first one."""


class Members(NamedTuple):
    """How a cluster of etcd is set up."""

    leader: int
    """Which of the nodes leads at the beginning."""
    least_ttl: int
    """Seconds that every lease lasts at least."""
    loses_deletes: bool
    """It is of a version in which a compaction takes deletions from watches."""
    endpoints: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """By process: the nodes that it knows, in its order."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    items: tuple[Item, ...]
    hosts: tuple[Host, ...]
    nodes: tuple[Host, ...]
    names: tuple[str, ...]
    request_timeout: float
    connect_patience: float
    heals_at: float
    """No fault is left after this."""
    closes_at_once: bool
    """Clients are closed as soon as everyone is done; otherwise when they had the time to tidy up by themselves."""
    is_warm: bool
    """The nodes know the scripts already."""
    quorum: Quorum | None = None
    """None: there is one node, and it is the store; or a primary and its replicas are."""
    copies: Copies | None = None
    cluster: Members | None = None
    shares: tuple[tuple[str, Share], ...] = ()
    """What each name is, if these are no locks."""
    has_family: bool = False
    """Some names are of things to be done once; locks have a min_hold, or are handed over."""

    @property
    def errands(self) -> list[Errand]:
        return [item for item in self.items if isinstance(item, Errand)]

    @property
    def faults(self) -> list[Fault]:
        return [item for item in self.items if isinstance(item, Fault)]

    @property
    def reaction(self) -> float:
        """Seconds in which everything is done that needs to be, where no fault is in the way: who waits for a reply
        that is lost learns it when its time is over, and may have to ask some more times. One of several nodes that
        was silent is looked at again after a second at most."""
        if self.quorum is not None:
            return 10.0 * self.request_timeout + 1.5
        return 4.0 * self.request_timeout + 0.3

    @property
    def longest_ttl(self) -> float:
        return max([0.0, *(max(each.ttl, each.extends or 0.0, each.detaches) for each in self.errands)])

    @property
    def longest_kept(self) -> float:
        """How long a name stays taken after it was released."""
        return max([0.0, *(max(each.keep or 0.0, each.min_hold or 0.0) for each in self.errands)])
