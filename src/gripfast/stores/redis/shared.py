"""Connections that all requests of a client share: one for requests, one more for notifications when somebody waits.

Without I/O of its own: asyncio (`aio.py`) and the simulation bring the connections. A connection is made when it is
needed, by one try for all who need it (`Opening`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from gripfast.bounded import Call
from gripfast.core.ports import Inbox
from gripfast.errors import ClientClosed, GripfastError
from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis import protocol
from gripfast.stores.redis.acknowledged import Acknowledged
from gripfast.stores.redis.conversation import Conversation, Server, left_for_request, may_repeat, repeated
from gripfast.stores.redis.faults import cut
from gripfast.stores.redis.unread import Unread

T = TypeVar("T")


class Opening:
    """Made when it is needed, for everyone who needs it. A driver has `begin`, and `shield` if it needs one."""

    def __init__(self, where: str, new_future: Callable[[], Any]) -> None:
        self.dialing: Any = None
        """A future, while it is being made."""
        self.latest: Any = None
        """Open, or closed since."""
        self.when_ended: Callable[[Any], None] = lambda outcome: None
        """Told what came of each try."""
        self._where = where
        self._new_future = new_future
        self._is_closed = False

    def begin(self, dialing: Any) -> None:
        """Make it, then call `made` or `end`. Raises TimeoutError if that can't even be begun."""
        raise NotImplementedError

    def shield(self, dialing: Any) -> Awaitable[Any]:
        """Whoever is cancelled while waiting for it takes nothing from the others."""
        return dialing  # type: ignore[no-any-return]

    def too_late(self, error: TimeoutError) -> Fault:
        raise NotImplementedError

    @property
    def connection(self) -> Any:
        latest = self.latest
        return latest if latest is not None and latest.is_open else None

    def start(self) -> Any:
        """What comes of it is a connection, a Fault or a GripfastError; it is everyone's, not to be cancelled."""
        if self._is_closed:
            raise ClientClosed
        if self.dialing is not None:
            return self.dialing
        dialing = self._new_future()
        try:
            self.dialing = dialing
            self.begin(dialing)
        except TimeoutError as error:
            self.end(dialing, self.too_late(error))
        except BaseException as error:
            self.break_off(dialing, error)
            raise
        return dialing

    async def open(self) -> Any:
        result = await self.shield(self.start())
        if isinstance(result, Fault):
            raise LinkDown(result.copy())
        if isinstance(result, GripfastError):
            raise result
        return result

    def made(self, dialing: Any, base: Any, use: Callable[[Any], Any]) -> None:
        try:
            self.end(dialing, self._used(base, use))
        except BaseException as error:
            self.break_off(dialing, error)
            raise

    def settle(self, dialing: Any, call: Call[Any], use: Callable[[Any], Any]) -> None:
        """The call that makes it has ended, or its time is over."""
        if dialing.done():
            return
        made = outcome_of(call, self._where, self.too_late)
        if isinstance(made, Fault):
            self.end(dialing, made)
        else:
            self.made(dialing, made, use)

    def break_off(self, dialing: Any, error: BaseException) -> None:
        """An interrupt came: nobody may wait for what is not made."""
        if not dialing.done():
            self.end(dialing, cut(self._where, OSError(str(error))))

    def _used(self, base: Any, use: Callable[[Any], Any]) -> Any:
        try:
            if self._is_closed:
                raise ClientClosed
            self.latest = use(base)
        except GripfastError as error:
            base.close()
            return error
        return self.latest

    def end(self, dialing: Any, outcome: object) -> None:
        self.dialing = None
        dialing.set_result(outcome)
        self.when_ended(outcome)

    def close(self) -> None:
        self._is_closed = True
        self.disconnect()

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.end(None)

    def drop(self) -> None:
        """The loop is closed."""
        self._is_closed = True
        if self.latest is not None:
            self.latest.close()


def outcome_of(call: Call[T], where: str, too_late: Callable[[TimeoutError], Fault]) -> T | Fault:
    """Of a call that has ended, or whose time is over."""
    try:
        return call.outcome()
    except LinkDown as down:
        return down.fault
    except TimeoutError as error:
        return too_late(error)
    except Exception as error:  # whatever it is, somebody waits
        return cut(where, error)


class Listener:
    """The connection on which notifications arrive. A driver has `let_go`."""

    is_open = True

    def __init__(self, server: Server, channel: bytes, inboxes: Inboxes) -> None:
        self.channel = channel
        self._server = server
        self._inboxes = inboxes

    def begin(self) -> None:
        """It hears from now on."""
        self._server.channel = self.channel

    def let_go(self, keep: bool) -> None:
        raise NotImplementedError

    def take(self, message: Any) -> None:
        if (push := protocol.read_push(message)) is not None:
            self._inboxes.deliver(push.owner, push.granted)

    def end(self, fault: Fault | None) -> None:
        """Every waiter asks, which opens another."""
        if self.is_open:
            if self._server.channel == self.channel:  # first: whatever interrupts the rest, the next one opens another
                self._server.channel = None
            self.is_open = False
            self.let_go(keep=False)
            self._inboxes.ask_again()


