"""The connections of a simulated client: the conversation of production, driven by the world's network and time.

A shared connection is production's own `SharedLink`. `LendingLink` lends one to each request, as for threads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hiredis import ReplyError

from gripfast.errors import ClientClosed
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis import protocol
from gripfast.stores.redis.conversation import IDLE_MOST, NOBODY, PING, Conversation, Lending, Server
from gripfast.stores.redis.faults import cut, not_connected, refused
from gripfast.stores.redis.shared import Listener, Opening, SharedLink
from gripfast.stores.redis.unread import READ_BY_ANOTHER, Late, Parked, Unread
from gripfast_lab.sim.network import Connection, Network, Peer
from gripfast_lab.sim.processes import Process
from gripfast_lab.sim.runtime import SimInbox
from gripfast_lab.sim.world import Cancelled, Promise


class SimServer(Server):
    def __init__(self, where: str, timeout: float, followed: dict[str, None]) -> None:
        """`followed`: owners of whom a claim was followed by a clean-up, whose reply nobody waits for."""
        super().__init__(where, timeout)
        self._followed = followed

    def clean_up(self, owner: str, packed: bytes, parks: bool = False) -> bool | None:
        return self._noted(owner, super().clean_up(owner, packed, parks))

    def clean_up_elsewhere(self, owner: str, *how: Any) -> bool | None:
        return self._noted(owner, super().clean_up_elsewhere(owner, *how))

    def _noted(self, owner: str, left: bool | None) -> bool | None:
        if left is not None:
            self._followed[owner] = None
        return left


class SimConversation(Conversation):
    def __init__(self, server: Server, connection: Connection) -> None:
        super().__init__(server, connection.process)
        self.connection = connection
        self.late: deque[Promise[Any]] = deque()
        """Where it is lent: the replies to what was only sent, read or not."""
        connection.receive = self._receive
        connection.ended = partial(self.end, None)

    def write(self, packed: bytes) -> None:
        self.connection.send(packed)

    def let_go(self, keep: bool) -> None:
        if not keep:
            self.connection.hang_up()

    def follow(self, packed: bytes) -> bool:
        if self.is_open:
            self.ask_for(NOBODY, packed)
        else:
            self.connection.send(packed)
        return self.connection.is_open

    def close(self) -> None:
        self.connection.hang_up()
        self.end(None)

    def _receive(self, replies: list[Any]) -> None:
        for reply in replies if not self.is_silent else ():
            self.take(reply)


class SimListener(Listener):
    def __init__(self, connection: Connection, channel: bytes, server: Server, inboxes: Inboxes) -> None:
        super().__init__(server, channel, inboxes)
        self._connection = connection
        self.close = connection.ended = partial(self.end, None)
        connection.receive = lambda messages: self.take(messages[0])
        self.begin()

    def let_go(self, keep: bool) -> None:
        self._connection.hang_up()


class Place:
    """Where one process meets one node, and how connections between them are made."""

    def __init__(
        self, network: Network, process: Process, find: Callable[[], Peer], server: Server, inboxes: Inboxes
    ) -> None:
        """`find`: the node, looked for whenever a connection is made."""
        self.process = process
        self.server = server
        self.inboxes = inboxes
        self._network = network
        self._find = find
        self._channels = 0

    async def dial(self) -> SimConversation:
        connection, accepted = self._network.connect(self.process, self._find())
        self.process.at(self.process.now() + self.server.timeout, accepted.keep, False)
        try:
            is_made = await accepted
        except Cancelled:
            connection.hang_up()
            raise
        if not is_made:
            connection.hang_up()
            raise LinkDown(not_connected(self.server.where, ConnectionError()))
        return SimConversation(self.server, connection)

    async def dial_and_ask(self) -> SimConversation:
        """One that has answered: a server that is stopped accepts connections, too."""
        conversation = await self.dial()
        await self._first_reply(conversation, PING)
        return conversation

    async def subscribe(self) -> SimListener:
        conversation = await self.dial()
        self._channels += 1
        channel = protocol.new_channel(f"{self.process.name}-{self._channels}")
        await self._first_reply(conversation, protocol.subscribe(channel))
        return SimListener(conversation.connection, channel, self.server, self.inboxes)

    async def _first_reply(self, conversation: SimConversation, packed: bytes) -> None:
        future = Promise[Any]()
        conversation.ask_for(future, packed)
        reply = await future
        fault = refused(self.server.where, reply) if isinstance(reply, ReplyError) else reply
        if isinstance(fault, Fault):
            conversation.close()
            raise LinkDown(fault)


class SimOpening(Opening):
    def __init__(self, place: Place, make: Callable[[], Any]) -> None:
        super().__init__(place.server.where, Promise)
        self._process = place.process
        self._make = make

    def begin(self, dialing: Promise[Any]) -> None:
        self._process.start(f"{self._process.name}/connects", self._dial(dialing))

    async def _dial(self, dialing: Promise[Any]) -> None:
        try:
            made = await self._make()
        except LinkDown as down:
            self.end(dialing, down.fault)
        else:
            self.made(dialing, made, lambda connection: connection)


class SimLink(SharedLink):
    """Production's own, as asyncio has it."""

    def __init__(self, place: Place) -> None:
        process = place.process
        requests = SimOpening(place, place.dial)
        notifications, acknowledged = SimOpening(place, place.subscribe), SimOpening(place, place.dial)
        super().__init__(place.server, requests, notifications, place.inboxes, process.now, Promise, acknowledged)
        self.inbox = partial(SimInbox, process)


