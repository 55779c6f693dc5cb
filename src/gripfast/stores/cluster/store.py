"""The store: each request is one of `RedisStore`, at the node that has the name's slot.

All keys of a name are in one slot, so a node decides about a name alone, as a single server does. What is special:

1. *A slot that moves.* Its keys go one after the other. While they do, a script runs only where all its keys are, so no
   lock is granted from one half of them: claims and releases wait until the slot has arrived, renewals mostly need not
   (a held lock has both keys that a renewal needs). Nothing is lost: queue and token go with the lock.
2. *Unanswered claims.* One may have been sent to a node that does not have the slot any more. It gets a refusal there
   and does nothing, unless the slot comes back. So a clean-up follows it wherever it was sent (`_clean_up_elsewhere`).
3. *Pushes.* A waiter listens at the node that answered "still waiting"; no other node's push counts (`RedisStore`). A
   node that gives a slot away tells nobody. So waiters retry once a second. When the first waiter of a client is sent
   to another node, all its waiters for that slot retry at once. They keep their positions, but while a waiter has not
   subscribed there, hand-overs skip it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from gripfast.core import rules
from gripfast.core.kept import kept
from gripfast.core.ports import (
    Claim,
    Granted,
    Hold,
    Inbox,
    Kind,
    LockInfo,
    Loss,
    Page,
    PermitInfo,
    PermitPage,
    PermitStore,
    Prepared,
    Store,
    Taken,
    Unreachable,
)
from gripfast.stores.cluster.batches import Batches
from gripfast.stores.cluster.discovery import Discovery
from gripfast.stores.cluster.nodes import GIVE_BACK_WITHIN, Node, Nodes
from gripfast.stores.cluster.routing import Request, Routed, Routing
from gripfast.stores.cluster.spec import CAPABILITIES
from gripfast.stores.cluster.topology import Address, Topology
from gripfast.stores.cluster.waiting import Waiting
from gripfast.stores.faults import may_take_effect
from gripfast.stores.redis.keys import slot as slot_of
from gripfast.stores.redis.store import Names, RedisStore

PACE = 1.0
"""Seconds after which a waiter asks at the latest: its slot may have moved."""


class ClusterStore(Store, PermitStore):
    capabilities = CAPABILITIES

    def __init__(
        self, where: str, topology: Topology, nodes: Nodes, timeout: float, claimed_at: Nodes | None = None
    ) -> None:
        """`claimed_at`: where the claims were sent whose clean-ups are sent here."""
        self._where = where
        self._topology = topology
        self._nodes = nodes
        self._claimed_at = nodes if claimed_at is None else claimed_at
        self._timeout = timeout
        self._waiting = Waiting()
        self._discovery = Discovery(where, topology, nodes, self._waiting)
        self._routing = Routing(where, topology, nodes, self._discovery, self._waiting)
        self._batches = Batches(self._routing)
        self.inbox = nodes.driver.inbox  # type: ignore[method-assign]

    def inbox(self) -> Inbox:
        return self._nodes.driver.inbox()

    # Locks ------------------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        routed = await self._routing.one(claim.name, lambda store: store.claim(claim), 0.0, inbox=claim.inbox)
        answer: Granted | Taken | Unreachable = routed.answer
        if isinstance(answer, Granted):
            return answer._replace(sent=routed.sent)
        return self._taken(claim, answer, routed) if isinstance(answer, Taken) else answer

    def _taken(self, claim: Claim, taken: Taken, routed: Routed) -> Taken:
        if claim.inbox is None:  # nobody asks for it any more
            self._clean_up_elsewhere(Hold(claim.name, claim.owner, claim.ttl, share=claim.share), routed.at)
            return taken
        self._waiting.add(slot_of(claim.name.encode()), claim.owner, claim.inbox)
        expires_in = None if taken.holder is None else taken.holder.expires_in
        return taken._replace(again_in=min(PACE, rules.ask_again_at(0.0, claim.ttl, expires_in)))

    async def release(self, hold: Hold) -> Loss | Unreachable | None:
        routed = await self._routing.one(hold.name, lambda store: store.release(hold), self._timeout)
        answer: Loss | Unreachable | None = routed.answer
        if self._clean_up_elsewhere(hold, routed.at) and hold.keep is not None and answer is None:
            return may_take_effect(hold.name)
        is_loss = answer is not None and not isinstance(answer, Unreachable)
        if is_loss and routed.was_sent and (hold.keep is None or kept(hold.keep.owner) == "min_hold"):
            return None  # the first of two may have done it
        return answer

    async def adopt(self, hold: Hold, claim: Claim) -> Granted | Loss | Unreachable:
        return (await self._routing.one(hold.name, lambda store: store.adopt(hold, claim), self._timeout)).answer  # type: ignore[no-any-return]

    async def detach(self, hold: Hold, token: int) -> Loss | Unreachable | None:
        left = [await node.store.detach(hold, token) for node in self._nodes.all() if node.has_claims_of(hold.owner)]
        return next((trouble for trouble in left if trouble is not None), None)

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Loss | Unreachable | None]:
        waits = min(within, self._timeout)
        return await self._batches.each(holds, lambda store, some: store.renew(some, within), waits)

    async def abandon(self, holds: Sequence[Hold]) -> Sequence[Unreachable | None]:
        """A clean-up follows each claim that was not answered; one at the node that has the slot is `RedisStore`'s."""
        late = [
            hold.keep is None and self._clean_up_elsewhere(hold, self._topology.owners[slot_of(hold.name.encode())])
            for hold in holds
        ]
        answers = await self._batches.each(holds, lambda store, some: store.abandon(some), GIVE_BACK_WITHIN)
        for at, hold in enumerate(holds):
            if hold.keep is not None and answers[at] is None:  # not earlier: it would free what is to be kept
                late[at] = self._clean_up_elsewhere(hold, None)
        return [
            may_take_effect(hold.name) if answer is None and is_late else answer
            for hold, answer, is_late in zip(holds, answers, late, strict=True)
        ]

    def _clean_up_elsewhere(self, hold: Hold, here: Address | None) -> bool:
        """Behind claims that were sent to other nodes than this one; whether one may still take effect."""
        nodes = [node for node in self._claimed_at.all() if node.address != here and node.has_claims_of(hold.owner)]
        left = [node.store.clean_up_after(hold) for node in nodes]  # all of them, whatever becomes of the first
        return False in left

    # Operators --------------------------------------------------------------------------------------------------------

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        return (await self._routing.one(name, lambda store: store.inspect(name), self._timeout)).answer  # type: ignore[no-any-return]

    async def force_release(self, name: str, note: str | None = None) -> bool | Unreachable:
        """Not asked twice, as at a single server."""
        routed = await self._routing.one(name, lambda store: store.force_release(name, note), self._timeout, False)
        return routed.answer  # type: ignore[no-any-return]

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        """One node after the other. A name may come twice if its slot moves meanwhile."""
        step = await self._step(after, lambda store, cursor: store.names(prefix, cursor))
        if isinstance(step, Unreachable):
            return step
        node, names = step
        infos: list[LockInfo] = []
        for name, info in zip(names.found, await node.store.inspect_each(names.found), strict=True):
            if isinstance(info, Unreachable):
                info = await self._listed(node, name, functools.partial(_inspect, name))
            if isinstance(info, Unreachable):
                return info
            if info is not None:
                infos.append(info)
        return Page(infos, names.after)

    async def _listed(self, node: Node, name: str, request: Request) -> Any:
        """What a list of this node says of a name. None if another node has it now, whose turn is still to come."""
        routed = await self._routing.one(name, request, self._timeout)
        return None if routed.at is not None and str(routed.at) > str(node.address) else routed.answer

    async def _step(self, after: str | None, scan: Callable[[RedisStore, str | None], Any]) -> Any:
        """The node that one step of a list is about, and its names; where the next step starts."""
        if (trouble := await self._routing.begin()) is not None:
            return trouble
        at, _, cursor = (after or "").rpartition(" ")
        primaries = {str(address): address for address in self._topology.primaries}
        order = sorted(primaries)
        at = at or order[0]
        names = await scan(self._nodes[primaries[at]].store, cursor or None) if at in primaries else Names([], None)
        if isinstance(names, Unreachable):
            await self._discovery.refresh(primaries[at])
            return names
        following = next((other for other in order if other > at), None)
        place = f"{at} {names.after}" if names.after is not None else following and f"{following} "
        return self._nodes[primaries.get(at) or primaries[order[0]]], names._replace(after=place)

    # Permits ----------------------------------------------------------------------------------------------------------

    async def downgrade(self, hold: Hold, n: int) -> Loss | Unreachable | None:
        return (await self._routing.one(hold.name, lambda store: store.downgrade(hold, n), self._timeout)).answer  # type: ignore[no-any-return]

    async def resize(self, name: str, limit: int) -> Unreachable | None:
        return (await self._routing.one(name, lambda store: store.resize(name, limit), self._timeout)).answer  # type: ignore[no-any-return]

    async def inspect_permits(self, name: str, kind: Kind) -> PermitInfo | Unreachable | None:
        return (await self._routing.one(name, lambda store: store.inspect_permits(name, kind), self._timeout)).answer  # type: ignore[no-any-return]

    async def page_permits(self, kind: Kind, prefix: str, after: str | None) -> PermitPage | Unreachable:
        step = await self._step(after, lambda store, cursor: store.permit_names(kind, prefix, cursor))
        if isinstance(step, Unreachable):
            return step
        node, names = step
        infos: list[PermitInfo] = []
        for name in names.found:
            info = await self._listed(node, name, functools.partial(_inspect_permits, name, kind))
            if isinstance(info, Unreachable):
                return info
            if info is not None:
                infos.append(info)
        return PermitPage(infos, names.after)

    async def force_release_permits(
        self, name: str, kind: Kind, owner: str | None = None, slot: int | None = None, note: str | None = None
    ) -> bool | Unreachable:
        def request(store: RedisStore) -> Any:
            return store.force_release_permits(name, kind, owner, slot, note)

        return (await self._routing.one(name, request, self._timeout, False)).answer  # type: ignore[no-any-return]

    # ------------------------------------------------------------------------------------------------------------------

    async def prepare(self, max_ttl: float | None, ends_grace: bool = True) -> Prepared | Unreachable:
        """Every primary: none has had another before it. A node that was promoted has no marker, like a new one: only a
        Cluster where nobody has one is new."""
        if (trouble := await self._routing.begin()) is not None:
            return trouble
        refusal = None if ends_grace else await self._routing.stamps.why_not_new()
        if refusal is not None:
            return refusal
        prepared = await self._prepare_each(max_ttl, ends_grace)
        if isinstance(prepared, Prepared) and not prepared.grace:
            await self._routing.stamps.settle()
        return prepared

    async def _prepare_each(self, max_ttl: float | None, ends_grace: bool) -> Prepared | Unreachable:
        stores = [self._nodes[address].store for address in self._topology.primaries]
        done = [await store.prepare(max_ttl, ends_grace) for store in stores]
        prepared = [each for each in done if not isinstance(each, Unreachable)]
        if len(prepared) < len(done):
            return next(each for each in done if isinstance(each, Unreachable))
        largest, left = max(each.max_ttl for each in prepared), max(each.grace for each in prepared)
        return Prepared(largest, sum(each.unaware for each in prepared), left)

    def stop_waiting(self) -> None:
        self._nodes.stop_waiting()

    async def close(self) -> None:
        for node in self._nodes.all():
            await node.store.close()
        self._nodes.driver.at_end()


def _inspect(name: str, store: RedisStore) -> Any:
    return store.inspect(name)


def _inspect_permits(name: str, kind: Kind, store: RedisStore) -> Any:
    return store.inspect_permits(name, kind)
