"""The truth about one lease.

A LeaseState is made before the first claim leaves and lives as long as someone can still use it: the handles of the
caller, or the frame of the recipe that is acquiring it. Nobody else holds it strongly, so its death means that
nobody will release it (see `ledger`).

    asking ──grant──▶ held ──finish──▶ over: released, or lost for a reason

Over is final, whoever comes first: an answer that arrives later changes nothing. Several threads may get there at
once without a mutex (one that an interrupt could leave locked): endings are appended to a list, and the first one
counts. A passed deadline is an ending even if nobody has noticed yet, so every reading takes the time of reading.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gripfast.core import rules
from gripfast.errors import LeaseLost, Reason

if TYPE_CHECKING:
    from gripfast.core.stories import Story


class Broken(NamedTuple):
    """Released by force, and what the operator wrote about it; without that, the reason alone says it."""

    note: str


Loss = Reason | Broken
"""Why a lease is gone."""


def reason_of(loss: Loss) -> Reason:
    return "broken" if isinstance(loss, Broken) else loss


def lease_lost(name: str, loss: Loss) -> LeaseLost:
    return LeaseLost(name, "broken", note=loss.note) if isinstance(loss, Broken) else LeaseLost(name, loss)


Kind = Literal["semaphore", "rwlock"]
"""What has permits. Each kind is a name space of its own: `lock("x")`, `semaphore("x")` and `rwlock("x")` do not
meet."""

RW_LIMIT = 2**30
"""The limit of every read/write lock. A reader has 1 permit, a writer has all of them. No semaphore has as many."""


class Share(NamedTuple):
    """A part of a name instead of all of it: n permits of a limit (`core/permits.py`)."""

    kind: Kind
    n: int
    """1 to `limit`: that is checked before any request."""
    limit: int
    """What the caller believes to be the limit; `RW_LIMIT` if it is a read/write lock."""


class Traced(NamedTuple):
    """A label, and the trace of the caller who requests the lock: both are written into the holder's details."""

    label: str | None
    trace: str
    """W3C's `traceparent`."""


Label = str | Traced | None
"""What a claim tells others about its holder."""


class Want(NamedTuple):
    """What a lock asks for: checked once, when the lock is made."""

    name: str
    key: str
    """The name at the engine: with the client's prefix."""
    ttl: float
    renews: bool
    max_hold: float | None
    label: str | None
    group: str | None = None
    """For observers and logs. No engine sees it."""
    share: Share | None = None
    """None: all of the name, an exclusive lock."""
    min_hold: float | None = None
    """Once somebody believes in it, the name stays taken for so long, however early it is released."""
    is_once: bool = False
    """Nobody waits for what is done (`core/once.py`)."""
    is_lazy: bool = False
    """Nobody waits for the answer to its release (`core/lazy.py`)."""


class LeaseState:
    __slots__ = (
        "__weakref__", "acquirer", "ceiling", "deadline", "endings", "handles", "limit", "listeners",
        "most", "on_lost", "owes_downgrade", "owner", "renew_at", "renews", "slots", "story", "token", "ttl",
        "want",
    )  # fmt: skip

    slots: tuple[int, ...]
    """Of a semaphore's permits."""
    owes_downgrade: bool
    """The engine has not confirmed yet that it has fewer permits. Only what has a share has these two attributes: a
    lock does without them."""

    def __init__(self, want: Want, owner: str) -> None:
        self.want = want
        self.owner = owner
        self.ttl = want.ttl
        self.renews = want.renews
        self.token = 0
        self.deadline = -math.inf
        self.limit = math.inf
        self.ceiling = math.inf
        """The ttl of an unanswered request to shorten: it may still arrive, so no date is later than it allows."""
        self.most = math.inf
        """The largest ttl that the engine gives."""
        self.renew_at = math.inf
        self.on_lost: Callable[[LeaseState, Reason], None] | None = None
        self.listeners: list[Callable[[], None]] = []
        self.handles: list[weakref.ref[Any]] = []
        self.acquirer: Callable[[], Any] | None = None
        """The thread or task that acquired it, weakly; see `runtime/here.py`."""
        self.endings: list[list[Loss]] = []
        """Empty until it is over; the first one counts."""
        self.story: Story | None = None
        """What observers are told of it, if there are any."""

    @property
    def name(self) -> str:
        return self.want.name

    @property
    def key(self) -> str:
        return self.want.key

    @property
    def ending(self) -> Reason | None:
        return reason_of(self.endings[0][0]) if self.endings else None

    def error(self) -> LeaseLost:
        """What to raise once it is over; also for a handle that was released before the others."""
        return lease_lost(self.name, self.endings[0][0] if self.endings else "released")

    def grant(self, token: int, ttl: float, sent: float, now: float, max_hold: float | None = None) -> bool:
        """True if it is held: the answer may have come too late, or the client may be closed by now.

        `max_hold` counts from now, not from the request: that of a waiter is older than a short max_hold.
        """
        if max_hold is not None:
            self.limit = now + max_hold
        deadline, renew_at = rules.dates(sent, ttl if ttl < self.ceiling else self.ceiling)
        self.deadline = deadline if deadline < self.limit else self.limit
        if self.renews:
            self.renew_at = renew_at
        self.token = token
        return now < self.deadline and not self.endings

    def remaining(self, now: float) -> float:
        if self.endings:
            return 0.0
        left = self.deadline - now
        if left > 0.0:
            return left
        self.finish("max_hold" if now >= self.limit else "expired")
        return 0.0

    def lost(self, now: float) -> Reason | None:
        """Why it was lost, or None while it is held and after it was released or detached."""
        self.remaining(now)
        ending = self.ending
        return None if ending in ("released", "detached") else ending

    def finish(self, ending: Loss) -> bool:
        """True if this is the ending that counts."""
        mine = [ending]
        self.endings.append(mine)
        return self.endings[0] is mine

    def about(self, reason: Reason | None = None) -> dict[str, object]:
        """For the `extra=` of log lines."""
        return {
            "gripfast_name": self.name,
            "gripfast_group": self.want.group,
            "gripfast_owner": self.owner,
            "gripfast_token": self.token or None,
            "gripfast_reason": reason,
        }

    def tell(self) -> None:
        """Wake whoever waits for the end of this lease."""
        for listener in list(self.listeners):
            listener()

    def lower(self, sent: float, ttl: float) -> None:
        """Before a shorter ttl is sent: from then on the engine may end the lease that early."""
        self.deadline = min(self.deadline, rules.deadline(sent, ttl))

    def renewed(self, sent: float, ttl: float, now: float) -> None:
        """An answer after the deadline comes too late: the loss may have been seen."""
        if self.remaining(now) > 0.0:
            self.ttl = ttl
            self.grant(self.token, ttl, sent, now)
            if self.deadline > self.limit:  # which was set meanwhile
                self.deadline = self.limit

    def hold_at_most(self, now: float, seconds: float) -> None:
        """From now on, which is later than its grant. The limit first: a renewal looks at it when it has moved the
        deadline."""
        self.limit = now + seconds
        self.deadline = min(self.deadline, self.limit)

    def renew_later(self, now: float) -> None:
        """A lease that is not kept by renewals was only to be extended once: whoever asked for it is told."""
        if self.renews:
            self.renew_at = now + rules.renew_retry(self.ttl)
