"""The nodes of a simulated Redlock client: the talk of production, driven by the world's network and time.

A client that shares its connections has production's own nodes (`SharedNodes`). One that lends them does as the
blocking driver: a talk with all nodes, lent to one poll at a time. What is known about a node, its health and the
unanswered claims, is one for all talks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from gripfast.core.redlock.nodes import Ballot, Free, Request
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.conversation import IDLE_MOST, Conversation
from gripfast.stores.redlock.polls import Question
from gripfast.stores.redlock.protocol import Wording, owner_of
from gripfast.stores.redlock.shared import SharedNodes
from gripfast.stores.redlock.talk import Node, NodeTalk, Talk
from gripfast_lab.sim.network import Network
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.redis.link import Future, Place, SimInbox, SimLoop, SimOpening, SimServer
from gripfast_lab.sim.redis.node import Node as Peer
from gripfast_lab.sim.world import Cancelled


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
        self.process = process
        self.wording = wording
        self.wall_us = wall_us
        self.chance = chance
        self.inboxes = Inboxes()
        self.loop = SimLoop(process)
        self.places = [
            Place(network, process, peer, SimServer(peer.name, timeout, followed), self.inboxes) for peer in peers
        ]


class SimNodes(SharedNodes):
    """Production's own, as asyncio has it."""

    def __init__(self, around: Around) -> None:
        down: set[Node] = set()
        nodes = [_node(around, at, down) for at in range(len(around.places))]
        talks = [
            NodeTalk(node, SimOpening(place, place.dial_and_ask), around.wording, around.inboxes, around.loop)
            for node, place in zip(nodes, around.places, strict=True)
        ]
        self.around = around
        self.down = down
        self.wall_us, self.chance = around.wall_us, around.chance
        self.inbox = partial(SimInbox, around.process)
        super().__init__(talks, around.wording, around.inboxes, down, Future)
        for node, talk in zip(nodes, talks, strict=True):
            node.probe = partial(_probe, talk)

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
        talk = self._borrow(next((owner_of(request) for request in requests if request is not None), None))
        try:
            await self.poll_on(talk, requests, ballot, within)
        except (Cancelled, Exception):  # nobody asks anything on it any more
            self._dismiss(talk)
            raise
        self._put_back(talk)

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        talk = self._borrow(owner_of(request))
        talk.send(request, nodes)
        self._put_back(talk)

    def _borrow(self, owner: str | None) -> Talk:
        """Best of all the one that carried an unanswered claim of this owner."""
        carrying = [node.server.unanswered.get(owner or "") for node in self.nodes]
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
        talks = [_LentTalk(self.around, node, self._beside) for node in self.nodes]
        return Talk(talks, self.around.wording, self.down)

    def _put_back(self, talk: Talk) -> None:
        if len(self._idle) < self._idle_most and not self._is_closed:
            self._idle.append(talk)
        else:
            self._dismiss(talk)

    def _dismiss(self, talk: Talk) -> None:
        for each in talk.talks:
            each.let_go()
        talk.close()

    def close_now(self) -> None:
        while self._idle:
            self._dismiss(self._idle.pop())
        super().close_now()


class _LentTalk(NodeTalk):
    def __init__(self, around: Around, node: Node, beside: SimNodes | None) -> None:
        place = around.places[node.place]
        opening = SimOpening(place, place.dial)
        super().__init__(node, opening, around.wording, around.inboxes, around.loop, is_lent=True)
        self._beside = None if beside is None else beside.talk.talks[node.place]

    def _follow(self, question: Question, here: Conversation | None) -> list[bool | None]:
        """Also where the client has sent the claims."""
        left = super()._follow(question, here)
        if self._beside is not None:
            for at, part in enumerate(question.parts):
                if type(part) is Free:
                    packed = self._wording.in_full(part, b"")
                    left[at] = _both(left[at], self._beside.clean_up(part.owner, packed))
        return left


def _both(one: bool | None, other: bool | None) -> bool | None:
    known = [left for left in (one, other) if left is not None]
    return all(known) if known else None


def _node(around: Around, at: int, down: set[Node]) -> Node:
    place = around.places[at]
    node = Node(at, place.server, around.loop, around.process.now, down)
    node.notifications = SimOpening(place, place.subscribe)
    return node


def _probe(talk: NodeTalk) -> None:
    talk.let_go()
    talk.dial()
