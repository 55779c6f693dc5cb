"""What was given up is released owner by owner: the trouble of one is not that of the others."""

from collections.abc import Sequence

from gripfast import StoreUnavailable
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Ledger
from gripfast.core.ports import Hold, Unreachable
from gripfast.core.upkeep import Reaper
from gripfast.runtime.blocking import drive
from gripfast.stores.sql.store import capabilities

DOWN = Unreachable(StoreUnavailable("no answer"))


class OneStuck:
    """A store that can't release what is called stuck."""

    capabilities = capabilities(pushes=False)

    def __init__(self, is_down: bool = False) -> None:
        self.is_down = is_down

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        return [DOWN if self.is_down or hold.name == "stuck" else None for hold in holds]

    def forget(self, owner: str) -> None:
        """Nothing is kept."""


def reaped(store: OneStuck, *names: str) -> tuple[Ledger, float]:
    """The ledger after a round in which these were given up, and the moment of the next round."""
    ledger = Ledger(lambda mark: None)
    states = [
        LeaseState(Want(name, name, 30.0, renews=True, max_hold=None, label=None), f"owner of {name}") for name in names
    ]
    marks = [ledger.enter(state) for state in states]
    reaper = Reaper(store, lambda: 0.0)  # type: ignore[arg-type]
    return ledger, drive(reaper.reap(marks))


def names_left(ledger: Ledger) -> list[str]:
    return [mark.name for mark in ledger.marks()]


def test_one_that_can_not_be_released_does_not_keep_the_others_waiting() -> None:
    ledger, again_at = reaped(OneStuck(), "first", "stuck", "last")
    assert names_left(ledger) == ["stuck"]
    assert again_at < 1.0


def test_nothing_is_confirmed_by_a_store_that_is_down() -> None:
    ledger, _ = reaped(OneStuck(is_down=True), "first", "last")
    assert names_left(ledger) == ["first", "last"]
