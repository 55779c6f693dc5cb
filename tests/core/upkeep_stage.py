"""A watchdog and notices over a clock and a store that the test has in its hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Ledger
from gripfast.core.notice import Notices
from gripfast.core.ports import Capabilities, Env, Hold, Store
from gripfast.core.upkeep import Errand, Upkeep
from gripfast.runtime.blocking import drive


class Recording:
    """A store that says yes."""

    capabilities = Capabilities(True, True, False, False, True, True, False, False)

    def __init__(self) -> None:
        self.renewed: list[str] = []
        self.within: list[float] = []
        self.raises: set[str] = set()
        """For these names."""

    async def renew(self, holds: Sequence[Hold], within: float) -> list[None]:
        if any(hold.name in self.raises for hold in holds):
            raise ValueError("planted")
        self.renewed += [hold.name for hold in holds]
        self.within.append(within)
        return [None] * len(holds)


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.store = Recording()
        self.told: list[str] = []
        self.leases: list[LeaseState] = []
        self.env = Env(
            store=cast(Store, self.store),
            ledger=Ledger(lambda mark: None),
            now=lambda: self.now,
            pause=cast(Any, None),
            new_owner=lambda: "",
            announce=self.announce,
            request_timeout=1.0,
            connect_patience=1.0,
        )
        self.upkeep = Upkeep(self.env)
        self.notices = Notices(self.env)

    def announce(self, state: LeaseState) -> None:
        self.notices.announce(state)
        self.upkeep.renews_at.announce(state.renew_at)

    def granted(self, name: str, ttl: float) -> LeaseState:
        """As `core.acquire` does it."""
        state = LeaseState(Want(name, name, ttl, True, None, None), owner=name)
        mark = self.env.ledger.enter(state)
        state.grant(1, ttl, self.now, self.now)
        state.on_lost = lambda state, reason: self.told.append(state.name)
        mark.granted = True
        self.leases.append(state)
        self.announce(state)
        return state

    def grant(self, name: str, ttl: float) -> Callable[[], LeaseState]:
        return lambda: self.granted(name, ttl)

    def go_round(self, *errands: Errand) -> float:
        return drive(self.upkeep.round(errands))

    def soon(self) -> LeaseState:
        return next(each for each in self.leases if each.name == "soon")

    def renews_what_is_due_soon(self) -> bool:
        self.now = self.soon().renew_at
        self.go_round()
        return "soon" in self.store.renewed

    def tells_what_is_lost_soon(self) -> bool:
        self.now = self.soon().deadline
        self.notices.tell()
        return "soon" in self.told
