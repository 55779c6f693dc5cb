"""What happened to some locks: events, in the order of the one clock that tells the truth.

Theory of operation. Everyone who asks for a lock (`who`: a thread or a task, which does one thing at a time) notes what
it does and what it is told, with the time of one clock that all share. Times are noted so that a caller's belief is
rather too short than too long: a grant after acquire returned, a release before it is called. So an overlap in the
history was one in the world, and nothing depends on how fast the notes were taken.

Real servers can't be looked into: a history of theirs has what the callers and those who broke things noted. Simulated
nodes and guarded resources note more. `gripfast_lab.sim.checks` judges both.
"""

from typing import Literal, NamedTuple

Kind = Literal[
    # What a caller does, and is told.
    "asked",  # `until`: no refusal may come before; `patience`: no `unreachable` may; `ttl`: what is asked for
    "granted",  # `token`; `until`: the deadline
    "held",  # told so; `token`; `until`: the deadline that this tells of
    "refused",  # None, or LockTimeout; `note`: HELD_BY, and the owner id, if it is known
    "unreachable",  # StoreUnavailable
    "cancelled",  # the caller gave up
    "releasing",  # release is about to be called
    "released",
    "lost",  # LeaseLost; `note`: the reason
    "failed",  # anything else was raised; `note`: what
    "died",  # all whose name begins with `who`
    "misled",  # what its lease said, or did not say, was no truth that the other kinds could tell; `note`: how
    "outlived",  # told held for longer than the engine keeps it, which is until `until`
    # What an engine, a guarded resource and whoever tidies up at the end can see.
    "handed",  # the engine gave `who` the lock; `token`; `note`: all who waited and could be reached, first come first
    "displaced",  # `who` waits, and the engine has lost its place, which was last confirmed `ttl` seconds ago
    "removed",  # a request of `who`, no force release, took the lock away from `note`, whose time was not over
    "idle",  # a request of `who` has left the lock free, while `note` waited and could be reached
    "hasty",  # a server gave `who` the lock although its grace lasts until `until`
    "confirmed",  # the engine said yes to a renewal of `who`, while `note` had the lock, or nobody
    "resized",  # from now on `token` is the limit in force
    "kept",  # a request of `who` has left the lock to the marker `note` until `until`; `token`: of the lease; `ttl`: so
    # long ago the engine began to count, if that was before
    "freed",  # a request of `who` has ended its own lease; `token`
    "returned",  # the owner `who` was detached, and now it got the lock again, or freed it; `note`: which
    "accepted",  # one of several nodes, `note`, has accepted `token`, which `who` proposed
    "lowered",  # the largest token that a node has accepted is only `token` now, by a request of `who`; `note`: it was
    "wrote",  # the fenced register of `name` accepted a write of `who`; `token`; `note`: value read, value written
    "left",  # something is left behind at the end; `who`: where; `note`: what
    # What the world does. Declared faults say for whom: `name` or ANY, and who it is (as in `died`) or WORLD.
    "forgot",  # declared: a server lost its memory between `at` and `until`; `note`: "tokens" if these may start anew,
    # because its clock is behind, or because it is one of several; "only tokens" if it excuses nothing else, but
    # that leases are lost early; "only losses" if it excuses that alone
    "jumped",  # declared: from `at` to `until` a clock was further off than is promised
    "fault",  # another one, which excuses nothing but what is said of it; over at `until`
    "broke",  # faults begin
    "healed",  # no fault any more
]
WORLD = "world"
ANY = "*"
TOKENS = "tokens"
ONLY_TOKENS = "only tokens"
HELD_BY = "held by "
ONLY_LOSSES = "only losses"
HALF_OPEN = "connections half open"
OF_FOLLOWER = "of a follower"
"""How the note of a `fault` ends that has happened to one member of a cluster, which does not lead it."""
GRACE = "grace"
"""The note of a `fault`: a server that was just promoted, or has just begun, grants nothing until it is over."""


class Event(NamedTuple):
    at: float
    who: str
    name: str
    kind: Kind
    token: int = 0
    until: float = 0.0
    ttl: float = 0.0
    patience: float = 0.0
    renews: bool = False
    note: str = ""


def line(event: Event) -> str:
    """One line, the same on every machine and Python: what is empty is left out."""
    at, who, name, kind, token, until, ttl, patience, renews, note = event
    parts = [f"{at:14.6f}  {_plain(who):<12} {_plain(name):<8} {kind:<11}"]
    if token:
        parts.append(f"token {token}")
    if until:
        parts.append(f"until {until:.6f}")
    if ttl:
        parts.append(f"ttl {ttl:.6f}")
    if patience:
        parts.append(f"patience {patience:.6f}")
    if renews:
        parts.append("renews")
    if note:
        parts.append(f"({_plain(note)})")
    return " ".join(parts).rstrip()


def _plain(text: str) -> str:
    """Only ASCII is left as it is: which characters beyond can be printed differs from one Python to the next."""
    return text if text.isascii() and text.isprintable() else ascii(text)
