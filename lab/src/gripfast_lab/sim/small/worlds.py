"""The small worlds that are explored by name, each in two sizes. All of the first size take seconds.

One process lends connections, as blocking clients do, and another shares one, as asyncio clients do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gripfast.core.ports import RW_LIMIT, Share
from gripfast_lab.sim.explore import Report, explore
from gripfast_lab.sim.plan import Errand
from gripfast_lab.sim.quiet import quietly
from gripfast_lab.sim.small import faults
from gripfast_lab.sim.small.model import Bounds, Small


def errand(actor: str, ttl: float = 3.0, works: float = 0.1, wait: float | None = None, **more: Any) -> Errand:
    usual = Errand(actor, "job", 0.0, ttl, wait, True, None, works, True, 1, False, None, "release")
    return usual._replace(**more)


A, B, C = "p1/a", "p2/b", "p3/c"
ANY = tuple(faults.KINDS)

_READER, _WRITER = Share("rwlock", 1, RW_LIMIT), Share("rwlock", RW_LIMIT, RW_LIMIT)


def _some(n: int) -> Share:
    """Permits of two."""
    return Share("semaphore", n, 2)


_TWO = (errand(A), errand(B))
_WORLDS = [
    Bounds(
        "claims",
        "two claims at once on a server that has seen no script yet, and slow messages",
        _TWO,
        knows_scripts=False,
        passes=1,
    ),
    Bounds("faults", "two claims at once, and one fault of any kind", _TWO, kinds=ANY, faults=1),
    Bounds(
        "hand-off",
        "one waits while another holds; a message is lost, perhaps the one that hands the lock over",
        (errand(A, works=0.2), errand(B, after=0.1)),
        kinds=("lose",),
        faults=1,
        passes=1,
    ),
    Bounds(
        "cancelled",
        "a caller is cancelled; its clean-up may overtake its claim",
        _TWO,
        kinds=("cancel",),
        faults=1,
        passes=1,
        slow=("p2",),
    ),
    Bounds(
        "expiry",
        "leases run out while their renewals are under way",
        (errand(A, ttl=1.0, works=1.5), errand(B, ttl=1.0, after=1.05)),
        request_timeout=5.0,
        passes=3,
        slow=("p1",),
        slow_from=0.3,
    ),
    Bounds(
        "paused",
        "a holder is paused for longer than its lease",
        (errand(A, ttl=1.0, works=0.2, looks=2, renews=False), errand(B, ttl=1.0, after=1.05)),
        kinds=("pause",),
        faults=1,
        passes=4,
        slow=("p1",),
        slow_from=0.05,
    ),
    Bounds(
        "queue",
        "a process dies while three want the lock; the last of them comes when its time is over",
        (errand(A, ttl=1.0, works=0.3), errand(B, ttl=1.0, after=0.1), errand(C, ttl=1.0, after=0.993)),
        kinds=("kill", "vanish"),
        faults=1,
    ),
    Bounds(
        "permits",
        "a process dies while three want one or two of two permits",
        (
            errand(A, ttl=1.0, works=0.3, share=_some(1)),
            errand(B, ttl=1.0, after=0.1, share=_some(2)),
            errand(C, ttl=1.0, after=0.2, share=_some(1)),
        ),
        kinds=("kill", "vanish"),
        faults=1,
    ),
    Bounds(
        "readers",
        "a writer becomes a reader, while a reader and a writer come",
        (
            errand(A, looks=2, downgrades=True, share=_WRITER),
            errand(B, after=0.02, share=_READER),
            errand(C, after=0.04, share=_WRITER),
        ),
        passes=1,
    ),
]
_AT_ONCE = (errand(A, share=_some(1)), errand(B, share=_some(2)), errand(C, share=_some(1)))
_LARGER: dict[str, dict[str, Any]] = {
    "claims": {"passes": 2},
    "faults": {"passes": 1, "slow": ("p2",)},
    "hand-off": {"passes": 2},
    "cancelled": {"slow": ()},
    "expiry": {"passes": 4, "errands": (errand(A, ttl=1.0, works=1.5), errand(B, ttl=1.0, after=0.7))},
    "paused": {"passes": 6},
    "queue": {"kinds": ANY},
    "permits": {
        "text": "one is cancelled while three at once want one or two of two permits",
        "kinds": ("cancel",),
        "errands": _AT_ONCE,
    },
    "readers": {"kinds": ANY, "faults": 1, "passes": 0},
}
WORLDS = {
    **{each.name: each for each in _WORLDS},
    **{f"{each.name}-large": replace(each, name=f"{each.name}-large", **_LARGER[each.name]) for each in _WORLDS},
}


def explored(name: str, **other_bounds: Any) -> Report:
    bounds = replace(WORLDS[name], **other_bounds)
    with quietly():
        return explore(Small(bounds), bounds.most_states)
