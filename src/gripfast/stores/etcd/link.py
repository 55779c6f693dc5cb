"""What a driver, blocking or asyncio, offers the store: the connections of one client to the members of its cluster.

What a request ends with is one of three:

- its response. Its `header` says which cluster answered, at which revision: the store looks at that.
- a `Refusal`: a member has refused it, so it had no effect. `Refusal.was_sent` is true if an earlier try of the same
  request, at another member, may have had one.
- a `Fault`: there is no answer, or one that does not tell what became of the request. Unless `was_sent` is false, it
  may have had its effect, or may have it later.

A request whose caller stops waiting, by a time-out, a cancel or an interrupt, is cancelled, and no other caller gets
its answer. It may still take effect if it has left. Requests on one connection are carried out in any order: etcd does
not promise that a clean-up comes behind the claim that it cleans up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from gripfast.core.ports import Inbox
from gripfast.stores.etcd.messages import Request
from gripfast.stores.faults import Fault

R = TypeVar("R")


class Refusal(NamedTuple):
    status: int
    """As gRPC counts them."""
    message: str
    where: str
    """The member that has refused."""
    was_sent: bool = False


class Told(NamedTuple):
    answer: Any
    was_repeated: bool
    """A try that got no answer may have had its effect, or may still have it."""


class Notice(NamedTuple):
    """What ends a watch."""

    kind: Literal["changed", "compacted", "lost", "refused"]
    """changed: the key was deleted, or put; compacted: what came after the revision may have been forgotten; lost: the
    connection was, or its member has no leader; refused: this user may not watch the key, or the member can't."""
    revision: int = 0
    """Of the change, or up to which was compacted."""
    why: str = ""


class Watch(Protocol):
    """It ends with its first notice, or when it is cancelled, or when nobody keeps it."""

    def cancel(self) -> None:
        """From any thread. No notice begins after this."""
        ...


class Link(Protocol):
    where: str
    """The cluster, in messages."""
    timeout: float
    """Seconds for one request, and for a connection to be made."""
    endpoints: Sequence[str]
    """`host:port`, in the order in which they are tried."""

    @property
    def inbox(self) -> Callable[[], Inbox]: ...

    async def call(self, request: Request[R], until: float, each: float = math.inf) -> R | Refusal | Fault:
        """Until a moment of the boot clock. A try takes `each` seconds at most; the next member is tried if there was
        no answer by then. Every try carries `hasleader`, and a new token if the old one expired."""
        ...

    async def call_told(self, request: Request[Any], until: float, each: float = math.inf) -> Told:
        """The same, for whoever has to know whether it was repeated."""
        ...

    async def call_many(self, requests: Sequence[Request[Any]], until: float, each: float = math.inf) -> list[Any]:
        """The same for each. They leave together, on one connection, and one that fails costs no other."""
        ...

    async def call_at(self, endpoint: str, request: Request[R], until: float) -> R | Refusal | Fault:
        """At this member, once, whether or not it has a leader."""
        ...

    async def watch(
        self,
        key: bytes,
        revision: int,
        notify: Callable[[Notice], None],
        until: float,
        range_end: bytes = b"",
        puts: bool = False,
    ) -> Watch | Fault:
        """Have `notify` called, once, by the first deletion at this revision or later, with `puts` also by the first
        put. It is called by whatever thread reads, or on the loop; usually it is `inbox.deliver`, with None.

        The watch is there when this returns, as far as this side goes: whatever comes from the revision on is noticed.
        (0 means from when its member gets to know of it, which is not when this returns.)
        Keep what is returned: the watch ends when it is dropped."""
        ...

    def stop_waiting(self) -> None:
        """The client is being closed: every watch is told that it is lost, and no other is begun."""
        ...

    async def close(self) -> None: ...
