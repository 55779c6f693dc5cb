"""A lock that breaks, and beside it the same events with a lease: the pictures of the README.

The rule of a lease is that of `protocols.rules.leased`: a search finds nothing that breaks it, so its story is told
without a search, along the events that break the other lock.
"""

from __future__ import annotations

from gripfast_lab.engines.redis import Alone
from gripfast_lab.model import Lab
from gripfast_lab.protocols import rules
from gripfast_lab.sim.explore import Found
from gripfast_lab.story import Story
from gripfast_lab.telling import told
from gripfast_lab.world import SLOW, Act, Protocol, State

NAME = "lease"
TITLE = "The same events, with a lease of Gripfast"


def lab() -> Lab:
    return Lab(NAME, Protocol(rules.leased, Alone(), faults={SLOW: 1}))


def beside() -> Story:
    """A acquires, becomes slow, time passes, B acquires."""
    world = lab()
    (state, *_) = world.starts()
    trail = [_step(world, state, "asks", "A")]
    trail.append(_step(world, trail[-1][1], SLOW, "A"))
    while not any(client.holds for client in trail[-1][1].clients[1:]):
        trail.append(_next(world, trail[-1][1]))
    return told(world, Found("", (), tuple(trail)), TITLE)


def _next(world: Lab, state: State) -> tuple[Act, State]:
    """Time passes until A's lease is over; then B asks."""
    if state.clients[0].holds:
        return _step(world, state, "passes", "")
    return _step(world, state, "asks", "B")


def _step(world: Lab, state: State, kind: str, who: str) -> tuple[Act, State]:
    return next((act, after) for act, after in world.steps(state) if act.kind == kind and act.who in (who, ""))
