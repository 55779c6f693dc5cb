"""Bugs that other libraries had, or that this one could have: planted one at a time, each must be caught.

If one is not, the checkers or the scenario prove less than they seem to. How a bug is planted: see `planting`. A bug
that breaks no rule (something is slower, or done twice) has no place here.
"""

from __future__ import annotations

from gripfast_lab.sim.mutants.cleanup import CLEAN_UP
from gripfast_lab.sim.mutants.deadlines import DEADLINES
from gripfast_lab.sim.mutants.etcd import ETCD
from gripfast_lab.sim.mutants.failover import FAILOVER
from gripfast_lab.sim.mutants.lazy import LAZY
from gripfast_lab.sim.mutants.once import ONCE
from gripfast_lab.sim.mutants.permits import PERMITS
from gripfast_lab.sim.mutants.planting import Mutant
from gripfast_lab.sim.mutants.queue import QUEUE
from gripfast_lab.sim.mutants.redlock import REDLOCK
from gripfast_lab.sim.mutants.renewal import RENEWAL
from gripfast_lab.sim.mutants.tokens import TOKENS
from gripfast_lab.sim.mutants.truth import TRUTH

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: tuple[Mutant, ...] = (
    *DEADLINES,
    *QUEUE,
    *RENEWAL,
    *CLEAN_UP,
    *TOKENS,
    *TRUTH,
    *REDLOCK,
    *PERMITS,
    *ONCE,
    *FAILOVER,
    *LAZY,
    *ETCD,
)
