"""The connections of a simulated client: the same rules as the two adapters of production, over the world's network.

`LendingLink` does as the blocking adapter: a connection for each request, kept for the next; after a fault the idle
ones go too. `SharedLink` does as the asyncio adapter: one connection for all, replies in order; if the server is silent
for the length of a time-out, everyone is told and the connection is kept for clean-ups. In both, a clean-up follows the
claim that it cleans up, on its connection.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hiredis import ReplyError

from gripfast.core.ports import Granted
from gripfast.errors import ClientClosed
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis import protocol
from gripfast.stores.redis.faults import Fault, LinkDown, cut, not_answered, not_connected, refused
from gripfast.stores.redis.trail import Trail
from gripfast_lab.sim.network import Connection, Network, Peer
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.world import Cancelled, Promise

IDLE_MOST = 8
"""Connections that are lent, and kept for the next request."""
PARKED_MOST = 16
"""Connections kept open for clean-ups that are still on their way."""


class SimInbox:
    """Where the pushes for one waiting owner arrive."""

    __slots__ = ("__weakref__", "_hearing", "_process", "_pushes")

    def __init__(self, process: Process) -> None:
        self._process = process
        self._pushes: deque[Granted | None] = deque()
        self._hearing: Promise[None] | None = None

    def deliver(self, push: Granted | None) -> bool:
        self._pushes.append(push)
        if self._hearing is not None:
            self._hearing.keep(None)
        return True

    async def hear(self, until: float) -> Granted | None:
        if not self._pushes:
            self._hearing = self._process.wake_at(until)
            await self._hearing
        return self._pushes.popleft() if self._pushes else None


class Taker(Protocol):
    def keep(self, value: Any) -> None: ...


class Wire:
    """A connection with requests on it, answered in order."""

    def __init__(self, link: SimLink, connection: Connection, timeout: float) -> None:
        self.has_answered = False
        self.answers = 0
        self.is_silent = False
        """Given up, but still there: a clean-up may follow on it."""
        self.connection = connection
        self.awaited: deque[tuple[Taker, str | None]] = deque()
        self._link = link
        self._timeout = timeout
        self._silent_since = 0.0
        self._is_watched = False
        connection.receive = self._receive
        connection.ended = self._end

    @property
    def is_open(self) -> bool:
        return self.connection.is_open and not self.is_silent

    def ask(self, packed: bytes, owner: str | None = None, within: float = math.inf) -> Promise[Any]:
        """The list of replies, or a Fault."""
        promise: Promise[Any] = Promise()
        self.put(packed, promise, owner)
        if within < self._timeout and self.awaited:
            self.expect_within(within)
        return promise

    def expect_within(self, seconds: float) -> None:
        """What was just asked can't wait for as long as others: if nothing is heard until then, it is given up."""
        process = self.connection.process
        process.at(process.now() + seconds, self._check, self.answers)

    def _check(self, answers: int) -> None:
        if self.is_open and self.awaited and self.answers == answers:
            self._give_up()

    def put(self, packed: bytes, taker: Taker, owner: str | None = None) -> None:
        """The taker gets the list of replies, or a Fault."""
        if not self.connection.is_open:
            taker.keep(self._cut())
            return
        if not self.awaited:
            self._silent_since = self.connection.process.now()
        self.awaited.append((taker, owner))
        self.connection.send(packed)
        if not self._is_watched:
            self._watch()

    def send_after(self, packed: bytes, taker: Taker | None = None) -> bool:
        """Let this follow what was sent; nobody waits for its reply. True if it left."""
        if not self.connection.is_open:
            return False
        if not self.awaited:
            self._silent_since = self.connection.process.now()
        self.awaited.append((taker or Promise(), None))
        self.connection.send(packed)
        return True

    def close(self) -> None:
        """Whoever waits for a reply hears that there will be none."""
        self.connection.hang_up()
        self._end()

    def _receive(self, replies: list[Any]) -> None:
        if self.is_silent:
            return
        taker, owner = self.awaited.popleft()
        self._silent_since = self.connection.process.now()
        self.has_answered = True
        self.answers += 1
        if owner is not None:
            self._link.answered(owner)
        taker.keep(replies)

    def _watch(self) -> None:
        self._is_watched = True
        self.connection.process.at(self._silent_since + self._timeout, self._look)

    def _look(self) -> None:
        """Whether nothing was heard for as long as a time-out. One timer serves all requests."""
        self._is_watched = False
        if not self.awaited or not self.connection.is_open:
            return
        if self.connection.process.now() < self._silent_since + self._timeout:
            self._watch()
            return
        self._give_up()

    def _give_up(self) -> None:
        self.is_silent = True
        self._link.silenced(self)
        self._tell(not_answered(self.connection.peer.name, self._timeout))

    def _end(self) -> None:
        self._tell(self._cut())

    def _cut(self) -> Fault:
        return cut(self.connection.peer.name, None, was_idle=self.has_answered)

    def _tell(self, fault: Fault) -> None:
        told, self.awaited = self.awaited, deque()  # each of them once
        for taker, _ in told:
            taker.keep(fault.copy())


