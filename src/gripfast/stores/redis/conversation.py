"""The conversation with a server: what was sent, whose replies are owed, and what must follow. No socket, no clock.

A `Conversation` is what is known about one connection, a `Server` what is known about one server over all connections
to it. A driver moves bytes and time: blocking sockets (`blocking.py`), asyncio (`aio.py`), the simulated network; for
the nodes of Redlock, threads (`stores/redlock/lent.py`), asyncio and the simulated network. Each rule about late, lost
and repeated requests stands in one place; what N nodes add to them, in `stores/redlock/talk.py`.

1. *Order.* Replies come in the order of the requests (`Conversation.ask_for`, `take`). A request whose caller has
   stopped waiting keeps its position: its reply is read and dropped, and never taken for another's. Where one request
   at a time has a connection, there is no order to keep (`Lending`).
2. *Interrupts.* If an interrupt comes between what is written or read and the note of it, the order is not known any
   more: nothing is read on this connection again, and whoever waits is told (`Conversation.break_off`; for threads of
   Redlock, `leave`, when the connection is picked up).
3. *Unanswered claims.* A claim is noted before it leaves, and the note goes when its reply is read
   (`Conversation.ask_for`, `take`). A claim may still take effect after its owner got the lock by a retry, and has
   released it. How the claims of one owner are found, its server knows (`Server.sends`, `unanswered_of`): by owner, or,
   where threads have several connections, by looking at each of these, because one index for all would lose some.
4. *Clean-up.* A clean-up must not overtake the claim that it cleans up: it is sent behind it, on the same connection
   (`Server.clean_up`, `clean_up_elsewhere`), in full, because nobody reads its reply. Where that can't be, the caller
   is told (`may_take_effect` in `stores/faults.py`).
5. *Silence.* A server is silent if nothing came for a time-out, looked at in steps: a process that was paused itself
   blames nobody (`_look`). All callers are told, and the connection is parked: a clean-up may have to follow on it
   (`_give_up`, `Server.park`). Who looks is the driver's: a loop, or a thread while it has the connection.
6. *Repeating.* A connection that had answered before may have been closed while it was idle: what was lost with it may
   be repeated on another one, once (`end` notes it, `may_repeat` decides, `repeated`). So may what was given up because
   somebody else could wait no longer.
7. *A server that can't serve* (it was demoted, reads its data anew, or has lost its replicas) stays connected: the
   connection is left, and the next request connects anew, perhaps to another server (`take`, `Lending.take_back`).
8. *Lending.* Where a connection is lent to one request at a time, the next one gets it only if nothing else is owed on
   it (`Lending.take_back`); after a fault the idle ones go too (`Lending.drop_idle`).
9. *One deadline.* A request and the connection that is made for it have one deadline (`left_for_request`). Who can
   wait for less than the time-out says so (`Conversation.expect_within`). Where the connection is for all, that counts
   from when it is there.
10. *Closing.* While a client is being closed, no claim leaves: it would get the lock behind the clean-up of its client
    (`Server.too_late`). Where connections are lent, the caller undoes such a claim (`core/closing.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from hiredis import ReplyError

from gripfast.stores.faults import Fault
from gripfast.stores.redis.faults import cant_serve, cut, left, not_answered
from gripfast.stores.redis.protocol import command

PARKED_MOST = 16
"""Connections to one server that are kept open although it is silent on them: a clean-up may have to follow."""
IDLE_MOST = 8
"""Connections that are lent, and kept for the next request; more are open only while more are lent at once."""
PING = command(b"PING")
LOOKS = 4
"""How often a time-out's length is looked at: a server counts as silent if nothing came between so many looks."""


class Taker(Protocol):
    """Who is told a reply, or a Fault: a future, or whatever has these two."""

    def done(self) -> bool: ...

    def set_result(self, reply: Any, /) -> None: ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """Who keeps the time: asyncio's, or another one that has these two."""

    def call_later(self, seconds: float, call: Callable[..., object], /, *args: Any) -> Timer: ...

    def call_soon(self, call: Callable[..., object], /, *args: Any) -> object: ...


class Followed(Protocol):
    """A connection, as far as clean-ups need it."""

    def follow(self, packed: bytes) -> bool:
        """From any thread: send this behind everything that was sent, if that left completely. True if it left."""
        ...

    def close(self) -> None: ...


