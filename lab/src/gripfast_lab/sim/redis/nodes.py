"""The nodes of a simulated Redlock client: the talk of production, driven by the world's network and time.

A client that shares its connections has production's own nodes (`SharedNodes`). One that lends them does as the
blocking driver: a talk with all nodes, lent to one poll at a time. What is known about a node, its health and the
unanswered claims, is one for all talks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from gripfast.core.redlock.nodes import Ballot, Decided, Request
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.conversation import IDLE_MOST
from gripfast.stores.redis.shared import Opening
from gripfast.stores.redlock.protocol import Wording
from gripfast.stores.redlock.shared import SharedNodes, poll_on
from gripfast.stores.redlock.talk import Health, Node, NodeTalk, Talk
from gripfast_lab.sim.network import Network
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.redis.link import Place, SimOpening, SimServer
from gripfast_lab.sim.redis.node import Node as Peer
from gripfast_lab.sim.runtime import SimInbox
from gripfast_lab.sim.world import Cancelled, Promise


class Around:
    def __init__(
        self,
        network: Network,
        process: Process,
        peers: Sequence[Peer],
        timeout: float,
        wording: Wording,
        wall_us: Callable[[], int],
        chance: Callable[[], float],
        followed: dict[str, None],
    ) -> None:
        self.process, self.wording = process, wording
        self.wall_us, self.chance = wall_us, chance
        self.inboxes = Inboxes()
        self.places = [
            Place(network, process, lambda peer=peer: peer, SimServer(peer.name, timeout, followed), self.inboxes)  # type: ignore[misc]
            for peer in peers
        ]

    def talk(self, node: Health, opening: Opening, is_lent: bool = False, beside: NodeTalk | None = None) -> NodeTalk:
        return NodeTalk(node, opening, self.wording, self.inboxes, self.process, is_lent, beside)


class SimNodes(SharedNodes):
    """Production's own, as asyncio has it."""

    def __init__(self, around: Around) -> None:
        down, nodes, talks = set[Health](), list[Node](), list[NodeTalk]()
        for at, place in enumerate(around.places):
            node = Node(at, place.server, around.process, around.process.now, down)
            node.notifications = SimOpening(place, place.subscribe)
            nodes.append(node)
            talks.append(around.talk(node, SimOpening(place, place.dial_and_ask)))
            node.probe = partial(_probe, talks[-1])
        self.around, self.down = around, down
        self.wall_us, self.chance = around.wall_us, around.chance
        self.inbox = partial(SimInbox, around.process)
        super().__init__(nodes, talks, around.wording, around.inboxes, down, Promise)

    async def listen(self) -> None:
        for dialing in self._begin_to_listen():
            await dialing


class LendingNodes(SimNodes):
    """As the blocking driver: talks are lent. The one that is never lent looks after nodes that are down."""

    def __init__(self, around: Around, beside: SimNodes | None = None) -> None:
        """`beside`: where claims were sent whose clean-ups are sent here; then no talk is kept."""
        super().__init__(around)
        self._beside = beside
        self._idle: list[Talk] = []
        self._idle_most = IDLE_MOST if beside is None else 0

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        talk = self._borrow(next((request for request in requests if request is not None), None))
        try:
            await poll_on(talk, requests, ballot, within, self.new_future())
        except (Cancelled, Exception):  # nobody asks anything on it any more
            talk.dismiss()
            raise
        self._put_back(talk)

    def begin(self, requests: Sequence[Request | None], ballot: Ballot, decided: Decided) -> bool:
        return False

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        talk = self._borrow(request)
        talk.send(request, nodes)
        self._put_back(talk)

    def _borrow(self, request: Request | None) -> Talk:
        """Best of all the one that carried an unanswered claim of its owner."""
        carrying = [node.server.unanswered.get(getattr(request, "owner", "")) for node in self.nodes]
        for talk in self._idle:
            if any(each.requests.latest in carrying for each in talk.talks if each.requests.latest is not None):
                self._idle.remove(talk)
                return talk
        talk = self._idle.pop(0) if self._idle else self._new_talk()
        for each in talk.talks:
            if each.node.trouble is not None:
                each.let_go()  # it is as old as the one that failed
        return talk

    def _new_talk(self) -> Talk:
        around = self.around
        beside = [None] * len(self.nodes) if self._beside is None else self._beside.talk.talks
        talks = [
            around.talk(node, SimOpening(place, place.dial), is_lent=True, beside=other)
            for node, place, other in zip(self.nodes, around.places, beside, strict=True)
        ]
        return Talk(talks, around.wording, self.down, must_follow=lambda clean_up: True)

    def _put_back(self, talk: Talk) -> None:
        """Not while it waits for a connection, with what it has to send: the blocking driver waits for that, too."""
        for opening in [each.requests for each in talk.talks]:
            if opening.dialing is not None:
                opening.when_ended = partial(self._dialled, talk, opening, opening.when_ended)
                return
        if len(self._idle) < self._idle_most and not self._is_closed:
            self._idle.append(talk)
        else:
            talk.dismiss()

    def _dialled(self, talk: Talk, opening: Opening, told: Callable[[Any], None], outcome: Any) -> None:
        opening.when_ended = told
        told(outcome)
        self._put_back(talk)

    def close_now(self) -> None:
        while self._idle:
            self._idle.pop().dismiss()
        super().close_now()


def _probe(talk: NodeTalk) -> None:
    talk.let_go()
    talk.dial()
