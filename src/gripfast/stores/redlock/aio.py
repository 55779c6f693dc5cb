"""The asyncio colour: one connection per node that all tasks share, and one more for pushes when somebody waits.

Replies are told to the ballot by whoever reads them, on the loop: there is no task per node. Requests of one owner are
in order because they share a connection. After that was given up, a clean-up follows on it (`AioLink.follow`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import random
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from gripfast.core.ports import Inbox
from gripfast.core.redlock.ballot import majority
from gripfast.core.redlock.nodes import Answer, Ballot, Each, Failed, ForceRelease, Free, Freed, Request, Unlock, Vote
from gripfast.errors import ClientClosed, GripfastError, OutcomeUnknown
from gripfast.machine import boottime
from gripfast.stores.inboxes import AioInbox, Inboxes
from gripfast.stores.redis.aio import AioConversation, AioLink
from gripfast.stores.redis.conversation import LOOKS
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import Fault, cut, not_connected
from gripfast.stores.redlock.health import PAUSE_FIRST, PAUSE_MOST, still_down
from gripfast.stores.redlock.polls import NOBODY, Nobody, Poll
from gripfast.stores.redlock.protocol import Wording, sets

_log = logging.getLogger("gripfast.connection")

LOST_MOST = 1000
"""Clean-ups kept for a node that is down; what is left out ends with its ttl."""


class AioNodes:
    def __init__(self, dialers: Sequence[Dialer], wording: Wording) -> None:
        self.names: Sequence[str] = [dialer.where for dialer in dialers]
        self._loop = asyncio.get_running_loop()
        self._wording = wording
        self._inboxes = Inboxes()
        self._down: set[_Node] = set()
        self._nodes = [_Node(place, each, wording, self._inboxes, self._down) for place, each in enumerate(dialers)]
        self._listens = False
        self._listening_takes = max(dialer.timeout for dialer in dialers)
        self._is_closed = False

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        asked = len(requests) - requests.count(None)
        if self._is_closed:
            raise ClientClosed
        if not asked:
            return
        poll = Poll(ballot, asked, self._loop.create_future())
        try:
            waiting = self._ask(requests, poll, bool(self._down) and self._too_few_are_up(requests, asked))
            if within < math.inf:
                self._expect_within(within)
            await poll.decided
            if waiting and ballot.is_lost:
                poll.withdraw([question.node for question in waiting if not question.was_sent])
        except BaseException:
            poll.is_dropped = True
            raise
        finally:
            poll.is_over = True

    def _ask(self, requests: Sequence[Request | None], poll: Poll, insists: bool) -> list[_Question]:
        """Those that have to wait for a connection."""
        waiting: list[_Question] = []
        last: Request | None = None
        packed = b""
        for node, request in zip(self._nodes, requests, strict=True):
            if request is None:
                continue
            if type(request) is Vote and request.waits:
                packed = self._wording.pack(request, node.link.channel or b"")
            elif request is not last:
                packed = self._wording.pack(request, b"")
                last = request
            question = _Question(node, request, poll)
            words = node.teaching(question) or packed
            wire = node.requests.latest
            if wire is not None and wire.is_open and not node.takes_care:
                question.put(wire, words)
            else:
                node.ask(question, words, insists)
                waiting.append(question)
        return waiting

    def _expect_within(self, seconds: float) -> None:
        for node in self._nodes:
            if node.requests.connection is not None and seconds < node.timeout:
                node.requests.connection.expect_within(seconds, told=seconds)

    def _too_few_are_up(self, requests: Sequence[Request | None], asked: int) -> bool:
        """So few that nothing can be decided: what is known of the others may be out of date."""
        down = sum(1 for node in self._down if requests[node.place] is not None)
        return asked - down < majority(asked)

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        if not self._is_closed:
            packed = self._wording.pack(request, b"")
            for place in nodes:
                node = self._nodes[place]
                question = _Question(node, request, NOBODY)
                node.ask(question, node.teaching(question) or packed, insists=False)

    # -- waking --------------------------------------------------------------------------------------------------

    def inbox(self) -> Inbox:
        return AioInbox()

    def hears(self, owner: str, inbox: Inbox) -> bool:
        self._inboxes.add(owner, inbox)
        if not self._listens:
            return False
        deaf = self._start_listening()
        return len(self._nodes) - deaf >= majority(len(self._nodes))

    async def listen(self) -> None:
        self._listens = True
        self._start_listening()
        opening = [dialing for node in self._nodes if (dialing := node.link.notifications.dialing) is not None]
        if opening:
            await asyncio.wait(opening, timeout=self._listening_takes)

    def _start_listening(self) -> int:
        """Wherever nobody listens; to how many nodes that is."""
        deaf = [node for node in self._nodes if node.link.channel is None]
        for node in deaf:
            if node.trouble is None and not self._is_closed:
                node.link.notifications.start()
        return len(deaf)

    # -- the rest ------------------------------------------------------------------------------------------------

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def chance(self) -> float:
        return random.random()

    def chase(self, free: Free) -> Sequence[bool | None]:
        """From any thread, and also when the loop is gone: follow this owner's claims that were not answered.

        For each node whether it could; None if there is nothing to follow."""
        packed = self._wording.in_full(free, b"")
        return [node.chase(free.owner, packed) for node in self._nodes]

    def shut(self) -> None:
        self._inboxes.ask_again()

    def close_soon(self) -> None:
        """From any thread, and also when the loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self._close)
        except RuntimeError:
            self._is_closed = True
            for node in self._nodes:
                node.link.close_soon()

    async def close(self) -> None:
        self._close()

    def _close(self) -> None:
        self._is_closed = True
        for node in self._nodes:
            node.close()


