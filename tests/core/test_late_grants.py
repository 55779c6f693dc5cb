"""A grant that came too late to be used is given back at once, and the planted bug that keeps it is caught.

The simulation hardly sees it: what comes too late for its client is nearly over at the engine.
"""

import itertools
from typing import Any, cast

import pytest

from gripfast.core import acquire
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Ledger, Mark
from gripfast.core.ports import Claim, Env, Granted, Store
from gripfast.runtime.blocking import drive
from gripfast_lab.sim.mutants.planting import Edit, Mutant

TTL = 10.0
LATE_GRANT_KEPT = Mutant(
    "late grant kept",
    "clean-up",
    "A grant that came too late to be used is not given back.",
    (
        Edit(
            acquire.acquire,
            "raise\n        env.ledger.abandon(state)",
            "raise\n        env.ledger.confirm_gone(state.owner)",
        ),
    ),
)


class Slow:
    """A store whose first answer takes longer than the ttl."""

    def __init__(self) -> None:
        self.now = 0.0
        self.delays = itertools.chain([TTL + 1], itertools.repeat(0.0))

    def inbox(self) -> None:
        return None

    async def claim(self, claim: Claim) -> Granted:
        self.now += next(self.delays)
        return Granted(1, claim.ttl)


def given_back() -> set[str]:
    """Owners that are given back while a lock is acquired of which the first grant comes too late."""
    store, owners, dropped = Slow(), map(str, itertools.count(1)), set[str]()

    def drop(mark: Mark) -> None:
        if env.ledger.knows(mark):
            dropped.add(mark.owner)

    env = Env(
        store=cast(Store, store),
        ledger=Ledger(drop),
        now=lambda: store.now,
        pause=cast(Any, None),
        new_owner=lambda: next(owners),
        announce=lambda state: None,
        request_timeout=60.0,
        connect_patience=60.0,
    )
    state = drive(acquire.acquire(env, Want("job", "job", TTL, True, None, None), 60.0))
    assert isinstance(state, LeaseState)
    assert state.owner == "2"
    return set(dropped)  # the lease of this frame is given back when it ends


def test_a_grant_that_came_too_late_is_given_back_and_the_next_one_is_used() -> None:
    assert given_back() == {"1"}


def test_the_planted_bug_that_keeps_it_is_caught() -> None:
    with LATE_GRANT_KEPT.planted():
        with pytest.raises(AssertionError):
            assert given_back() == {"1"}
