"""The talk with N nodes: one conversation with each, which nodes are worth asking, what waits for a connection.

No socket, clock or thread: asyncio (`aio.py`) and the simulation drive it. Replies are told to the ballot as they are
read. Requests of one owner are in order because they share a connection. Each rule stands in one place, here or in
`polls.py`, for the blocking driver as well, beside those of `stores/redis/conversation.py`:

1. *Down.* A node that could not be reached, or was silent, is not asked (`Health`), but looked after in the background
   until it answers; unless too few others are left to decide anything (`polls.too_few`).
2. *Waiting.* What waits for a connection leaves in order, in full: who has just connected may be a new server. It is
   not sent if nobody wants it any more (`NodeTalk._put_waiting`); a clean-up waits behind what it may have to clean up.
   A thread waits itself until it has connections.
3. *Clean-ups elsewhere.* Before a clean-up leaves, it follows on the other connections that carry claims of its owner
   (`polls.follow`), until that owner has nothing there any more (`polls.ends`); its answer is read accordingly
   (`polls.after_following`). How it gets onto a connection that another thread has, `Pool.follow_on` knows.
4. *Repeating.* What was lost with a connection that had worked is repeated once, unless it is a force release
   (`polls.may_repeat`), or would come after its owner's clean-up (`polls.may_be_late`).
5. *Scripts.* They are sent in full the first time on a connection (`NodeTalk.words`), and again if the node has
   forgotten them (`NodeTalk.answered`): a clean-up may be refused, for want of its script, when nobody listens any
   more. A thread teaches a whole bundle at once, so that all nodes get the same bytes (`BlockingNodes._ask`); what it
   only sends, it sends in full, because the reply may be read late. Whoever reads that a script was forgotten may be
   interrupted, so a clean-up counts as lost before that (`Strand.next`, `Pool.is_forgotten`).
6. *Lost clean-ups* for which nobody waits leave on the next connection (`Health.lost`). A thread takes along a few of
   them with its own request (`Pool.send_lost`): it has no buffer for what a node does not read.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gripfast.core.redlock.nodes import Each, Request, Vote
from gripfast.errors import GripfastError, StoreUnavailable
from gripfast.stores.faults import Fault
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.conversation import LOOKS, Conversation, Loop, Server, Timer
from gripfast.stores.redis.conversation import NOBODY as NO_TAKER
from gripfast.stores.redis.faults import cut, not_connected
from gripfast.stores.redis.protocol import command
from gripfast.stores.redis.shared import Opening
from gripfast.stores.redlock import polls
from gripfast.stores.redlock.polls import NOBODY, Poll, Question
from gripfast.stores.redlock.protocol import Wording

_log = logging.getLogger("gripfast.connection")
_DOWN = "%s marked down, probing in the background: %s"

PAUSE_FIRST = 0.02
PAUSE_MOST = 1.0
"""Seconds between two looks at a node that is down."""
LOST_MOST = 1000
"""Clean-ups kept for a node that is down; what is left out ends with its ttl."""


class Health:
    """Whether a node is worth asking. Drivers differ in who looks after one that is not: a timer, or a thread."""

    def __init__(self, server: Server, now: Callable[[], float]) -> None:
        self.where = server.where
        self.trouble: Fault | None = None
        """Why it is down."""
        self.lost: deque[Any] = deque(maxlen=LOST_MOST)
        """Clean-ups that did not arrive, for the next connection."""
        self._now = now
        self._since = 0.0
        self._pause = PAUSE_FIRST

    def goes_down(self, fault: Fault) -> None:
        if self.trouble is None:
            what = fault.error.nodes.get(self.where, fault.error)
            _log.info(_DOWN, self.where, what, extra={"gripfast_store": self.where})
            self._since = self._now()
            self._pause = PAUSE_FIRST
        self.trouble = fault.copy()

    def comes_up(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            _log.info("%s is up: it answers again", self.where, extra={"gripfast_store": self.where})

    def next_pause(self) -> float:
        """Seconds before the next look at it."""
        pause, self._pause = self._pause, min(PAUSE_MOST, 2 * self._pause)
        return pause

    def still_down(self) -> Fault:
        """For whoever would have asked it."""
        fault, age = self.trouble or cut(self.where, None), self._now() - self._since
        what = fault.error.nodes.get(self.where, str(fault.error))
        message = f"{what} ({f'seen {age:.0f} s ago; ' if age >= 1 else ''}Gripfast keeps trying in the background)"
        made = StoreUnavailable(f"{self.where} {message}", {self.where: message})
        return Fault(made, fault.kind, was_refused=fault.was_refused)


class Node(Health):
    """What is known about one node, over all connections to it."""

    def __init__(self, place: int, server: Server, loop: Loop, now: Callable[[], float], down: set[Node]) -> None:
        super().__init__(server, now)
        self.place = place
        self.server = server
        self.notifications: Opening
        self.probe: Callable[[], None] = lambda: None
        """Looks whether it answers again: `comes_up` or `goes_down` follows."""
        self._loop = loop
        self._down = down
        self._probing: Timer | None = None
        self._is_closed = False

    @property
    def channel(self) -> bytes | None:
        """Where somebody listens at it."""
        listener = self.notifications.latest
        return listener.channel if listener is not None and listener.is_open else None

    def goes_down(self, fault: Fault) -> None:
        if self._is_closed:
            return
        self._down.add(self)
        super().goes_down(fault)
        if self._probing is None:
            self._probing = self._loop.call_later(self.next_pause(), _probe, weakref.ref(self))

    def comes_up(self) -> None:
        self._down.discard(self)
        super().comes_up()
        self._stop_probing()

    def look(self) -> None:
        self._probing = None
        if self.trouble is not None and not self._is_closed:
            self.probe()

    def close(self) -> None:
        self._is_closed = True
        self._stop_probing()
        self.notifications.close()
        self.server.close()

    def _stop_probing(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            self._probing = None


def _probe(node: weakref.ref[Node]) -> None:
    """A timer must not keep the nodes of a client that was dropped."""
    alive = node()
    if alive is not None:
        alive.look()


class NodeTalk:
    """A conversation with one node, and the questions that wait for it."""

    def __init__(
        self,
        node: Node,
        requests: Opening,
        wording: Wording,
        inboxes: Inboxes,
        loop: Loop,
        is_lent: bool = False,
    ) -> None:
        """`is_lent`: there are others with the same node."""
        self.node = node
        self.requests = requests
        self.is_lent = is_lent
        self.takes_care = is_lent
        """Questions wait, or the claims of some owners may have to be followed: `ask` must look."""
        self._wording = wording
        self.inboxes = inboxes
        self._loop = loop
        self._waiting: deque[Question] = deque()
        """In order, for a connection that is being made."""
        self._frees: dict[str, bytes] = {}
        """Clean-ups of owners who are done, though a claim of theirs may be waiting."""
        self._looks = 0
        self._timer: Timer | None = None
        self._has_joined = False
        """Somebody waits for a connection that was begun before: if it fails, that may tell of an earlier time."""
        self._is_closed = False
        requests.when_ended = self._dialled

    def ask(self, question: Question, packed: bytes, insists: bool) -> None:
        conversation, cleans = self.requests.connection, polls.only_cleans(question.request)
        if cleans and question.followed is None and (self.is_lent or self.node.server.has_unanswered):
            question.followed = self._follow(question, conversation)
        if self._is_closed:
            self._give_up(question, cut(self.node.where, None))
        elif conversation is not None and not self._waiting:
            self.takes_care = self.is_lent or (self.takes_care and self.node.server.has_unanswered)
            question.put(conversation, self.words(question, conversation) or packed)
        elif self.node.trouble is None or insists or (cleans and self._waiting):
            self._wait(question)
        else:
            self._give_up(question, self.node.still_down())

    def answered(self, question: Question, reply: Any) -> None:
        if isinstance(reply, Fault):
            self._failed(question, reply)
            return
        replies = reply if type(question.request) is Each else (reply,)
        if type(reply) is not int and not question.is_full and self._wording.forgot(replies):
            if question.conversation is not None:
                question.conversation.taught.clear()
            if question.may_be_late:
                self._ask_again(question, is_full=True)
        elif not question.poll.is_over:
            answer = self._wording.read(question.request, replies, self.node.where, question.is_repeated)
            question.tell(answer)

    def words(self, question: Question, conversation: Conversation) -> bytes | None:
        """In full what is asked for the first time on a connection; None if the script is known."""
        kind = polls.kind_of(question.request)
        if not question.is_full and kind in conversation.taught:
            return None
        conversation.taught.add(kind)
        question.is_full = True
        return self._pack(question)

    def clean_up(self, owner: str, packed: bytes) -> bool | None:
        """From any thread. A claim that waits is known here, one that has left to the server; never in between."""
        if self._waiting:
            self._frees[owner] = packed
        return self.node.server.clean_up(owner, packed)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.requests.close()
        self._refuse(cut(self.node.where, None))

    @property
    def is_up(self) -> bool:
        """What is asked leaves at once."""
        return self.requests.connection is not None and not self._waiting

    @property
    def owes(self) -> bool:
        conversation: Conversation | None = self.requests.connection
        return conversation is not None and bool(conversation.owed)

    def flush(self) -> None:
        if (conversation := self.requests.connection) is not None:
            conversation.flush()

    def barrier(self, answer: Any, within: float) -> Any:
        """It is told when all that is owed was read, or won't be."""
        conversation: Conversation = self.requests.connection
        conversation.ask_for(answer, command(b"PING"))
        conversation.expect_within(within, told=within, spares=True)
        return answer

    def let_go(self) -> None:
        """Use this connection no more. It is kept until it was answered: a clean-up may have to follow on it."""
        conversation = self.requests.connection
        self.requests.latest = None
        if conversation is not None:
            if conversation.owed:
                self.node.server.park(conversation)
            else:
                conversation.close()

    def dial(self) -> None:
        if self.requests.dialing is None:
            self.requests.start()

    def _failed(self, question: Question, fault: Fault) -> None:
        self.takes_care = True
        can_repeat = question.may_be_late and not self._is_closed
        if can_repeat and polls.may_repeat(question.request, fault.was_idle, question.is_repeated):
            question.is_repeated = True
            self._ask_again(question, question.is_full)
            return
        if not self._is_closed and (not fault.was_idle or question.is_repeated):
            self.node.goes_down(fault)
        self._give_up(question, fault)

    def _give_up(self, question: Question, fault: Fault) -> None:
        if question.is_on_its_own:
            self.node.lost.append(question)
        question.fail(fault)

    def _ask_again(self, question: Question, is_full: bool) -> None:
        question.is_full = is_full
        self.ask(question, self._pack(question), insists=False)

    def _pack(self, question: Question) -> bytes:
        request = question.request
        channel = self.node.channel if isinstance(request, Vote) and request.waits else None
        pack = self._wording.in_full if question.is_full else self._wording.pack
        return pack(request, channel or b"")

    def _follow(self, question: Question, here: Conversation | None) -> list[bool | None]:
        return [
            polls.follow(each, self.node.server, self._wording, self.inboxes, here)
            for each in polls.parts_of(question.request)
        ]

    # -- making a connection -------------------------------------------------------------------------------------

    def _wait(self, question: Question) -> None:
        self._waiting.append(question)
        self.takes_care = True
        if self._timer is None:
            self._looks = LOOKS
            self._timer = self._loop.call_later(self.node.server.timeout / LOOKS, self._look)
        self._has_joined = self.requests.dialing is not None
        self.dial()

    def _look(self) -> None:
        """In steps, so that a process that was paused itself does not take that for the node's silence."""
        self._timer = None
        if not self._waiting:
            return
        self._looks -= 1
        if self._looks > 0:
            self._timer = self._loop.call_later(self.node.server.timeout / LOOKS, self._look)
            return
        fault = not_connected(self.node.where, TimeoutError())
        self.node.goes_down(fault)
        self._refuse(fault)

    def _dialled(self, result: Any) -> None:
        if isinstance(result, Fault):
            if not self._is_closed:
                self.node.goes_down(result)
            if self._has_joined and self._waiting:
                self._has_joined = False
                self.dial()
            else:
                self._refuse(result)
        elif isinstance(result, GripfastError):
            for question in self._waiting:
                question.poll.fail(result)
            self._waiting.clear()
        else:
            self.node.comes_up()
            self._put_waiting(result)

    def _put_waiting(self, conversation: Conversation) -> None:
        """Each stays in the queue until it has left, for `clean_up`."""
        while self.node.lost:
            self._waiting.appendleft(self.node.lost.pop())
        while self._waiting:
            question = self._waiting[0]
            question.is_full = True
            if polls.only_cleans(question.request) or not question.poll.is_dropped:
                question.put(conversation, self.words(question, conversation) or b"")
                for owner in [each for each in polls.claims(question.request) if each in self._frees]:
                    conversation.ask_for(NO_TAKER, self._frees[owner])
            self._waiting.popleft()
        self._frees.clear()

    def _refuse(self, fault: Fault) -> None:
        while self._waiting:
            self._give_up(self._waiting.popleft(), fault.copy())
        self._frees.clear()


