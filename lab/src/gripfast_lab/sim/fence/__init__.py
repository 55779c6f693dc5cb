"""Redlock's rule as two small models that share no code with the real one, and every state of them.

`tokens`: tokens grow although no clock can be relied on. `validity`: two never hold the lock at once, if clocks can be
relied on and nodes forget. Each is explored by name, in two sizes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gripfast_lab.sim.explore import Report, explore
from gripfast_lab.sim.fence.tokens import Fence
from gripfast_lab.sim.fence.validity import Validity

_MODELS: list[Any] = [
    Fence(attempts=3, proposals=(0, 1), name="fence"),
    Fence(ordered=True, name="fence-order"),
    Validity(attempts=3, name="fence-time"),
    Fence(attempts=4, name="fence-large"),
    Fence(proposals=range(6), ordered=True, name="fence-order-large"),
    Validity(attempts=3, rounds=2, forgets=2, name="fence-time-large"),
]
MODELS = {model.name: model for model in _MODELS}


def explored(name: str) -> Report:
    """A path is told by a search of its own, in which the nodes keep their names."""
    report = explore(replace(MODELS[name], merging=True))
    return explore(MODELS[name]) if report.violations else report
