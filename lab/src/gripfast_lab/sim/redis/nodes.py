"""The nodes of a simulated Redlock client: the third colour of the `Nodes` port, over the world's network.

A `Line` is what a client has to do with one node: its connections, and whether the node is asked at all. It lends a
connection to each request, as the blocking adapter does, or has one for all, as the asyncio adapter. Either way the
requests of one owner go over the connection that carries an unanswered one of it, while that works; a clean-up follows
also on those that were given up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hiredis import ReplyError

from gripfast.core.ports import Inbox
from gripfast.core.redlock.ballot import majority
from gripfast.core.redlock.nodes import Answer, Ballot, Each, Failed, ForceRelease, Free, Freed, Request, Unlock, Vote
from gripfast.errors import ClientClosed, OutcomeUnknown
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis import protocol
from gripfast.stores.redis.faults import Fault, LinkDown
from gripfast.stores.redlock.protocol import Wording, owner_of
from gripfast_lab.sim.network import Network
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.redis.link import IDLE_MOST, SimLink, Wire
from gripfast_lab.sim.redis.node import Node
from gripfast_lab.sim.world import Cancelled, Promise

PING = protocol.command(b"PING")
FIRST_PAUSE = 0.02
"""Seconds until a node that is down is looked at again; they double."""
LAST_PAUSE = 1.0


class SimNodes:
    def __init__(
        self,
        network: Network,
        process: Process,
        nodes: Sequence[Node],
        timeout: float,
        wording: Wording,
        wall_us: Callable[[], int],
        chance: Callable[[], float],
        shares: bool,
        chased: dict[str, None],
        beside: SimNodes | None = None,
    ) -> None:
        """`beside`: those of the same client whose unanswered requests its clean-ups have to follow."""
        self.names: Sequence[str] = [node.name for node in nodes]
        self.inboxes = Inboxes()
        self.wall_us = wall_us
        self.chance = chance
        self._is_closed = False
        self._shares = shares
        followed: Sequence[Line | None] = [None] * len(nodes) if beside is None else beside.lines
        self.lines: Sequence[Line] = [
            Line(network, process, node, timeout, wording, shares, self.inboxes, after)
            for node, after in zip(nodes, followed, strict=True)
        ]
        for line in self.lines:
            line.chased = chased

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        if self._is_closed and self._shares:
            raise ClientClosed()
        asked = [(node, request) for node, request in enumerate(requests) if request is not None]
        up = [self.lines[node].is_up for node, _ in asked]
        asks_everyone = sum(up) < majority(len(asked))
        poll = _Poll(ballot, len(asked), within)
        for (node, request), is_up in zip(asked, up, strict=True):
            if is_up or asks_everyone:
                self.lines[node].ask(request, poll, node)
        for (node, request), is_up in zip(asked, up, strict=True):
            if not (is_up or asks_everyone):
                poll.hear(node, self.lines[node].leave_alone(request))
        try:
            trouble = await poll.over
        except Cancelled:
            poll.over.keep(None)  # nobody wants what has not left yet
            raise
        if trouble is not None:
            raise trouble

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        for node in nodes:
            line = self.lines[node]
            if line.is_up:
                line.ask(request, None, node)
            else:
                line.leave_alone(request)

    def inbox(self) -> Inbox:
        return self.lines[0].inbox()

    def hears(self, owner: str, inbox: Inbox) -> bool:
        self.inboxes.add(owner, inbox)
        return sum(line.channel is not None for line in self.lines) >= majority(len(self.lines))

    async def listen(self) -> None:
        for done in [line.begin_to_listen() for line in self.lines if line.is_up and line.channel is None]:
            await done

    def shut(self) -> None:
        for line in self.lines:
            line.shut()

    async def close(self) -> None:
        self._is_closed = True
        for line in self.lines:
            await line.close()


class _Poll:
    """Tells a ballot what the nodes say, until it is decided."""

    __slots__ = ("_ballot", "_pending", "over", "within")

    def __init__(self, ballot: Ballot, asked: int, within: float) -> None:
        self.within = within
        self.over: Promise[ClientClosed | None] = Promise()
        self._ballot = ballot
        self._pending = asked

    def hear(self, node: int, answer: Answer) -> None:
        if not self.over.is_kept:
            self._pending -= 1
            if self._ballot.add(node, answer) or not self._pending:
                self.over.keep(None)


class _Asked:
    """One request at one node: asked again if its connection was too old, or the scripts were forgotten."""

    __slots__ = (
        "_line", "_node", "_poll", "is_dropped", "is_in_full", "is_late", "is_repeated", "may_be_second", "owners",
        "request", "wire",
    )  # fmt: skip

    def __init__(self, line: Line, request: Request, poll: _Poll | None, node: int) -> None:
        self.request = request
        self.owners = _owners(request)
        self.is_repeated = False
        """It had to be asked again on another connection."""
        self.may_be_second = False
        """Another one like it is on its way, and may come first."""
        self.is_in_full = False
        self.is_dropped = False
        """Its owner is done: it must not leave any more."""
        self.is_late = False
        """It cleans up after something that may arrive only later."""
        self.wire: Wire | None = None
        self._line = line
        self._poll = poll
        self._node = node

    @property
    def within(self) -> float:
        return math.inf if self._poll is None else self._poll.within

    def keep(self, outcome: Any) -> None:
        """What came on the wire."""
        line = self._line
        if isinstance(outcome, Fault):
            line.failed(self, outcome)
        elif line.wording.forgot(outcome) and not self.is_in_full and self.is_wanted:
            line.taught.clear()
            line.answered_by(self)
            self.is_in_full = True
            line.go(self)
        else:
            line.answered_by(self)
            is_second = self.is_repeated or self.may_be_second
            self.hear(line.wording.read(self.request, outcome, line.where, is_second))

    @property
    def is_wanted(self) -> bool:
        """Whether it may still be sent: it might arrive after the clean-up of its owner."""
        cleans = isinstance(self.request.requests[0] if isinstance(self.request, Each) else self.request, Free | Unlock)
        return cleans or self._poll is None or not (self._poll.over.is_kept or self.is_dropped)

    def hear(self, answer: Answer) -> None:
        if self._poll is not None:
            self._poll.hear(self._node, _late(self._line.where, answer) if self.is_late else answer)

    def refuse(self) -> None:
        """The client is closed."""
        if self._poll is not None:
            self._poll.over.keep(ClientClosed())


class _Followed:
    """A clean-up that follows on a connection; nobody waits for it."""

    __slots__ = ("_line", "_wire")

    def __init__(self, line: Line, wire: Wire) -> None:
        self._line = line
        self._wire = wire

    def keep(self, _: Any) -> None:
        self._line.put_back_if_unused(self._wire)


class Line(SimLink):
    """The connections of one client to one node, and its health."""

    def __init__(
        self,
        network: Network,
        process: Process,
        node: Node,
        timeout: float,
        wording: Wording,
        shares: bool,
        inboxes: Inboxes,
        after: Line | None,
    ) -> None:
        super().__init__(network, process, node, timeout)
        self.inboxes = inboxes
        self.wording = wording
        self.is_up = True
        self._why = Fault(OutcomeUnknown(self.where))
        self._shares = shares
        self._after = after
        self._idle: list[Wire] = []
        self._idle_most = IDLE_MOST if after is None else 0
        self._wire: Wire | None = None
        self._dialling: list[list[_Asked]] = []
        """Who waits for each connection that is being made."""
        self._carries: dict[str, dict[Wire, int]] = {}
        """Owner → where requests of it are unanswered, and how many."""
        self._is_nursed = False
        self.taught: set[type] = set()
        """Kinds of requests whose scripts the node was sent, and has not shown to have forgotten."""

    # -- asking --------------------------------------------------------------------------------------------------

    def ask(self, request: Request, poll: _Poll | None, node: int) -> None:
        asked = _Asked(self, request, poll, node)
        if self._is_closed and self._shares:
            asked.refuse()
            return
        wire = None if self._asking_before(asked) else self._wire_for(asked)
        followed = self._follow(request, wire)
        asked.is_late = followed is False
        asked.may_be_second = followed is not None
        self.go(asked, wire)

    def go(self, asked: _Asked, wire: Wire | None = None) -> None:
        """On this connection, if it is given."""
        asking = self._asking_before(asked)
        wire = None if asking is not None else wire or self._wire_for(asked)
        if asking is not None:
            asking.append(asked)
        elif wire is not None:
            self._put(asked, wire)
        elif self._is_closed and self._shares:
            asked.refuse()
        else:
            self._dialling.append([asked])
            self._process.start(f"{self._process.name}/dials", self._dial_for(self._dialling[-1]))

    def _asking_before(self, asked: _Asked) -> list[_Asked] | None:
        """Those whom it has to come behind: they wait for a connection."""
        for asking in self._dialling:
            if self._shares or any(owner in each.owners for each in asking for owner in asked.owners):
                return asking
        return None

    def leave_alone(self, request: Request) -> Answer:
        """It is down. A clean-up may still follow where something of its owner was given up."""
        if isinstance(request, Each):
            return [self.leave_alone(each) for each in request.requests]
        followed = self._follow(request, None)
        if isinstance(request, Free) and followed:
            return Freed(True, False)
        return Failed(self._why.copy().error, was_asked=followed is False)

    async def _dial_for(self, asking: list[_Asked]) -> None:
        try:
            wire = await self.dial()
        except LinkDown as down:
            self._dialling.remove(asking)
            self._go_down(down.fault)
            for asked in asking:
                asked.hear(Failed(down.fault.copy().error, was_asked=asked.is_repeated))
            return
        self._dialling.remove(asking)
        if self._is_closed and self._shares:
            wire.close()
            for asked in asking:
                asked.refuse()
            return
        if self._shares and self._wire is not None and self._wire.is_open:  # brought by the nurse
            wire.close()
            wire = self._wire
        elif self._shares:
            self._wire = wire
        for asked in asking:
            if asked.is_wanted:
                self._put(asked, wire)
            else:
                asked.hear(Failed(self._why.copy().error, was_asked=asked.is_repeated))
        self.put_back_if_unused(wire)

    def _put(self, asked: _Asked, wire: Wire) -> None:
        kind = type(asked.request.requests[0] if isinstance(asked.request, Each) else asked.request)
        asked.is_in_full = asked.is_in_full or kind not in self.taught
        self.taught.add(kind)
        pack = self.wording.in_full if asked.is_in_full else self.wording.pack
        asked.wire = wire
        for owner in asked.owners:
            carries = self._carries.setdefault(owner, {})
            carries[wire] = carries.get(wire, 0) + 1
        request = asked.request
        channel = self.channel if isinstance(request, Vote) and request.waits else None
        wire.put(pack(request, channel or b""), asked)
        if asked.within < self._timeout and wire.awaited:
            wire.expect_within(asked.within)

    def _wire_for(self, asked: _Asked) -> Wire | None:
        if self._shares:
            return self._wire if self._wire is not None and self._wire.is_open else None
        for owner in asked.owners:
            for wire in reversed(self._carries.get(owner, {})):
                if wire.is_open:
                    return wire
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open:
                return wire
        return None

    def answered_by(self, asked: _Asked) -> None:
        wire = asked.wire
        assert wire is not None
        for owner in asked.owners:
            self._uncount(owner, wire)
        if not self.is_up:
            self._come_up()
        self.put_back_if_unused(wire)

    def put_back_if_unused(self, wire: Wire) -> None:
        if not self._shares and not wire.awaited and wire.is_open and wire not in self._idle:
            self._put_back(wire)

    def _put_back(self, wire: Wire) -> None:
        if len(self._idle) < self._idle_most and not self._is_closed:
            self._idle.append(wire)
        else:
            wire.close()

    def _uncount(self, owner: str, wire: Wire) -> None:
        carries = self._carries.get(owner)
        if carries is None or wire not in carries:
            return
        carries[wire] -= 1
        if not carries[wire]:
            del carries[wire]
            if not carries:
                del self._carries[owner]

    def failed(self, asked: _Asked, fault: Fault) -> None:
        self.taught.clear()  # it may be another process by now
        if fault.was_idle and not asked.is_repeated and asked.is_wanted and not isinstance(asked.request, ForceRelease):
            asked.is_repeated = True
            self._drop_idle()
            self.go(asked)
        else:
            self._go_down(fault)
            asked.hear(Failed(fault.error, was_asked=True))

    # -- following -----------------------------------------------------------------------------------------------

    def _follow(self, request: Request, wire: Wire | None) -> bool | None:
        """Let a clean-up follow what is unanswered elsewhere than on this wire: None if there is nothing to follow,
        False if it can't."""
        if isinstance(request, Each):
            followed = {self._follow(each, wire) for each in request.requests}
            return None if followed == {None} else False not in followed
        if not isinstance(request, Free | Unlock):
            return None
        line = self._after or self
        return line.follow(request, wire)

    def follow(self, request: Free | Unlock, but: Wire | None) -> bool | None:
        owner = request.owner
        for asked in [asked for asking in self._dialling for asked in asking if owner in asked.owners]:
            asked.is_dropped = True
        wires = [wire for wire in self._carries.get(owner, ()) if wire is not but]
        if not wires:
            return None
        if isinstance(request, Free):
            self._carries.pop(owner)
        self.chased[owner] = None
        packed = self.wording.in_full(request, b"")
        left = [wire.send_after(packed, _Followed(self, wire)) for wire in wires]
        return all(left)

    def silenced(self, wire: Wire) -> None:
        self._park(wire)

    # -- health --------------------------------------------------------------------------------------------------

    def _go_down(self, fault: Fault) -> None:
        self._drop_idle()
        if not self.is_up:
            return
        self.is_up = False
        self._why = fault
        if not self._is_nursed:
            self._is_nursed = True
            self._process.start(f"{self._process.name}/nurses", self._nurse())

    def _come_up(self, wire: Wire | None = None) -> None:
        self.is_up = True
        if wire is None:
            return
        if not self._shares:
            self._put_back(wire)
        elif self._wire is not None and self._wire.is_open:
            wire.close()
        else:
            self._wire = wire

    async def _nurse(self) -> None:
        """Makes connections until it hears a PONG on one: a stopped server accepts them, too."""
        pause = FIRST_PAUSE
        while self._needs_care():
            await self._process.sleep(pause)
            pause = min(LAST_PAUSE, 2.0 * pause)
            if self._needs_care():
                await self._knock()
        self._is_nursed = False

    def _needs_care(self) -> bool:
        return not self.is_up and not self._is_closed

    async def _knock(self) -> None:
        try:
            wire = await self.dial()
        except LinkDown:
            return
        replies = await wire.ask(PING)
        if isinstance(replies, Fault) or isinstance(replies[0], ReplyError) or not self._needs_care():
            wire.close()
        else:
            self._come_up(wire)

    def _drop_idle(self) -> None:
        """They are as old as the one that failed."""
        while self._idle:
            self._idle.pop().close()

    async def close(self) -> None:
        self._is_closed = True
        self._drop_idle()
        if self._wire is not None:
            self._wire.close()
        for wires in list(self._carries.values()):
            for wire in list(wires):
                if self._shares or wire.is_silent:
                    wire.close()
        self._carries.clear()
        await super().close()


def _owners(request: Request) -> tuple[str, ...]:
    if isinstance(request, Each):
        return tuple(dict.fromkeys(owner for each in request.requests for owner in _owners(each)))
    owner = owner_of(request)
    return () if owner is None else (owner,)


def _late(where: str, answer: Answer) -> Answer:
    """It was answered, and yet what it cleans up may come later: it has to be asked again."""
    if isinstance(answer, Failed):
        return answer
    return Failed(OutcomeUnknown(f"something that was asked of {where} before may still be on its way"), was_asked=True)