class Server:
    def __init__(self, where: str, timeout: float) -> None:
        self.where = where
        self.timeout = timeout
        self.unanswered: dict[str, Followed] = {}
        """By owner: the connection that carried its last claim, from before that left until its reply is read."""
        self.late: dict[str, list[Followed]] = {}
        """By owner: the connections of earlier claims, which it has repeated because they were given up."""
        self.channel: bytes | None = None
        """Where its notifications arrive; None while nobody listens."""
        self.is_closing = False
        """The client is being closed."""
        self._parked: deque[Followed] = deque()
        self._is_closed = False

    def too_late(self) -> Fault:
        """To a claim, while the client is being closed: it has not left."""
        return cut(self.where, None)._replace(was_sent=False)

    def sends(self, owner: str, conversation: Followed) -> None:
        """Before a claim leaves."""
        before = self.unanswered.get(owner)
        if before is not None and before is not conversation:
            self.late.setdefault(owner, []).append(before)
        self.unanswered[owner] = conversation

    def clean_up(self, owner: str, packed: bytes, parks: bool = False) -> bool | None:
        """Send a clean-up behind every unanswered claim of an owner who is done. From any thread.

        None if there is none. False if one can't be followed, so that it may still take effect. `parks`: nobody else
        uses these connections.
        """
        conversations = self._done_with(owner)
        left = [conversation.follow(packed) for conversation in conversations]
        if parks:
            for conversation in conversations:
                self.park(conversation)
        return all(left) if left else None

    def clean_up_elsewhere(
        self, owner: str, pack: Callable[[], bytes], is_done: bool, here: Followed | None
    ) -> bool | None:
        """The same on other connections than this one: here, whatever is sent next follows.

        `is_done`: nothing of this owner has to be followed after this.
        """
        others = dict.fromkeys(each for each in self.unanswered_of(owner) if each is not here)
        if not others:
            return None
        packed = pack()
        left = [self._follow(owner, conversation, packed, is_done) for conversation in others]
        return all(left)

    def _follow(self, owner: str, conversation: Followed, packed: bytes, is_done: bool) -> bool:
        """The note goes when the clean-up has left, not before: an interrupt may come between."""
        left = conversation.follow(packed)
        if is_done:
            self.follows(owner, conversation)
        return left

    def unanswered_of(self, owner: str) -> list[Followed]:
        last = self.unanswered.get(owner)
        return [*self.late.get(owner, ()), *([] if last is None else [last])]

    def _done_with(self, owner: str) -> list[Followed]:
        earlier = self.late.pop(owner, []) if self.late else []
        last = self.unanswered.pop(owner, None)
        return earlier if last is None else [*earlier, last]

    def follows(self, owner: str, conversation: Followed) -> None:
        """The claims of this owner that it carried were answered, or a clean-up leaves on it: they need no other."""
        if self.unanswered.get(owner) is conversation:
            self.unanswered.pop(owner, None)  # `clean_up`, on another thread, may have been quicker
        if self.late and conversation in (late := self.late.get(owner, ())):
            if others := [each for each in late if each is not conversation]:
                self.late[owner] = others  # in one step: at no moment are they unknown
            else:
                self.late.pop(owner, None)

    @property
    def has_unanswered(self) -> bool:
        return bool(self.unanswered or self.late)

    def park(self, conversation: Followed) -> None:
        """The oldest goes when there are too many."""
        if conversation not in self._parked:
            self._parked.append(conversation)
        self._close_parked()

    def has_parked(self, conversation: Followed) -> bool:
        return conversation in self._parked

    def close_parked(self, is_over: Callable[[Any], bool]) -> None:
        """Those on which nothing will come any more."""
        for conversation in list(self._parked):
            if is_over(conversation):
                self._close(conversation)

    def close(self) -> None:
        self._is_closed = True
        self._close_parked()
        self.unanswered.clear()
        self.late.clear()

    def _close_parked(self) -> None:
        for conversation in list(self._parked)[: -PARKED_MOST if not self._is_closed else None]:
            self._close(conversation)

    def _close(self, conversation: Followed) -> None:
        conversation.close()  # first: an interrupt may come between
        try:
            self._parked.remove(conversation)
        except ValueError:  # another thread was quicker
            pass