class SimLink:
    """What both kinds have in common: making connections, and listening."""

    suspends = True

    def __init__(self, network: Network, process: Process, peer: Peer, timeout: float) -> None:
        self.where = peer.name
        self.inboxes = Inboxes()
        self.channel: bytes | None = None
        self._network = network
        self._process = process
        self._peer = peer
        self._timeout = timeout
        self._trail: Trail[Wire] = Trail()
        self.late = self._trail.late
        self._parked: deque[Wire] = deque()
        self._pushes: Wire | None = None
        self._subscribing: Promise[Fault | None] | None = None
        self._channels = 0
        self._is_shut = False
        self._is_closed = False
        self.chased: dict[str, None] = {}
        """Owners of whom a claim was followed by a clean-up, whose reply nobody waits for."""

    def inbox(self) -> SimInbox:
        return SimInbox(self._process)

    async def dial(self) -> Wire:
        connection, accepted = self._network.connect(self._process, self._peer)
        self._process.at(self._process.now() + self._timeout, accepted.keep, False)
        try:
            is_made = await accepted
        except Cancelled:
            connection.hang_up()
            raise
        if not is_made:
            connection.hang_up()
            raise LinkDown(not_connected(self.where, ConnectionError()))
        return Wire(self, connection, self._timeout)

    async def listen(self) -> None:
        """Whoever is cancelled takes nothing from the others."""
        fault = await self.begin_to_listen()
        if fault is not None:
            raise LinkDown(fault.copy())

    def begin_to_listen(self) -> Promise[Fault | None]:
        """One try for all who come while it is made."""
        done = self._subscribing
        if done is None:
            done = self._subscribing = Promise()
            self._process.start(f"{self._process.name}/subscribes", self._subscribe(done))
        return done

    async def _subscribe(self, done: Promise[Fault | None]) -> None:
        fault: Fault | None = None
        if self._pushes is None:
            try:
                wire = await self.dial()
                self._channels += 1
                channel = protocol.new_channel(f"{self._process.name}-{self._channels}")
                replies = await wire.ask(protocol.subscribe(channel))
            except LinkDown as down:
                fault = down.fault
            else:
                fault = self._listens(wire, channel, replies)
        self._subscribing = None
        done.keep(fault)

    def _listens(self, wire: Wire, channel: bytes, replies: Any) -> Fault | None:
        fault = replies if isinstance(replies, Fault) else None
        if fault is None and isinstance(replies[0], ReplyError):
            fault = refused(self.where, replies[0])
        if fault is None and self._is_shut:
            fault = cut(self.where, None)
        if fault is not None:
            wire.close()
            return fault
        self.channel, self._pushes = channel, wire
        wire.connection.receive = self._pushed
        wire.connection.ended = self._deafened
        return None

    def _pushed(self, messages: list[Any]) -> None:
        push = protocol.read_push(messages[0])
        if push is not None:
            self.inboxes.deliver(push.owner, push.granted)

    def stop_listening(self, channel: bytes) -> None:
        if channel == self.channel and self._pushes is not None:
            self._pushes.close()
            self._deafened()

    def _deafened(self) -> None:
        """Everyone asks, which opens another."""
        self.channel, self._pushes = None, None
        self.inboxes.ask_again()

    def clean_up(self, owner: str, packed: bytes) -> bool | None:
        wires = self._trail.end(owner)
        if wires:
            self.chased[owner] = None
        left = [wire.send_after(packed) for wire in wires]
        for wire in wires:
            if not self._is_in_use(wire):
                self._park(wire)
        return all(left) if wires else None

    def _is_in_use(self, wire: Wire) -> bool:
        return False

    def _park(self, wire: Wire) -> None:
        """The oldest goes when there are too many."""
        if self._is_closed:
            wire.close()
        if self._is_closed or wire in self._parked:
            return
        self._parked.append(wire)
        if len(self._parked) > PARKED_MOST:
            self._parked.popleft().close()

    def shut(self) -> None:
        self._is_shut = True
        self.inboxes.ask_again()

    async def close(self) -> None:
        self.shut()
        self._is_closed = True
        if self._pushes is not None:
            self._pushes.close()
        for wire in self._parked:
            wire.close()
        self._trail.clear()

    def _sent(self, wire: Wire, owner: str) -> None:
        unanswered = self._trail.unanswered
        if owner in unanswered:
            self._trail.repeats(owner)
        unanswered[owner] = wire

    def answered(self, owner: str) -> None:
        self._trail.unanswered.pop(owner, None)

    def silenced(self, wire: Wire) -> None:
        """Nothing was heard on it for too long."""


