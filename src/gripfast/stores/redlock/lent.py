"""A connection that is lent to one thread at a time, and the time of the thread that has it.

The thread itself writes, reads, and looks at its timers while it waits. It may leave before all replies have come: the
next one who has the connection reads them, in order, and tells those who do not wait any more (`Conversation.take`).

An interrupt may come at any instruction. The connections that were lent then are lent to nobody again: their replies
are not read any more, and whoever was not told before is told that there will be none (`leave`).
"""

from __future__ import annotations

import heapq
import itertools
import math
import ssl
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from hiredis import HiredisError, ProtocolError

from gripfast.machine import boottime
from gripfast.stores.redis.conversation import Conversation, Server
from gripfast.stores.redis.faults import cut
from gripfast.stores.redis.wire import CHUNK, Wire
from gripfast.stores.redlock.talk import CleanUp

if TYPE_CHECKING:
    from gripfast.stores.redlock.bundle import Bundle
    from gripfast.stores.redlock.health import Node

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class LentServer(Server):
    """A node to which there are several connections. On each of them the claims are noted that it carried.

    Only the thread that has a connection writes its notes, so none is lost because two threads do something for one
    owner at the same time; others read them. A note that stays for too long does no harm: a clean-up follows in vain.
    """

    def __init__(self, where: str, timeout: float) -> None:
        super().__init__(where, timeout)
        self.conversations: dict[LentConversation, None] = {}
        """All that are not closed, and those that are but whose claims may still arrive."""

    def sends(self, owner: str, conversation: object) -> None:
        """`Conversation.claims` has it."""

    def unanswered_of(self, owner: str) -> list[Any]:
        return [each for each in list(self.conversations) if owner in each.claims]

    def follows(self, owner: str, conversation: Any) -> None:
        conversation.claims.pop(owner, None)
        if conversation.is_closed and not conversation.claims:
            self.conversations.pop(conversation, None)

    def _follow(self, owner: str, conversation: Any, packed: bytes, is_done: bool) -> bool:
        """The note goes while nobody else can write a new one."""
        left: bool = conversation.follow(packed, owner if is_done else None)
        return left


