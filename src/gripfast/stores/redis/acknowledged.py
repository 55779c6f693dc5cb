"""Requests that replicas have to acknowledge, where all requests of a client share connections.

WAIT holds up everything behind it on its connection. So these requests have a connection of their own, and one WAIT
serves all that have come while the last one was under way. No socket, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gripfast.stores.faults import Fault, LinkDown
from gripfast.stores.redis.conversation import Conversation, Server
from gripfast.stores.redis.faults import cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from gripfast.stores.redis.shared import Opening


class Asked(NamedTuple):
    commands: Sequence[bytes]
    wait: Sequence[bytes]
    within: float
    owner: str | None
    """Whose claim the last command is, if it is one."""
    taker: Any
    """A future. It is told the replies, with those to `wait` behind them, or a Fault."""


class Acknowledged:
    def __init__(self, server: Server, opening: Opening, new_future: Callable[[], Any]) -> None:
        self.opening = opening
        self._server = server
        self._new_future = new_future
        self._waiting: list[Asked] = []
        """They leave when the WAIT that is under way is answered."""
        self._under_way: Together | None = None

    async def ask(self, commands: Sequence[bytes], wait: Sequence[bytes], within: float, owner: str | None) -> Any:
        """In the order in which they came, also those that come while the connection is being made."""
        taker = self._new_future()
        self._waiting.append(Asked(commands, wait, within, owner, taker))
        if self.opening.connection is None:
            try:
                await self.opening.open()
            except LinkDown as down:
                _end(taker, down.fault)
            except BaseException:
                _end(taker, None)  # nobody waits for it: it does not leave
                raise
        if self._under_way is None:
            self.send()
        return await taker

    def send(self) -> None:
        """All that have come until now, together. While the connection is being made, they wait for it."""
        if self.opening.connection is None and self.opening.dialing is not None:
            self._under_way = None
            return
        asked, self._waiting = [each for each in self._waiting if not each.taker.done()], []
        conversation: Conversation | None = self.opening.connection
        for each in asked:
            if each.owner and self._server.is_closing:
                each.taker.set_result(self._server.too_late())
            elif conversation is None:
                each.taker.set_result(cut(self._server.where, None, was_idle=True)._replace(was_sent=False))
        asked = [each for each in asked if not each.taker.done()]
        self._under_way = Together(self, asked) if asked and conversation is not None else None
        if self._under_way is not None and conversation is not None:
            self._write(conversation, self._under_way, asked)

    def _write(self, conversation: Conversation, together: Together, asked: Sequence[Asked]) -> None:
        """The shortest WAIT is for all: who has little time must not wait for the others."""
        first = min(asked, key=lambda each: each.within)
        packed = b"".join([command for each in asked for command in each.commands] + [*first.wait])
        owners = [owner for each in asked for owner in (*[None] * (len(each.commands) - 1), each.owner)]
        try:
            conversation.ask_many_for(together, packed, [*owners, *[None] * len(first.wait)])
        except BaseException as error:  # an interrupt: nobody may wait for what did not leave
            together.set_result(cut(self._server.where, OSError(str(error))))
            raise
        conversation.expect_within(first.within, told=first.within, spares=True)

    def answered(self) -> None:
        self._under_way = None
        if self._waiting:
            self.send()


def _end(taker: Any, outcome: Any) -> None:
    if not taker.done():
        taker.set_result(outcome)


class Together:
    """Takes the replies to requests that left together, and tells each its own."""

    def __init__(self, acknowledged: Acknowledged, asked: Sequence[Asked]) -> None:
        self._acknowledged = acknowledged
        self._asked = asked
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, replies: Any, /) -> None:
        if self._is_done:
            return
        self._is_done = True
        start = 0
        for each in self._asked:
            end = start + len(each.commands)
            is_fault = isinstance(replies, Fault)
            _end(each.taker, replies.copy() if is_fault else [*replies[start:end], *replies[-len(each.wait) :]])
            start = end
        self._acknowledged.answered()