class LendingLink(SimLink):
    def __init__(
        self,
        network: Network,
        process: Process,
        peer: Peer,
        timeout: float,
        idle_most: int = IDLE_MOST,
        clean_up: Callable[[str, bytes], bool | None] | None = None,
    ) -> None:
        super().__init__(network, process, peer, timeout)
        self._idle: list[Wire] = []
        self._idle_most = idle_most
        self._clean_up_elsewhere = clean_up

    async def ask(self, packed: bytes, owner: str | None = None) -> Any:
        replies = await self._lend(packed, owner)
        return replies if isinstance(replies, Fault) else replies[0]

    async def ask_many(self, commands: Sequence[bytes], within: float = math.inf) -> Any:
        return await self._lend(b"".join(commands), None, within)

    async def _lend(self, packed: bytes, owner: str | None, within: float = math.inf) -> Any:
        try:
            wire = self._idle.pop() if self._idle else await self.dial()
        except LinkDown as down:
            return down.fault
        if owner is not None:
            self._sent(wire, owner)
        try:
            replies = await wire.ask(packed, owner, within)
        except Cancelled:
            wire.is_silent = True  # nobody reads it any more
            self._drop_unless_followed(wire, owner)
            raise
        if isinstance(replies, Fault):
            self._drop_unless_followed(wire, owner)
            while self._idle:  # they are as old
                self._idle.pop().close()
        elif wire.awaited:
            self._park(wire)  # a clean-up has followed meanwhile
        elif len(self._idle) < self._idle_most:
            self._idle.append(wire)
        else:
            wire.close()
        return replies

    def _drop_unless_followed(self, wire: Wire, owner: str | None) -> None:
        if owner is None or self._is_closed:
            wire.close()

    def clean_up(self, owner: str, packed: bytes) -> bool | None:
        return (self._clean_up_elsewhere or super().clean_up)(owner, packed)

    async def close(self) -> None:
        self._idle_most = 0  # what is still under way closes its own
        while self._idle:
            self._idle.pop().close()
        await super().close()


class SharedLink(SimLink):
    def __init__(self, network: Network, process: Process, peer: Peer, timeout: float) -> None:
        super().__init__(network, process, peer, timeout)
        self._wire: Wire | None = None
        self._dialing: Promise[Wire | Fault] | None = None

    async def ask(self, packed: bytes, owner: str | None = None) -> Any:
        replies = await self._share(packed, owner)
        return replies if isinstance(replies, Fault) else replies[0]

    async def ask_many(self, commands: Sequence[bytes], within: float = math.inf) -> Any:
        return await self._share(b"".join(commands), None, within)

    async def _share(self, packed: bytes, owner: str | None, within: float = math.inf) -> Any:
        wire = self._wire
        if wire is None or not wire.is_open:
            dialled = await self._open()
            if isinstance(dialled, Fault):
                return dialled.copy()
            if self._is_closed:
                raise ClientClosed
            wire = dialled
        if owner is not None:
            self._sent(wire, owner)
        return await wire.ask(packed, owner, within)

    def silenced(self, wire: Wire) -> None:
        self._park(wire)

    def _is_in_use(self, wire: Wire) -> bool:
        return wire is self._wire and wire.is_open

    def _open(self) -> Promise[Wire | Fault]:
        if self._is_closed:
            raise ClientClosed
        done = self._dialing
        if done is None:
            done = self._dialing = Promise()
            self._process.start(f"{self._process.name}/dials", self._dial(done))
        return done

    async def _dial(self, done: Promise[Wire | Fault]) -> None:
        result: Wire | Fault
        try:
            self._wire = result = await self.dial()
        except LinkDown as down:
            result = down.fault
        else:
            if self._is_closed:
                result.close()
        self._dialing = None
        done.keep(result)

    async def close(self) -> None:
        self._is_closed = True
        if self._wire is not None:
            self._wire.close()
        await super().close()