class LentConversation(Conversation):
    server: LentServer

    def __init__(self, wire: Wire, node: Node, era: object, bundle: Bundle) -> None:
        super().__init__(node.server, bundle.timers)
        self.node = node
        self.era = era
        """Older than the node's own: the node was given up for lost since it was made."""
        self.bundle = weakref.ref(bundle)
        """In which it is, or was."""
        self.is_closed = False
        self.looks = 0
        """Of those who want to close it."""
        self.fd = wire.sock.fileno()
        self._pool = bundle.pool
        self._followed: list[bytes] = []
        """Clean-ups that were sent when nobody read it any more."""
        self._wire = wire
        self._sock = wire.sock
        self._sock.setblocking(False)
        self._send: Callable[[bytes], int] = self._sock.send
        self._receive = self._sock.recv_into
        self._feed, self._gets = wire.reader.feed, wire.reader.gets
        self._is_tls = isinstance(self._sock, ssl.SSLSocket)
        self._buffer = bytearray(CHUNK)

    # -- what whoever has it does --------------------------------------------------------------------------------

    def write(self, packed: bytes) -> None:
        try:
            sent = self._send(packed)
        except WOULD_BLOCK:
            sent = 0
        except OSError as error:
            self.end(cut(self.server.where, error))
            return
        if sent != len(packed):
            self._write_rest(packed, sent)

    def _write_rest(self, packed: bytes, sent: int) -> None:
        """It is too much for the system to take at once; or else the node has not read what it was sent before."""
        if sent or self._is_tls:
            self._send = _stuck  # what follows would be taken for the rest of this
        if len(packed) > CHUNK:
            self._sock.settimeout(self.server.timeout)
            try:
                self._sock.sendall(packed[sent:])
            except TimeoutError:
                self._send = _stuck
            except OSError as error:
                self.end(cut(self.server.where, error))
                return
            else:
                self._sock.setblocking(False)
                self._send = self._sock.send
                return
        self._give_up(self.server.timeout)

    def read(self) -> None:
        """What is there."""
        buffer, owed = self._buffer, self.owed
        try:
            self._feed(buffer, 0, self._receive(buffer) or _closed())
            while self._is_tls and cast(ssl.SSLSocket, self._sock).pending():
                self._feed(buffer, 0, self._receive(buffer) or _closed())
            while (reply := self._gets()) is not False:
                if not owed:
                    raise ProtocolError("received a reply without a request")
                self.take(reply)
        except WOULD_BLOCK:  # TLS may have something to say to itself
            pass
        except (OSError, HiredisError) as error:
            self.end(cut(self.server.where, error))

    def let_go(self, keep: bool) -> None:
        bundle = self.bundle()
        if bundle is not None:
            bundle.take_out(self)
        if not keep:
            self.close()

    # -- the end -------------------------------------------------------------------------------------------------

    def break_off(self) -> None:
        """Not here, where another interrupt may come: the whole bundle is dropped, and then everything is left."""

    def leave(self) -> None:
        """Nobody reads it any more. It may be the second time, after an interrupt."""
        if self._taking is not None:
            self.owed.appendleft(self._taking)
            self._taking = None
        keep = bool(self.owed)
        if keep:
            self.server.park(self)
        self.end(None, keep)
        self._tell(cut(self.server.where, None))
        if not self.server.has_parked(self):
            self.close()

    def close(self) -> None:
        """What it carried may not have arrived. `is_closed` comes first: who lets something follow looks at it last."""
        self.is_closed = True
        if not self.claims:
            self.server.conversations.pop(self, None)
        self.node.lost.extend(self._followed)
        self._wire.close()

    # -- clean-ups -----------------------------------------------------------------------------------------------

    def follow(self, packed: bytes, ended: str | None = None) -> bool:
        """`ended`: who has nothing there after this."""
        return self._pool.follow_on(self, packed, ended)

    def send_after(self, packed: bytes, ended: str | None, is_mine: bool) -> bool:
        """True if it left. `is_mine`: the caller has it. Otherwise nobody reads it any more, and whoever has to may
        write."""
        left = self._ask_last(packed) if is_mine and self.is_open else self._send_last(packed)
        if ended is not None:
            self.server.follows(ended, self)
        return left and not self.is_closed

    def _ask_last(self, packed: bytes) -> bool:
        self.ask_for(CleanUp(packed, self.node.lost), packed)
        return self.is_open

    def _send_last(self, packed: bytes) -> bool:
        try:
            left = self._send(packed) == len(packed)
        except OSError:
            left = False
        if left:
            self._followed.append(packed)
        else:
            self._send = _stuck
            self.node.lost.append(packed)
        return left


def _closed() -> int:
    raise ConnectionResetError


def _stuck(packed: bytes) -> int:
    raise BlockingIOError


# Time -----------------------------------------------------------------------------------------------------------------


class Timers:
    """A loop, as conversations need one: whoever has them looks at it while waiting."""

    def __init__(self) -> None:
        self.next_at = math.inf
        self._heap: list[tuple[float, int, _Timer]] = []
        """Those of one moment are called in the order in which they were made."""
        self._count = itertools.count()
        self._moment: float | None = None
        """Which it is, for timers that are late."""

    def call_later(self, seconds: float, call: Callable[..., object], /, *args: Any) -> _Timer:
        at = (boottime() if self._moment is None else self._moment) + seconds
        timer = _Timer(call, args)
        heapq.heappush(self._heap, (at, next(self._count), timer))
        self.next_at = self._heap[0][0]
        return timer

    def call_soon(self, call: Callable[..., object], /, *args: Any) -> _Timer:
        return self.call_later(0.0, call, *args)

    def run(self, now: float, makes_up: bool = False) -> None:
        """What is due. `makes_up`: nobody has looked for a while, so each is called as if it were its moment."""
        while self.next_at <= now:
            at, _, timer = heapq.heappop(self._heap)
            self.next_at = self._heap[0][0] if self._heap else math.inf
            self._moment = at if makes_up else now
            timer.call(*timer.args)
        self._moment = None


class _Timer:
    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.call = call
        self.args = args

    def cancel(self) -> None:
        """It stays until it is due."""
        self.call, self.args = _nothing, ()


def _nothing() -> None:
    pass