class SharedLink:
    suspends = True

    def __init__(
        self,
        server: Server,
        requests: Opening,
        notifications: Opening,
        inboxes: Inboxes,
        now: Callable[[], float],
        new_future: Callable[[], Any],
        acknowledged: Opening | None = None,
    ) -> None:
        """`acknowledged`: for what has to be acknowledged, if that has a connection of its own."""
        self.server = server
        self.acknowledged = Acknowledged(server, acknowledged or requests, new_future)
        self.clean_up: Callable[[str, bytes], bool | None] = server.clean_up
        self.requests = requests
        self.notifications = notifications
        self.inboxes = inboxes
        self.new_future = new_future
        self.unread: dict[str, _Sent] = {}
        """By name: the last release that has left, and whose reply was not read (`unread.py`)."""
        self._now = now

    def ask(self, packed: bytes, owner: str | None = None, name: str | None = None) -> Awaitable[Any]:
        if self.unread and name is not None and (sent := self.unread.get(name)) is not None:
            return self._ask_behind(sent.unread, packed, owner)
        conversation: Conversation | None = self.requests.latest
        if conversation is None or not conversation.is_open:
            return self._open_and_ask(packed, owner)
        future = self.new_future()
        conversation.ask_for(future, packed, owner)
        return future  # type: ignore[no-any-return]

    def ask_many(self, commands: Sequence[bytes], within: float = math.inf) -> Awaitable[Any]:
        return self._ask_together(commands, [None] * len(commands), within)

    def ask_acked(
        self, commands: Sequence[bytes], wait: Sequence[bytes], within: float = math.inf, owner: str | None = None
    ) -> Awaitable[Any]:
        return self.acknowledged.ask(commands, wait, within, owner)

    async def aside(self, call: Callable[[], Any]) -> Any:
        return call()

    async def ask_behind(self, first: bytes, packed: bytes, owner: str | None = None) -> Any:
        """As `ask`, right behind another command, whose reply does not matter."""
        return _last_of(await self._ask_together((first, packed), (None, owner)))

    async def _open_and_ask(self, packed: bytes, owner: str | None) -> Any:
        return _last_of(await self._ask_together((packed,), (owner,)))

    async def _ask_together(
        self, commands: Sequence[bytes], owners: Sequence[str | None], within: float = math.inf
    ) -> Any:
        conversation: Conversation | None = self.requests.connection
        spares = within < self.server.timeout
        left = within
        if conversation is None:
            within, started = min(within, self.server.timeout), self._now()
            try:
                conversation = await self.requests.open()
            except LinkDown as down:
                return down.fault
            # Who can wait for less would give up what was just made: so would each next try.
            left = within if spares else left_for_request(within, self._now() - started)
        assert conversation is not None
        replies = self.new_future()
        conversation.ask_many_for(replies, b"".join(commands), owners)
        conversation.expect_within(left, told=within, spares=spares)
        return await replies

    async def _ask_behind(self, unread: Unread, packed: bytes, owner: str | None) -> Any:
        """The reply to the release is read before this one's. If the server had forgotten the script, the release has
        left once more by then, and so does this. If both were lost with an old connection, both leave again."""
        reply = await self.ask(packed, owner)
        if may_repeat(reply):
            return repeated(await self.ask_behind(unread.in_full(), packed, owner))
        return await self.ask(packed, owner) if unread.was_forgotten and not isinstance(reply, Fault) else reply

    def send(self, unread: Unread) -> bool:
        """It is written, with all that was to be written before it."""
        conversation: Conversation | None = self.requests.latest
        if conversation is None or not conversation.is_open:
            return False
        conversation.ask_for(_Sent(unread, conversation, self.unread), unread.words(conversation.taught))
        conversation.flush()
        return conversation.is_open

    async def read_late(self, within: float = 0.0) -> bool:
        """Whatever is asked now is answered behind them; otherwise they are read as they come."""
        if within and self.unread and (conversation := self.requests.connection) is not None:
            reply = self.new_future()
            conversation.ask_last(reply, within)
            await reply
        return False

    def hears(self, inbox: Inbox) -> None:
        """Wherever an inbox was made: the loop reads all connections."""

    async def listen(self) -> None:
        if self.server.channel is None:
            await self.notifications.open()

    def stop_listening(self, channel: bytes) -> None:
        if channel == self.server.channel:
            self.notifications.disconnect()

    def disconnect(self) -> None:
        """The next request makes another connection."""
        self.requests.disconnect()
        self.notifications.disconnect()

    def stop_waiting(self) -> None:
        self.server.is_closing = True
        self.inboxes.ask_again()

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        self.requests.close()
        self.notifications.close()
        self.acknowledged.opening.close()
        self.server.close()


def _last_of(replies: Any) -> Any:
    return replies if isinstance(replies, Fault) else replies[-1]


class _Sent:
    """Takes the reply to a release that nobody waits for. A Fault ends it, and with it what it has."""

    __slots__ = ("_by_name", "_conversation", "unread")

    def __init__(self, unread: Unread, conversation: Conversation, by_name: dict[str, _Sent]) -> None:
        self.unread = unread
        self._conversation = conversation
        self._by_name = by_name
        by_name[unread.name] = self

    def done(self) -> bool:
        return False

    def set_result(self, reply: Any, /) -> None:
        unread, by_name = self.unread, self._by_name
        if not isinstance(reply, Fault) and not unread.take(reply):
            self._conversation.ask_for(self, unread.in_full())
        elif by_name.get(unread.name) is self:
            del by_name[unread.name]
