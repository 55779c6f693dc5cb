"""A request goes to the node that has the slot, and on to wherever a node sends it (`redirects.py` has the table).

It waits while the slot is being moved, for as long as its caller says. `batches.py` has requests about many names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from gripfast.core.ports import Inbox, Unreachable, unreachable
from gripfast.errors import StoreUnavailable
from gripfast.machine import boottime
from gripfast.stores import layout
from gripfast.stores.cluster import redirects
from gripfast.stores.cluster.discovery import TELLS_MOST, Discovery
from gripfast.stores.cluster.nodes import Nodes
from gripfast.stores.cluster.redirects import Next
from gripfast.stores.cluster.stamps import Stamps
from gripfast.stores.cluster.topology import Address, Topology, ranges
from gripfast.stores.cluster.waiting import Waiting
from gripfast.stores.faults import Fault
from gripfast.stores.redis import protocol
from gripfast.stores.redis.faults import other_layout
from gripfast.stores.redis.keys import LAYOUT
from gripfast.stores.redis.keys import slot as slot_of
from gripfast.stores.redis.store import RedisStore

HOPS_MOST = 4
"""Redirects that are followed without a pause: nodes that do not agree yet send a request back and forth."""
CERTIFIED_MOST = 3
"""Times that a slot is certified for one request."""
PAUSE_LEAST, PAUSE_MOST = 0.01, 0.1
"""Seconds before a node is asked again that moves the slot."""

Request = Callable[[RedisStore], Awaitable[Any]]


class Routed(NamedTuple):
    answer: Any
    at: Address | None = None
    """The node that gave it."""
    sent: float | None = None
    """Before the request left that it answers: others may have come before that, and who has the slot was looked up."""
    was_sent: bool = False
    """A request before that, whose answer did not come, may have taken effect."""


class Trip:
    """Of one request: where it goes next, and how long it may go on."""

    def __init__(self, slot: int, waits: float) -> None:
        self.slot = slot
        self.asks: Address | None = None
        """To whom it was sent by ASK."""
        self.until = boottime() + waits
        self.was_sent = False
        self._hops = 0
        self._pauses = 0
        self._certified = 0

    def may_certify(self) -> bool:
        """Not for ever: somebody may be moving the slot back and forth."""
        self._certified += 1
        return self._certified <= CERTIFIED_MOST

    @property
    def is_over(self) -> bool:
        return boottime() >= self.until

    def pause(self, step: Next) -> float | None:
        """Seconds before the next request; None if there is none."""
        if step.step in ("moved", "ask") and self._hops < HOPS_MOST:
            self._hops += 1
            return 0.0
        if self.is_over:
            return None
        self._pauses += 1
        return min(PAUSE_MOST, PAUSE_LEAST * 2.0 ** (self._pauses - 1), max(0.001, self.until - boottime()))


class Routing:
    def __init__(self, where: str, topology: Topology, nodes: Nodes, discovery: Discovery, waiting: Waiting) -> None:
        self.topology = topology
        self.nodes = nodes
        self._where = where
        self.discovery = discovery
        self.stamps = Stamps(topology, nodes, discovery)
        self._waiting = waiting
        self.is_ready = False

    async def begin(self) -> Unreachable | None:
        """Before the first request: who has which slot, and whether their layout is ours."""
        if self.is_ready:
            return None
        trouble = await self.discovery.refresh() or await self._check_layout()
        self.is_ready = trouble is None
        return trouble

    async def _check_layout(self) -> Unreachable | None:
        """Here, because one node has the number of all of them (`stores/layout.py`)."""
        answer = (await self._one(LAYOUT.decode(), _layout, TELLS_MOST)).answer
        if isinstance(answer, Unreachable) or answer == b"%d" % layout.REDIS:
            return answer if isinstance(answer, Unreachable) else None
        fault = other_layout(self._where, answer, layout.REDIS)
        return unreachable(fault.error, False, is_permanent=fault.is_permanent)

    async def one(
        self, name: str, request: Request, waits: float, repeats: bool = True, inbox: Inbox | None = None
    ) -> Routed:
        """`waits`: seconds for which it waits for a slot that is being moved. `repeats`: also if the answer to the
        first request did not come. `inbox`: who listens at the node that answers."""
        if not self.is_ready and (trouble := await self.begin()) is not None:
            return Routed(trouble)
        return await self._one(name, request, waits, repeats, inbox)

    async def _one(
        self, name: str, request: Request, waits: float, repeats: bool = True, inbox: Inbox | None = None
    ) -> Routed:
        trip = Trip(slot_of(name.encode()), waits)
        while True:
            owner = trip.asks or await self._owner(trip.slot)
            if isinstance(owner, Unreachable):
                return Routed(owner, was_sent=trip.was_sent)
            node = self.nodes[owner]
            if inbox is not None:
                node.link.hears(inbox)
            sent = boottime()
            store = node.asked if trip.asks else node.store
            answer = await request(store)
            if not isinstance(answer, Unreachable):
                return Routed(answer, owner, sent, trip.was_sent)
            trip.was_sent = trip.was_sent or answer.was_sent
            step = redirects.after(answer, self.topology, owner)
            if step.step == "unstamped" and trip.may_certify():
                trouble = await self.stamps.certify(node, store, trip.slot)
                if trouble is None:
                    continue
                answer, step = trouble, redirects.after(trouble, self.topology, owner)
            if (answer.was_sent and not repeats) or not await self._goes_on(trip, step, owner):
                if step.step == "down":
                    await self.discovery.look_for_gaps(owner)
                return Routed(self._in_words(answer, trip, step), owner, was_sent=trip.was_sent)

    async def _owner(self, slot: int) -> Address | Unreachable:
        """Who has it, as far as anybody tells."""
        owner = self.topology.owners[slot]
        if owner is None:
            trouble = await self.discovery.refresh()
            owner = self.topology.owners[slot]
            return (trouble or self.uncovered(slot)) if owner is None else owner
        return owner

    async def _goes_on(self, trip: Trip, step: Next, asked: Address) -> bool:
        """Whether there is another node to ask, or the same once more; when it is time to."""
        trip.asks = step.to if step.step == "ask" and step.slot == trip.slot else None
        if step.step in ("refused", "doubt"):
            return step.step == "doubt" and await self._has_another(trip.slot, asked)
        self.learn(step)
        pause = None if self.nodes.is_closing else trip.pause(step)
        if step.step == "down":
            await self.discovery.refresh(asked)
        if pause:
            await self.nodes.driver.pause(pause)
        return pause is not None

    def learn(self, step: Next) -> None:
        """Not only about the slot of the request: that of the node's marker may be another."""
        if step.step == "moved" and step.to is not None and self.topology.move(step.slot, step.to):
            self._waiting.moved(step.slot)
        elif step.step == "ask":
            self.topology.leaving.add(step.slot)

    async def _has_another(self, slot: int, doubted: Address) -> bool:
        await self.discovery.refresh(doubted)
        return self.topology.owners[slot] not in (None, doubted)

    # Words ------------------------------------------------------------------------------------------------------------

    def _in_words(self, answer: Unreachable, trip: Trip, step: Next) -> Unreachable:
        """What a caller is told who has waited for long enough."""
        if step.step in ("moved", "ask"):
            message = (
                f"{self._where} has nodes that do not agree who has slot {trip.slot} ({answer.error._reply}): run "  # type: ignore[union-attr]
                "CLUSTER NODES on each of them, and `redis-cli --cluster check`"
            )
            return unreachable(StoreUnavailable(message, answer.error.nodes), trip.was_sent)  # type: ignore[union-attr]
        if step.step == "down":
            return self.uncovered(trip.slot, answer)._replace(was_sent=trip.was_sent)
        return answer._replace(was_sent=trip.was_sent, was_refused=False)

    def uncovered(self, slot: int, answer: Unreachable | None = None) -> Unreachable:
        slots = ranges(self.topology.gaps())
        which = f"slots {slots} have no node" if slots else f"it can't serve slot {slot}"
        nodes = {} if answer is None else answer.error.nodes  # type: ignore[union-attr]
        said = "" if answer is None else f" ({answer.error._reply})"  # type: ignore[union-attr]
        message = f"{self._where} is down: {which}{said}. Run CLUSTER INFO on its nodes, and repair it"
        return unreachable(StoreUnavailable(message, nodes), False)


async def _layout(store: RedisStore) -> Any:
    """The number; written if there is none."""
    found = await store.ask(protocol.read_layout)
    if found is None:
        await store.ask(protocol.write_layout(b"%d" % layout.REDIS))
        found = await store.ask(protocol.read_layout)
    if not isinstance(found, Fault):
        return found
    return unreachable(found.error, found.was_sent, found.was_refused, found.is_permanent)
