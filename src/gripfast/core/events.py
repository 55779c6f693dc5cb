"""What observers are told: one kind of event for each step in the life of a claim, and the protocol that takes them.

Which events there are for one claim, and in which order, is decided in `stories.py`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from gripfast.errors import GripfastError

EventKind = Literal["claimed", "granted", "refused", "renewed", "lost", "released", "unreachable"]
EventRequest = Literal["claim", "renew", "release"]


class Event(NamedTuple):  # a frozen dataclass takes seven times as long to make, and callers wait for three in a pair
    """What happened to one claim or lease. All events of one claim have the same `owner`.

    Use its fields by name: their number and order may change."""

    kind: EventKind
    """The name of the observer's method that gets it."""
    name: str
    """The name of the lock. Do not label metrics with it: there may be any number of names. Use the group."""
    group: str | None
    """The lock's `group=`; for a decorated function, by default, the template of its name."""
    owner: str
    """The id of this claim, random and new each time; `lease.owner` if it was granted."""
    store: str
    """The engine's address, without a password."""
    at: float
    """When it happened, in seconds by a clock of this machine that does not stop while the machine sleeps. Only the
    difference of two such times has a meaning."""
    wall: float
    """When it happened, in seconds since 1970. This clock may be set back."""
    ttl: float
    """The ttl of the lease in seconds; before it is granted, the one that was requested."""
    engine: str = ""
    """What the engine is: `redis`, `redlock`, `sentinel`, `cluster`, `valkey`, `postgresql`, `mysql`, `sqlite`,
    `zookeeper`, `etcd`, `memory`, or the name of a store of another package."""
    token: int | None = None
    """The fencing token; None before a grant."""
    waited: float = 0.0
    """Seconds from the claim to its grant, or until now if there was no grant."""
    held: float = 0.0
    """Seconds from the grant until now; 0.0 before a grant."""
    margin: float = 0.0
    """`renewed` only: the seconds that were left when the renewal was confirmed. If it gets small, leases are about
    to be lost."""
    reason: str | None = None
    """`lost`: the reason that LeaseLost has. `refused`: `taken` (the wait is over and someone else holds the lock),
    `cancelled` (an interrupt, a cancelled task), `closed` (the client was closed) or `error`. `released`: None, or
    `dropped` (nobody kept the lease) or `closed`."""
    error: GripfastError | None = None
    """`unreachable`, and `refused` with the reason `error`: the error."""
    request: EventRequest | None = None
    """`unreachable` only: the request that failed."""
    queued: bool = False
    """The claim was not granted at once, and waited: for the holder, or for a store that did not answer."""
    trace: str | None = None
    """The trace that the caller belongs to, as W3C's `traceparent`; None unless `Observer.traceparent` returns it."""
    holder_trace: str | None = None
    """The trace of the holder that this claim had to wait for, if the store reports it."""


class Observer(Protocol):  # each method returns: one without a body would be abstract to type checkers
    """Gets the events of the locks of a client: `connect(url, observers=[MyObserver()])`.

    Derive a class from this one, and write the methods that you need. A class that is not derived from it works, too;
    methods that it lacks are skipped.

    Gripfast calls the methods on a thread that serves the observers of one client, also for an AsyncClient. They are
    called for one event after the other, in the order in which this process learned of the events. No lease waits for
    them. If they are too slow, the events of new claims and of renewals are left out, and a warning says how many. If
    `claimed` was called, the end of that claim is reported, too. What a method raises is logged.

    Every claim ends in `granted`, `refused` or `unreachable` (request `claim`). Every lease ends in `released` or
    `lost`. A holder that acquires its lock again (`reentrant=True`) makes no new claim.
    """

    def traceparent(self) -> str | None:
        """The trace that the caller belongs to, as W3C's `traceparent`; None if there is none.

        The thread or task that requests a lock calls this method, and waits for it: return at once. The trace is
        written into the details of the holder, where others read it (`LockInfo.trace`)."""
        return None

    def claimed(self, event: Event) -> None:
        """A lock was requested."""
        return

    def granted(self, event: Event) -> None:
        """The lock is held, after `event.waited` seconds."""
        return

    def refused(self, event: Event) -> None:
        """The claim ended without the lock, after `event.waited` seconds; `event.reason` says why."""
        return

    def renewed(self, event: Event) -> None:
        """The lease was renewed when `event.margin` seconds were left."""
        return

    def lost(self, event: Event) -> None:
        """The lease was lost after `event.held` seconds; `event.reason` says why."""
        return

    def released(self, event: Event) -> None:
        """The lease was released after `event.held` seconds."""
        return

    def unreachable(self, event: Event) -> None:
        """A request failed; `event.error` says why. For the request `claim` this is the end of the
        claim. A renewal or a release is tried again."""
        return