_FOLLOWED = Freed(was_held=True, has_waiters=False)
"""It has left on the connection that carried the claim: as good as done."""


class _Question:
    """What a node is asked in one poll. It is told the reply, as a future would be."""

    __slots__ = ("followed", "is_full", "is_repeated", "node", "poll", "request", "was_sent")

    def __init__(self, node: _Node, request: Request, poll: Poll | Nobody) -> None:
        self.node = node
        self.request = request
        self.poll = poll
        self.is_full = False
        self.is_repeated = False
        self.was_sent = False
        self.followed: list[bool | None] | None = None
        """For each clean-up in it, what `AioLink.follow` said."""

    def done(self) -> bool:
        return False

    def set_result(self, reply: Any, /) -> None:
        try:
            self.node.answered(self, reply)
        except Exception as error:  # of a ballot, say: it is for whoever has made it, not for who reads
            self.poll.fail(error)

    def put(self, wire: AioConversation, packed: bytes) -> None:
        self.was_sent = True
        request = self.request
        if type(request) is Vote:
            wire.ask_for(self, packed, request.owner)
            return
        if type(request) is Each:
            wire.ask_many_for(self, packed, [_setter(each) for each in request.requests])
        else:
            wire.ask_for(self, packed, _setter(request))
        for part in self.parts:
            if self.node.is_last(part):
                wire.server.follows(part.owner, wire)

    @property
    def parts(self) -> Sequence[Request]:
        return self.request.requests if isinstance(self.request, Each) else (self.request,)

    @property
    def cleans(self) -> bool:
        """It must get there, wanted or not."""
        return isinstance(self.parts[0], Free | Unlock)

    @property
    def is_on_its_own(self) -> bool:
        """Nobody hears whether it has failed, so nobody else asks again."""
        return self.cleans and (self.poll is NOBODY or self.poll.is_over)

    @property
    def may_be_late(self) -> bool:
        """That it arrives after later ones of its owner does no harm."""
        return not self.poll.is_over or self.cleans

    def tell(self, answer: Answer) -> None:
        if self.followed is not None:
            answers = answer if isinstance(answer, list) else [answer]
            checked = [self._checked(each, left) for each, left in zip(answers, self.followed, strict=True)]
            answer = checked if isinstance(answer, list) else checked[0]
        self.poll.tell(self.node.place, answer)

    def fail(self, fault: Fault) -> None:
        failed = Failed(fault.error, self.was_sent, fault.is_permanent, fault.was_refused)
        if self.followed is None or True not in self.followed:
            self.poll.tell(self.node.place, failed)
            return
        answers: list[Answer] = [_FOLLOWED if left else failed for left in self.followed]
        self.poll.tell(self.node.place, answers if isinstance(self.request, Each) else answers[0])

    def _checked(self, answer: Answer, left: bool | None) -> Answer:
        """What was not there may have been freed by the one that followed. If none could, a claim may still come, and
        has to be cleaned up again."""
        if left is None or not isinstance(answer, Freed):
            return answer
        if left:
            return answer._replace(was_held=True)
        if answer.was_held and not self.is_repeated:
            return answer
        where, message = self.node.where, "may still get a claim that was sent on a connection which broke"
        return Failed(OutcomeUnknown(f"{where} {message}", {where: message}), was_asked=True)


