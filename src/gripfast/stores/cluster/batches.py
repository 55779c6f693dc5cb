"""Requests about many names: each node gets its own together, all nodes at once, and none waits for another node.

A node that is stopped costs only the names that it has. So whatever is done for a node, reading the topology included,
ends when the time of the request is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from gripfast.core.ports import Hold, Unreachable, unreachable
from gripfast.errors import OutcomeUnknown
from gripfast.machine import boottime
from gripfast.stores.cluster import redirects
from gripfast.stores.cluster.redirects import Next
from gripfast.stores.cluster.routing import Routing, Trip
from gripfast.stores.cluster.topology import Address
from gripfast.stores.redis.keys import slot as slot_of
from gripfast.stores.redis.store import RedisStore

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Requests = Callable[[RedisStore, Sequence[Hold]], Awaitable[Any]]


class Batches:
    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    async def each(self, holds: Sequence[Hold], request: Requests, waits: float) -> list[Any]:
        """An answer for each. `waits`: seconds that all of it may take."""
        routing = self._routing
        if not routing.is_ready and (trouble := await routing.begin()) is not None:
            return [trouble] * len(holds)
        slots = [slot_of(hold.name.encode()) for hold in holds]
        groups = grouped(range(len(holds)), lambda at: routing.topology.owners[slots[at]])
        shares = [
            Share(routing, [holds[at] for at in group], [slots[at] for at in group], owner, request, waits)
            for owner, group in groups.items()
        ]
        await routing.nodes.driver.together([share.run() for share in shares], waits)
        answers: list[Any] = [None] * len(holds)
        for group, share in zip(groups.values(), shares, strict=True):
            for at, answer in zip(group, share.answers, strict=True):
                answers[at] = answer
        return answers


class Share:
    """That of one node, and what becomes of it if the slots are not there any more."""

    def __init__(
        self,
        routing: Routing,
        holds: Sequence[Hold],
        slots: Sequence[int],
        owner: Address | None,
        request: Requests,
        waits: float,
    ) -> None:
        self._routing = routing
        self._holds = holds
        self._request = request
        self._until = boottime() + waits
        self._trips = [Trip(slot, waits) for slot in slots]
        self._asked: list[Address | None] = [owner] * len(holds)
        """Who is asked next, or was asked last."""
        self.answers: list[Any] = [self._no_answer(owner, slots[0])] * len(holds)

    def _no_answer(self, owner: Address | None, slot: int) -> Unreachable:
        """If there is no time for more."""
        if owner is None:
            return self._routing.uncovered(slot)
        where = self._routing.nodes[owner].link.server.where
        message = "did not answer in time: check whether it is paused, overloaded or cut off"
        return unreachable(OutcomeUnknown(f"{where} {message}", {where: message}))

    async def run(self) -> None:
        left = [at for at, owner in enumerate(self._asked) if owner is not None]
        while left:
            for (address, asks), group in grouped(left, self._where_to).items():
                node = self._routing.nodes[address]
                some = [self._holds[at] for at in group]
                answers = await self._request(node.asked if asks else node.store, some)
                if isinstance(answers, Unreachable):
                    answers = [answers] * len(group)
                node.is_silent = any(_is_doubt(answer) for answer in answers)
                for at, answer in zip(group, answers, strict=True):
                    self.answers[at] = answer
            left = await self._next([at for at in left if isinstance(self.answers[at], Unreachable)])

    def _where_to(self, at: int) -> tuple[Address, bool]:
        address = self._asked[at]
        assert address is not None
        return address, self._trips[at].asks is not None

    async def _next(self, left: Sequence[int]) -> list[int]:
        """Which of them are asked for again, after a pause if there has to be one."""
        topology = self._routing.topology
        steps = {at: redirects.after(self.answers[at], topology, self._where_to(at)[0]) for at in left}
        for doubted in {self._asked[at] for at in left if steps[at].step in ("doubt", "down")}:
            if boottime() < self._until:
                await self._routing.discovery.refresh(doubted, self._until)
        pauses = {at: self._turn(at, steps[at]) for at in left}
        again = {at: pause for at, pause in pauses.items() if pause is not None}
        if any(again.values()):
            await self._routing.nodes.driver.pause(max(again.values()))
        return list(again)

    def _turn(self, at: int, step: Next) -> float | None:
        """Where one of them goes next; seconds before that, or None if it does not."""
        trip, asked = self._trips[at], self._asked[at]
        self._routing.learn(step)
        asks = step.step == "ask" and step.slot == trip.slot
        owner = step.to if asks else self._routing.topology.owners[trip.slot]
        trip.asks = owner if asks else None
        if owner is None or step.step == "refused":
            return None
        self._asked[at] = owner
        if step.step == "doubt":
            return None if owner == asked or trip.is_over else 0.0
        return trip.pause(step)


def _is_doubt(answer: Any) -> bool:
    """The node did not answer, or can't serve."""
    return isinstance(answer, Unreachable) and not getattr(answer.error, "_reply", "")


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