class Conversation(Followed):
    """One connection. A driver has the methods of the first part, and those of Followed."""

    def __init__(self, server: Server, loop: Loop) -> None:
        self.server = server
        self.loop = loop
        self.is_open = True
        """Requests may be sent on it."""
        self.is_silent = False
        """It was given up, but what was sent may still arrive, and a clean-up behind it."""
        self.answers = 0
        self.taught: set[object] = set()
        """Kinds of requests whose scripts were sent on it, where that is noted."""
        self.owed: deque[tuple[Taker, str | None]] = deque()
        """In order: who is told each reply, and whose claim it answers."""
        self.claims: dict[str, object] = {}
        """By owner: the last of these. The reply to an earlier one, which may have been cleaned up, says nothing."""
        self._taking: tuple[Taker, str | None] | None = None
        """Whose reply was read just now. After an interrupt, it may not have been told."""
        self._may_be_repeated = False
        """It was given up earlier than most callers would have done."""
        self._answers_before = -1
        self._silent_looks = 0
        self._timer: Timer | None = None

    # -- the driver's part ---------------------------------------------------------------------------------------

    def write(self, packed: bytes) -> None:
        """Now, or soon, together with more. `end` is called if it fails."""
        raise NotImplementedError

    def flush(self) -> None:
        """Now, everything that was written."""

    def let_go(self, keep: bool) -> None:
        """Nothing is read or written any more. `keep` leaves it open, so that what was sent still arrives."""
        raise NotImplementedError

    # -- requests and replies ------------------------------------------------------------------------------------

    def ask_for(self, taker: Taker, packed: bytes, owner: str | None = None) -> None:
        """`owner`: whose claim it is, if it is one."""
        if owner is not None and self.server.is_closing:
            taker.set_result(self.server.too_late())
            return
        try:
            reply = (taker, owner)
            if owner is not None:
                self._note(owner, reply)
            self.owed.append(reply)
            self.write(packed)
            if self._timer is None:
                self._watch()
        except BaseException:
            self.break_off()
            raise

    def ask_many_for(self, taker: Taker, packed: bytes, owners: Sequence[str | None]) -> None:
        """For each of the commands whose claim it is. The taker is told the list of replies, or one Fault."""
        if self.server.is_closing and any(owner is not None for owner in owners):
            taker.set_result(self.server.too_late())
            return
        try:
            batch = Batch(taker, len(owners))
            replies = [(batch, owner) for owner in owners]
            for reply in replies:
                if (owner := reply[1]) is not None:
                    self._note(owner, reply)
            self.owed.extend(replies)
            self.write(packed)
            self._watch()
        except BaseException:
            self.break_off()
            raise

    def _note(self, owner: str, reply: tuple[Taker, str | None]) -> None:
        self.server.sends(owner, self)
        self.claims[owner] = reply

    def ask_last(self, taker: Taker, within: float) -> None:
        """It is told when all that is owed was read, or will not be."""
        self.ask_for(taker, PING)
        self.expect_within(within, told=within, spares=True)

    def take(self, reply: Any) -> None:
        """The next reply was read."""
        self._taking = owed = taker, owner = self.owed[0]
        self.owed.popleft()
        self.answers += 1
        if owner is not None and self.claims.get(owner) is owed:
            self.claims.pop(owner, None)  # `clean_up`, on another thread, may have been quicker
            self.server.follows(owner, self)
        if type(reply) is ReplyError and cant_serve(reply):
            self.loop.call_soon(self.end, left(self.server.where, reply))  # behind what else has arrived
        if not taker.done():
            taker.set_result(reply)
        self._taking = None

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self, fault: Fault | None, keep: bool = False) -> None:
        """Whoever waits for a reply is told that there will be none."""
        if self.is_open:
            self.is_open = False
            self.let_go(keep)
            self._tell(fault or cut(self.server.where, None))

    def break_off(self) -> None:
        """An interrupt came while it was used: the order of its replies is not known any more."""
        self.end(None)

    def leave(self) -> None:
        """Use it no more. It is kept while replies are owed: a clean-up may have to follow on it, and a server that
        finds it closed would drop what it has not read yet, of which only a part may be a clean-up."""
        if self.is_open:
            if self.owed:
                self.server.park(self)
            else:
                self.close()

    def _tell(self, fault: Fault) -> None:
        """Each is taken out when it was told, not before: an interrupt may come between."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        had_answered = self.answers > 0 and not self.is_silent
        fault = fault._replace(was_idle=self._may_be_repeated or had_answered)
        while self.owed:
            owed = taker, _ = self.owed[0]
            if not taker.done():
                taker.set_result(fault.copy())
            if self.owed and self.owed[0] is owed:
                self.owed.popleft()

    # -- silence -------------------------------------------------------------------------------------------------

    def expect_within(self, seconds: float, told: float, spares: bool = False) -> None:
        """What was just asked can't wait for as long as others: if nothing comes until then, it is given up.

        `told`: for how long it was waited, with what came before. `spares`: the others, who would have waited for
        longer, may repeat theirs on the next connection.
        """
        if seconds < self.server.timeout:  # else `_look` decides, which blames nobody for a pause of this process
            self.loop.call_later(seconds, self._check, self.answers, told, spares)

    def _check(self, answers: int, told: float, spares: bool) -> None:
        if self.is_open and self.owed and self.answers == answers:
            self._may_be_repeated = spares
            self._give_up(told)

    def _watch(self) -> None:
        """One timer serves all requests."""
        if not self.is_open:
            self._tell(cut(self.server.where, None))
        elif self._timer is None:
            self._timer = self.loop.call_later(self.server.timeout / LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self.owed:
            return
        self._silent_looks = self._silent_looks + 1 if self.answers == self._answers_before else 0
        self._answers_before = self.answers
        if self._silent_looks >= LOOKS:
            self._give_up(self.server.timeout)
        else:
            self._watch()

    def _give_up(self, seconds: float) -> None:
        self.is_silent = True
        self.server.park(self)
        self.end(not_answered(self.server.where, seconds), keep=True)


class Batch:
    """Takes the replies to commands that left together, and tells all of them at once, or one Fault."""

    __slots__ = ("_count", "_replies", "_taker")

    def __init__(self, taker: Taker, count: int) -> None:
        self._taker = taker
        self._count = count
        self._replies: list[Any] = []

    def done(self) -> bool:
        return self._taker.done()

    def set_result(self, reply: Any, /) -> None:
        self._replies.append(reply)
        if len(self._replies) == self._count or isinstance(reply, Fault):
            taker, self._taker = self._taker, NOBODY
            taker.set_result(reply if isinstance(reply, Fault) else self._replies)


def may_repeat(reply: Any, is_repeated: bool = False) -> bool:
    """What was lost with a connection that had worked, once."""
    return isinstance(reply, Fault) and reply.was_idle and not is_repeated


def repeated(reply: Any) -> Any:
    """The reply to what was sent for the second time. If it is a Fault, the first may have been received all the same,
    and there is no third."""
    return reply._replace(was_sent=True, was_idle=False) if isinstance(reply, Fault) else reply


def left_for_request(seconds: float, connecting: float) -> float:
    """Of so many seconds, after so many spent on connecting: at least a tenth."""
    return max(seconds / 10, seconds - connecting)


class Nobody:
    """Instead of a taker, where nobody waits for the reply."""

    def done(self) -> bool:
        return True

    def set_result(self, reply: Any, /) -> None:
        pass


NOBODY = Nobody()


L = TypeVar("L", bound=Followed)


class Lending(Generic[L]):
    """The connections to one server, where each is lent to one request at a time."""

    def __init__(self, server: Server, idle_most: int = IDLE_MOST) -> None:
        self.idle: list[L] = []
        self.idle_most = idle_most
        self._server = server

    def take_back(self, conversation: L, owner: str | None, replies: Sequence[Any]) -> None:
        """Its replies were read. If the note of the claim is gone, a clean-up has followed, whose reply is still to
        come: whoever takes the note out, this or `Server.clean_up`, has the connection."""
        if owner is not None and self._server.unanswered.pop(owner, None) is None:
            return
        for reply in replies:
            if type(reply) is ReplyError and cant_serve(reply):
                conversation.close()
                self.drop_idle()
                return
        if len(self.idle) < self.idle_most:
            self.idle.append(conversation)
        else:
            conversation.close()

    def drop_idle(self) -> None:
        """Also after a fault: they are as old as the one that failed."""
        while True:
            try:
                self.idle.pop().close()
            except IndexError:
                return

    def close(self) -> None:
        self.idle_most = 0  # what is still under way closes its own
        self.drop_idle()
        self._server.close()