class LendingLink(SimLink):
    def __init__(
        self, place: Place, idle_most: int = IDLE_MOST, clean_up: Callable[[str, bytes], bool | None] | None = None
    ) -> None:
        """`clean_up`: where claims were sent whose clean-ups are sent here."""
        super().__init__(place)
        self._dial = place.dial
        self._lending: Lending[SimConversation] = Lending(place.server, idle_most)
        self._late: Late[SimConversation] = Late()
        self._process = place.process
        self.clean_up = clean_up or partial(place.server.clean_up, parks=True)

    async def listen(self) -> None:
        """A claim that is under way when the client is closed fails, and is undone by its caller."""
        try:
            await super().listen()
        except ClientClosed:
            raise LinkDown(cut(self.server.where, None)) from None

    async def ask(self, packed: bytes, owner: str | None = None, name: str | None = None) -> Any:
        replies = await self._lend([packed], owner, name=name)
        return replies if isinstance(replies, Fault) else replies[0]

    async def ask_many(self, commands: Sequence[bytes], within: float = math.inf) -> Any:
        return await self._lend(commands, None, within)

    async def ask_acked(
        self, commands: Sequence[bytes], wait: Sequence[bytes], within: float = math.inf, owner: str | None = None
    ) -> Any:
        return await self._lend([*commands, *wait], owner, within)

    async def _lend(
        self, commands: Sequence[bytes], owner: str | None, within: float = math.inf, name: str | None = None
    ) -> Any:
        parked = await self._parked(name)
        try:
            idle = [parked.connection] if parked is not None else self._lending.idle
            conversation = idle.pop() if idle else await self._dial()
        except LinkDown as down:
            return down.fault
        if owner is not None:
            self.server.sends(owner, conversation)
        try:
            replies = await self._exchange(conversation, commands, within)
            if parked is not None and not isinstance(replies, Fault):
                forgotten = self._read(parked)
                for each in forgotten:
                    self._carries(parked, each, each.in_full())
                if any(each.name == name for each in forgotten):  # what came behind it was too early
                    replies = await self._exchange(conversation, commands, within)
                elif forgotten:
                    await conversation.late[-1]
                self._read(parked)
        except Cancelled:  # not GeneratorExit: then the world itself is over, and nothing may happen in it
            self._close_unless_known(conversation, owner or "")
            raise
        if isinstance(replies, Fault):
            self._lending.drop_idle()
        else:
            self._lending.take_back(conversation, owner, replies)
        self._close_unless_known(conversation, owner or "")
        return replies

    async def _exchange(self, conversation: SimConversation, commands: Sequence[bytes], within: float) -> Any:
        future = Promise[Any]()
        conversation.ask_many_for(future, b"".join(commands), [None] * len(commands))
        conversation.expect_within(within, told=within)
        return await future

    # -- releases whose replies nobody waits for: they are read when somebody looks -------------------------------

    def send(self, unread: Unread) -> bool:
        parked = self._late.take_to_send(unread.name, bool(self._lending.idle))
        if parked is None and not self._late.is_full and self._lending.idle:
            parked = Parked(self._lending.idle.pop())
        if parked is None or not parked.connection.is_open:
            return False
        self._carries(parked, unread, unread.words(parked.connection.taught))
        self._late.put_back(parked)
        return True

    async def read_late(self, within: float = 0.0) -> bool:
        until = self._process.now() + within
        while True:
            for parked in self._late.take_each():
                self._read_parked(parked)
            if not self._late.all() or self._process.now() >= until:
                return bool(self._late.by_name)
            await self._process.sleep(within / 10)

    async def _parked(self, name: str | None) -> Parked[SimConversation, Unread] | None:
        name, ends = name or "", self._process.now() + self.server.timeout
        while self._late.find(name) not in (None, *self._late.all()) and self._process.now() < ends:
            await self._process.sleep(READ_BY_ANOTHER)
        return self._late.take_to_send(name, bool(self._lending.idle))

    def _carries(self, parked: Parked[SimConversation, Unread], unread: Unread, packed: bytes) -> None:
        reply = Promise[Any]()
        parked.connection.late.append(reply)
        self._late.carries(parked, unread)
        parked.connection.ask_for(reply, packed)

    def _read(self, parked: Parked[SimConversation, Unread]) -> list[Unread]:
        """What has arrived; what has to be sent again."""
        late, forgotten = parked.connection.late, list[Unread]()
        while late and late[0].is_kept and not isinstance(late[0].value, Fault):
            forgotten += self._late.read(parked, [late.popleft().value])
        return forgotten

    def _read_parked(self, parked: Parked[SimConversation, Unread]) -> None:
        for forgotten in self._read(parked):
            self._carries(parked, forgotten, forgotten.in_full())
        if not parked.connection.is_open:
            parked.connection.close()
        elif parked.unread:
            self._late.put_back(parked)
        else:
            self._lending.take_back(parked.connection, None, ())
            self._close_unless_known(parked.connection, "")

    def _close_unless_known(self, conversation: SimConversation, owner: str) -> None:
        """As the interpreter does in production."""
        late = [parked.connection for parked in self._late.all()]
        is_known = conversation in [*self._lending.idle, *self.server.unanswered_of(owner), *late]
        if not is_known and not self.server.has_parked(conversation):
            conversation.close()

    def close_now(self) -> None:
        for conversation in self._late.close():
            conversation.close()
        self._lending.close()
        super().close_now()