class _Node:
    """One node: the questions that wait for its connection, and whether it is worth asking."""

    def __init__(self, place: int, dialer: Dialer, wording: Wording, inboxes: Inboxes, down: set[_Node]) -> None:
        self.place = place
        self.where = dialer.where
        self.link = AioLink(dialer, inboxes, makes_sure=True)
        self.requests = self.link.requests
        self.takes_care = False
        """Questions wait, or the claims of some owners may have to be followed: `ask` must look."""
        self.trouble: Fault | None = None
        """Why it is down."""
        self._down = down
        self._down_since = 0.0
        self._loop = asyncio.get_running_loop()
        self.timeout = dialer.timeout
        self._wording = wording
        self._taught: set[type] = set()
        """Kinds of requests whose scripts were sent, on this connection."""
        self._waiting: deque[_Question] = deque()
        """In order, for a connection that is being made."""
        self._lost: deque[_Question] = deque(maxlen=LOST_MOST)
        """Clean-ups that did not arrive, for the next connection."""
        self._frees: dict[str, bytes] = {}
        """Clean-ups of owners who are done, though a claim of theirs may be waiting."""
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._probing: asyncio.TimerHandle | None = None
        self._pause = PAUSE_FIRST
        self._is_dialing = False
        self._has_joined = False
        """Somebody waits for a connection that was begun before: if it fails, that may tell of an earlier time."""
        self._is_closed = False

    def ask(self, question: _Question, packed: bytes, insists: bool) -> None:
        if self.takes_care and question.cleans and question.followed is None:
            question.followed = self._follow(question)
        wire = self.requests.connection
        if self._is_closed:
            question.fail(cut(self.where, None))
        elif wire is not None and not self._waiting:
            self.takes_care = self.takes_care and self.link.server.has_unanswered
            question.put(wire, packed)
        elif self.trouble is None or insists or (question.cleans and self._waiting):
            self._wait(question)  # a clean-up behind whatever it may have to clean up
        else:
            self._give_up(question, still_down(self.where, self.trouble, boottime() - self._down_since))

    def answered(self, question: _Question, reply: Any) -> None:
        if isinstance(reply, Fault):
            self._failed(question, reply)
            return
        replies = reply if type(question.request) is Each else (reply,)
        if type(reply) is not int and not question.is_full and self._wording.forgot(replies):
            self._taught.clear()
            if question.may_be_late:
                self._ask_again(question, is_full=True)
        elif not question.poll.is_over:
            question.tell(self._wording.read(question.request, replies, self.where, question.is_repeated))

    def teaching(self, question: _Question) -> bytes | None:
        """In full what is asked for the first time on a connection: a clean-up may be refused, for want of its script,
        when nobody listens any more."""
        request = question.request
        kind = type(request.requests[0] if type(request) is Each else request)
        if kind in self._taught:
            return None
        self._taught.add(kind)
        question.is_full = True
        return self._pack(question)

    def is_last(self, request: Request) -> TypeGuard[Free | Unlock]:
        """Whether its owner has nothing there afterwards. Who waits keeps its place when an attempt is cleaned up."""
        return type(request) is Free or (type(request) is Unlock and self.link.inboxes.find(request.owner) is None)

    def chase(self, owner: str, packed: bytes) -> bool | None:
        """From any thread. A claim that waits is known here, one that has left to the link; it is never in between."""
        if self._waiting:
            self._frees[owner] = packed
        return self.link.clean_up(owner, packed)

    def close(self) -> None:
        self._is_closed = True
        for timer in (self._timer, self._probing):
            if timer is not None:
                timer.cancel()
        self.link.close_now()
        self._refuse(cut(self.where, None))

    def _failed(self, question: _Question, fault: Fault) -> None:
        """A connection that had worked may have been closed while it was idle: a new one may do better."""
        self.takes_care = True
        can_repeat = fault.was_idle and not question.is_repeated and not self._is_closed
        if can_repeat and question.may_be_late and not isinstance(question.request, ForceRelease):
            question.is_repeated = True
            self._ask_again(question, question.is_full)
            return
        if not fault.was_idle or question.is_repeated:
            self._goes_down(fault)
        self._give_up(question, fault)

    def _give_up(self, question: _Question, fault: Fault) -> None:
        if question.is_on_its_own:
            self._lost.append(question)
        question.fail(fault)

    def _ask_again(self, question: _Question, is_full: bool) -> None:
        question.is_full = is_full
        self.ask(question, self._pack(question), insists=False)

    def _pack(self, question: _Question) -> bytes:
        request = question.request
        channel = self.link.channel if isinstance(request, Vote) and request.waits else None
        pack = self._wording.in_full if question.is_full else self._wording.pack
        return pack(request, channel or b"")

    def _follow(self, question: _Question) -> list[bool | None]:
        """In full: nobody reads the reply, and so nobody would see that the script was forgotten."""
        server, pack = self.link.server, self._wording.in_full
        return [
            server.clean_up_elsewhere(each.owner, functools.partial(pack, each, b""), self.is_last(each))
            for each in question.parts
            if isinstance(each, Free | Unlock)
        ]

    # -- making a connection -------------------------------------------------------------------------------------

    def _wait(self, question: _Question) -> None:
        self._waiting.append(question)
        self.takes_care = True
        if self._timer is None:
            self._looks = LOOKS
            self._timer = self._loop.call_later(self.timeout / LOOKS, self._look)
        self._has_joined = self._is_dialing
        self._dial()

    def _look(self) -> None:
        """In steps, so that a process that was paused itself does not take that for the node's silence."""
        self._timer = None
        if not self._waiting:
            return
        self._looks -= 1
        if self._looks > 0:
            self._timer = self._loop.call_later(self.timeout / LOOKS, self._look)
            return
        fault = not_connected(self.where, TimeoutError())
        self._goes_down(fault)
        self._refuse(fault)

    def _dial(self) -> None:
        if not self._is_dialing:
            self.requests.start().add_done_callback(self._dialled)
            self._is_dialing = True

    def _dialled(self, dialing: asyncio.Future[Any]) -> None:
        self._is_dialing = False
        result = dialing.result()
        if isinstance(result, Fault):
            self._goes_down(result)
            if self._has_joined and self._waiting:
                self._has_joined = False
                self._dial()
            else:
                self._refuse(result)
        elif isinstance(result, GripfastError):
            for question in self._waiting:
                question.poll.fail(result)
            self._waiting.clear()
        else:
            self._comes_up()
            self._taught.clear()
            self._put_waiting(result)

    def _put_waiting(self, wire: AioConversation) -> None:
        """In full: who has just connected may be a new server, and a vote must not be decided before it hears of that.

        Each stays in line until it has left, for `chase`.
        """
        while self._lost:
            self._waiting.appendleft(self._lost.pop())
        while self._waiting:
            question = self._waiting[0]
            question.is_full = True
            if question.cleans or not question.poll.is_dropped:
                question.put(wire, self._pack(question))
                for owner in [each for part in question.parts if (each := _setter(part)) in self._frees]:
                    wire.ask_for(self._loop.create_future(), self._frees[owner])
            self._waiting.popleft()
        self._frees.clear()

    def _refuse(self, fault: Fault) -> None:
        while self._waiting:
            self._give_up(self._waiting.popleft(), fault.copy())
        self._frees.clear()

    # -- up or down ----------------------------------------------------------------------------------------------

    def _goes_down(self, fault: Fault) -> None:
        if self._is_closed:
            return
        if self.trouble is None:
            _log.info("%s is not asked for now: %s", self.where, fault.error.nodes.get(self.where, fault.error))
            self._down.add(self)
            self._down_since = boottime()
            self._pause = PAUSE_FIRST
        self.trouble = fault.copy()
        if self._probing is None:
            self._probing = self._loop.call_later(self._pause, _probe, weakref.ref(self))
            self._pause = min(PAUSE_MOST, self._pause * 2)

    def probe(self) -> None:
        self._probing = None
        if self.trouble is not None and not self._is_closed:
            self._dial()

    def _comes_up(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            self._down.discard(self)
            _log.info("%s is asked again: it answers", self.where)
        if self._probing is not None:
            self._probing.cancel()
            self._probing = None


def _probe(node: weakref.ref[_Node]) -> None:
    """A timer must not keep the nodes of a client that was dropped."""
    alive = node()
    if alive is not None:
        alive.probe()


def _setter(request: Request) -> str | None:
    """Whose claim it is, if it is one."""
    return request.owner if sets(request) else None  # type: ignore[union-attr]
