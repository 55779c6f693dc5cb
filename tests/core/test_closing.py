"""What closing a client means for its claims, whatever the store."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from gripfast.core import closing
from gripfast.core.acquire import acquire
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Ledger, Mark
from gripfast.core.ports import Claim, Env, Granted, Hold, Inbox, Store, Taken, Unreachable, unreachable
from gripfast.core.release import release
from gripfast.errors import ClientClosed, StoreUnavailable
from gripfast.runtime.blocking import drive

WANT = Want("job", "app:job", 30.0, True, None, None)
HOLD = Hold("app:job", "me", 30.0)
DOWN = unreachable(StoreUnavailable("down"))


class Waiting:
    def deliver(self, push: Granted | None) -> bool:
        return True

    async def hear(self, until: float) -> Granted | None:
        return None


class Scripted:
    """Does something while a claim is under way, and then answers."""

    def __init__(self, *answers: Granted | Taken | Unreachable) -> None:
        self.answers = list(answers)
        self.meanwhile: Callable[[], None] = lambda: None
        self.cleans_up: Unreachable | None = None
        self.abandoned: list[Hold] = []
        self.claims = 0
        self.woken = 0

    def inbox(self) -> Inbox:
        return Waiting()

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        self.claims += 1
        self.meanwhile()
        return self.answers.pop(0)

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        self.abandoned += holds
        return [self.cleans_up] * len(holds)

    async def release(self, hold: Hold) -> None:
        raise ClientClosed

    def stop_waiting(self) -> None:
        self.woken += 1


class Scene:
    def __init__(self, *answers: Granted | Taken | Unreachable) -> None:
        self.dropped: list[Mark] = []
        self.store = Scripted(*answers)
        self.env = Env(
            store=cast(Store, self.store),
            ledger=Ledger(self.dropped.append),
            now=lambda: 0.0,
            pause=cast(Any, None),
            new_owner=lambda: "me",
            announce=lambda state: None,
            request_timeout=1.0,
            connect_patience=1.0,
        )

    def close_meanwhile(self) -> None:
        self.store.meanwhile = lambda: closing.begin(self.env)

    def left(self) -> list[str]:
        """To whoever cleans up."""
        return list({mark.owner: mark.key for mark in self.dropped if self.env.ledger.knows(mark)}.values())

    def acquire(self, wait: float | None = 0.0) -> LeaseState | Taken:
        return drive(acquire(self.env, WANT, wait))


def test_a_claim_of_a_closed_client_is_refused_and_nothing_is_sent() -> None:
    scene = Scene()
    closing.begin(scene.env)
    with pytest.raises(ClientClosed):
        scene.acquire()
    assert (scene.store.claims, scene.store.abandoned) == (0, [])
    assert len(scene.env.ledger) == 0
    assert scene.store.woken == 1


@pytest.mark.parametrize("answer", [Granted(1, 30.0), Taken(None, 0), DOWN])
def test_a_claim_that_is_under_way_when_its_client_is_closed_is_undone(answer: Granted | Taken | Unreachable) -> None:
    scene = Scene(answer)
    scene.close_meanwhile()
    with pytest.raises(ClientClosed):
        scene.acquire()
    assert scene.store.abandoned == [HOLD]
    assert len(scene.env.ledger) == 0


def test_what_could_not_be_undone_is_left_to_whoever_cleans_up() -> None:
    scene = Scene(Granted(1, 30.0))
    scene.store.cleans_up = DOWN
    scene.close_meanwhile()
    with pytest.raises(ClientClosed):
        scene.acquire()
    assert scene.left() == ["app:job"]


def test_a_claim_that_never_left_needs_no_undoing() -> None:
    scene = Scene(unreachable(StoreUnavailable("down"), was_sent=False))
    scene.close_meanwhile()
    with pytest.raises(ClientClosed):
        scene.acquire()
    assert scene.store.abandoned == []
    assert len(scene.env.ledger) == 0


def test_a_waiter_that_is_woken_by_the_closing_asks_no_more_and_is_cleaned_up() -> None:
    scene = Scene(Taken(None, 0))

    class Closes(Waiting):
        async def hear(self, until: float) -> Granted | None:
            closing.begin(scene.env)
            return None

    scene.store.inbox = Closes  # type: ignore[method-assign]
    with pytest.raises(ClientClosed):
        scene.acquire(wait=None)
    assert scene.store.claims == 1
    assert scene.left() == ["app:job"]


def test_a_release_that_meets_a_closed_connection_is_left_to_the_client() -> None:
    scene = Scene(Granted(1, 30.0))
    state = scene.acquire()
    assert isinstance(state, LeaseState)
    drive(release(scene.env, state))
    assert scene.left() == ["app:job"]