class Talk:
    """With all nodes."""

    def __init__(self, talks: Sequence[NodeTalk], wording: Wording, down: set[Node]) -> None:
        self.talks = talks
        self._wording = wording
        self._down = down
        """Those of the nodes that are down."""

    def poll(self, requests: Sequence[Request | None], poll: Poll, within: float, asked: int) -> list[Question]:
        """Ask. Those that have to wait for a connection."""
        insists = bool(self._down) and self._too_few_are_up(requests, asked)
        waiting = self._ask(requests, poll, insists)
        if within < math.inf:
            self._expect_within(within)
        return waiting

    def _ask(self, requests: Sequence[Request | None], poll: Poll, insists: bool) -> list[Question]:
        waiting: list[Question] = []
        last: Request | None = None
        packed = b""
        for talk, request in zip(self.talks, requests, strict=True):
            if request is None:
                continue
            if type(request) is Vote and request.waits:
                packed = self._wording.pack(request, talk.node.channel or b"")
            elif request is not last:
                packed = self._wording.pack(request, b"")
                last = request
            question = Question(talk, request, poll)
            conversation: Conversation | None = talk.requests.latest
            if conversation is not None and conversation.is_open and not talk.takes_care:
                is_known = type(request) in conversation.taught
                question.put(conversation, packed if is_known else talk.words(question, conversation) or packed)
            else:
                talk.ask(question, packed, insists)
                waiting.append(question)
        return waiting

    def _expect_within(self, seconds: float) -> None:
        for talk in self.talks:
            conversation = talk.requests.connection
            if conversation is not None and seconds < talk.node.server.timeout:
                conversation.expect_within(seconds, told=seconds)

    def _too_few_are_up(self, requests: Sequence[Request | None], asked: int) -> bool:
        down = sum(1 for node in self._down if requests[node.place] is not None)
        return polls.too_few(asked - down, asked)

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        packed = self._wording.pack(request, b"")
        for place in nodes:
            talk = self.talks[place]
            talk.ask(Question(talk, request, NOBODY), packed, insists=False)

    def close(self) -> None:
        for talk in self.talks:
            talk.close()
