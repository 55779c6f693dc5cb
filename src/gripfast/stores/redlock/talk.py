"""The talk with N nodes: one conversation with each, which nodes get requests, what waits for a connection.

No socket, clock or thread: asyncio (`aio.py`), threads (`bundle.py`) and the simulation drive it. Replies are told to
the ballot as they are read. Requests of one owner are in order because they share a connection. Each rule stands in one
place, here or in `polls.py`, beside those of `stores/redis/conversation.py`:

1. *Down.* A node that could not be reached, or was silent, gets no requests (`Health`), and is probed in the background
   until it answers. If too few others are left for a decision, it gets them all the same (`polls.too_few`).
2. *Waiting.* What waits for a connection leaves in order, in full: who has just connected may be a new server. It is
   not sent if nobody wants it any more (`NodeTalk._put_waiting`); a clean-up waits behind what it may have to clean up.
3. *Clean-ups elsewhere.* Before a clean-up leaves, it follows on the other connections that carry claims of its owner
   (`polls.follow`), until that owner has nothing there any more (`polls.ends`); its answer is read accordingly
   (`polls.after_following`). How it gets onto a connection that another thread has, `Pool.follow_on` knows.
4. *Repeating.* As at a single server (`may_repeat` in `stores/redis/conversation.py`), unless it is a force release
   (`polls.may_repeat`), or would come after its owner's clean-up (`polls.may_be_late`).
5. *Scripts.* They are sent in full the first time on a connection (`NodeTalk.words`), and again if the node has
   forgotten them (`NodeTalk.answered`): a clean-up may be refused, for want of its script, when nobody listens any
   more. What a thread only sends, it sends in full (`Talk.send`), because the reply may be read late.
6. *Lost clean-ups* for which nobody waits leave on the next connection (`NodeTalk._give_up`, `CleanUp`,
   `Health.send_lost`). A thread, which has no buffer, sends a few, and more when those are answered.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gripfast.core.redlock.nodes import Each, Free, Request, Unlock, Vote
from gripfast.errors import GripfastError, StoreUnavailable
from gripfast.stores.faults import Fault
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.conversation import LOOKS, Conversation, Loop, Server, Timer
from gripfast.stores.redis.conversation import NOBODY as NO_TAKER
from gripfast.stores.redis.faults import cut, not_connected
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
    """What is known about one node, over all connections to it: whether it is worth asking, what it has not got.

    Drivers differ in who looks after one that is down: a timer, or a thread.
    """

    lost_at_once = LOST_MOST
    """Lost clean-ups that are under way on one connection."""

    def __init__(self, place: int, server: Server, now: Callable[[], float], down: set[Health]) -> None:
        self.place = place
        self.server = server
        self.where = server.where
        self.trouble: Fault | None = None
        """Why it is down."""
        self.lost: deque[bytes] = deque(maxlen=LOST_MOST)
        """Clean-ups that did not arrive, for the next connection."""
        self._now = now
        self._down = down
        self._since = 0.0
        self._pause = PAUSE_FIRST

    @property
    def channel(self) -> bytes | None:
        """Where somebody listens at it."""
        raise NotImplementedError

    def failed(self, fault: Fault, on: Any) -> None:
        """On this connection, or when this one was to be made."""
        self.goes_down(fault)

    def send_lost(self, conversation: Conversation) -> None:
        """Twice does no harm, so two threads may do it at the same time."""
        for packed in list(self.lost)[: max(0, self.lost_at_once - len(conversation.owed))]:
            conversation.ask_for(CleanUp(packed, self.lost), packed)
            try:
                self.lost.remove(packed)
            except ValueError:  # another thread was quicker
                pass
            if not conversation.is_open:
                return

    def goes_down(self, fault: Fault) -> None:
        self._down.add(self)
        if self.trouble is None:
            what = fault.error.nodes.get(self.where, fault.error)
            _log.info(_DOWN, self.where, what, extra={"gripfast_store": self.where})
            self._since = self._now()
            self._pause = PAUSE_FIRST
        self.trouble = fault.copy()

    def comes_up(self) -> None:
        self._down.discard(self)
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


class CleanUp:
    """Takes the reply to a clean-up that nobody waits for. If there is none, it was lost."""

    __slots__ = ("_lost", "_packed")

    def __init__(self, packed: bytes, lost: deque[bytes]) -> None:
        self._packed = packed
        self._lost = lost

    def done(self) -> bool:
        return False

    def set_result(self, reply: Any, /) -> None:
        if isinstance(reply, Fault):
            self._lost.append(self._packed)


class Node(Health):
    """One that is looked after by timers of a loop."""

    def __init__(self, place: int, server: Server, loop: Loop, now: Callable[[], float], down: set[Health]) -> None:
        super().__init__(place, server, now, down)
        self.notifications: Opening
        self.probe: Callable[[], None] = lambda: None
        """Looks whether it answers again: `comes_up` or `goes_down` follows."""
        self._loop = loop
        self._probing: Timer | None = None
        self._is_closed = False

    @property
    def channel(self) -> bytes | None:
        listener = self.notifications.latest
        return listener.channel if listener is not None and listener.is_open else None

    def goes_down(self, fault: Fault) -> None:
        if self._is_closed:
            return
        super().goes_down(fault)
        if self._probing is None:
            self._probing = self._loop.call_later(self.next_pause(), _probe, weakref.ref(self))

    def comes_up(self) -> None:
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
        node: Health,
        requests: Opening,
        wording: Wording,
        inboxes: Inboxes,
        loop: Loop,
        is_lent: bool = False,
        beside: NodeTalk | None = None,
    ) -> None:
        """`is_lent`: there are others with the same node. `beside`: where claims were sent whose clean-ups are sent
        here."""
        self.node = node
        self.requests = requests
        self.is_lent = is_lent
        self.takes_care = False
        """Questions wait, or the claims of some owners may have to be followed: `ask` must look."""
        self._beside = beside
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
            self.takes_care = not self.is_lent and self.takes_care and self.node.server.has_unanswered
            question.put(conversation, self.words(question, conversation) or packed)
        elif self.node.trouble is None or insists or (cleans and self._waiting):
            self._wait(question)
        else:
            self._give_up(question, self.node.still_down())

    def answered(self, question: Question, reply: Any) -> None:
        replies: Sequence[Any] = (reply,)
        if type(reply) is not int:
            if isinstance(reply, Fault):
                self._failed(question, reply)
                return
            if type(reply) is list and type(question.request) is Each:
                replies = reply
            if not question.is_full and self._wording.forgot(replies):
                self._has_forgotten(question)
                return
        if not question.poll.is_over:
            answer = self._wording.read(question.request, replies, self.node.where, question.is_repeated)
            if question.followed:
                answer = polls.after_following(self.node.where, answer, question.followed, question.is_repeated)
            question.poll.tell(self.node.place, answer)

    def _has_forgotten(self, question: Question) -> None:
        if question.conversation is not None:
            question.conversation.taught.clear()
        if question.may_be_late:
            self._ask_again(question, is_full=True)

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
        self.requests.connection.ask_last(answer, within)
        return answer

    def let_go(self) -> None:
        """Use this connection no more."""
        conversation: Conversation | None = self.requests.latest
        if conversation is not None:
            conversation.leave()
        self.requests.latest = None

    def dismiss(self) -> None:
        """Nothing is asked here any more."""
        self._is_closed = True  # first: what is told now is not asked again
        self.let_go()
        self.close()

    def dial(self) -> None:
        if self.requests.dialing is None:
            self.requests.start()

    def _failed(self, question: Question, fault: Fault) -> None:
        self.takes_care = True
        can_repeat = question.may_be_late and not self._is_closed
        if can_repeat and polls.may_repeat(question.request, fault, question.is_repeated):
            question.is_repeated = True
            self._ask_again(question, question.is_full)
            return
        if not self._is_closed and (not fault.was_idle or question.is_repeated):
            self.node.failed(fault, question.conversation)
        self._give_up(question, fault)

    def _give_up(self, question: Question, fault: Fault) -> None:
        if question.is_on_its_own:
            self.node.lost.extend([self._wording.in_full(part, b"") for part in polls.parts_of(question.request)])
        question.fail(fault)

    def _ask_again(self, question: Question, is_full: bool) -> None:
        question.is_full = is_full
        self.ask(question, self._pack(question), insists=False)

    def _pack(self, question: Question) -> bytes:
        request = question.request
        channel = self.node.channel if isinstance(request, Vote) and request.waits else None
        pack = self._wording.in_full if question.is_full else self._wording.pack
        return pack(request, channel or b"")

    def _follow(self, question: Question, here: Conversation | None) -> Sequence[bool | None]:
        left = [self._follow_claims(each, here) for each in polls.parts_of(question.request)]
        return left if left.count(None) < len(left) else ()

    def _follow_claims(self, clean_up: Request, here: Conversation | None) -> bool | None:
        left = polls.follow(clean_up, self.node.server, self._wording, self.inboxes, here)
        if self._beside is None or type(clean_up) is not Free:
            return left
        return polls.both(left, self._beside.clean_up(clean_up.owner, self._wording.in_full(clean_up, b"")))

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
                self.node.failed(result, self.requests)
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
        self.node.send_lost(conversation)
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
        """Each stays in the queue until it was told: an interrupt may come between."""
        while self._waiting:
            question = self._waiting[0]
            self._give_up(question, fault.copy())
            if self._waiting and self._waiting[0] is question:  # who was told may have closed this
                self._waiting.popleft()
        self._frees.clear()


class Talk:
    """With all nodes."""

    def __init__(
        self,
        talks: Sequence[NodeTalk],
        wording: Wording,
        down: set[Health],
        must_follow: Callable[[Request], bool] = lambda clean_up: False,
    ) -> None:
        """`must_follow`: claims of its owners may be unanswered on other connections than these."""
        self.talks = talks
        self._wording = wording
        self._down = down
        """Those of the nodes that are down."""
        self._must_follow = must_follow

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
        for talk, request in zip(self.talks, requests, strict=True):
            if request is None:
                continue
            if request is not last:
                last, kind = request, polls.kind_of(request)
                waits = type(request) is Vote and request.waits
                follows = (kind is Free or kind is Unlock) and self._must_follow(request)
                packed = b"" if waits else self._wording.pack(request, b"")
            if waits:
                packed = self._wording.pack(request, talk.node.channel or b"")
            question = Question(talk, request, poll)
            conversation: Conversation | None = talk.requests.latest
            if conversation is None or not conversation.is_open or talk.takes_care or follows:
                talk.ask(question, packed, insists)
                waiting.append(question)
            else:
                is_known = kind in conversation.taught
                question.put(conversation, packed if is_known else talk.words(question, conversation) or packed)
        return waiting

    def _expect_within(self, seconds: float) -> None:
        for talk in self.talks:
            conversation = talk.requests.connection
            if conversation is not None:
                conversation.expect_within(seconds, told=seconds)

    def _too_few_are_up(self, requests: Sequence[Request | None], asked: int) -> bool:
        down = sum(1 for node in list(self._down) if requests[node.place] is not None)
        return polls.too_few(asked - down, asked)

    def send(self, request: Request, nodes: Iterable[int], in_full: bool = False) -> None:
        """`in_full`: the replies may be read late, so nobody would see in time that a script was forgotten."""
        packed = self._wording.pack(request, b"")
        for place in nodes:
            talk = self.talks[place]
            question = Question(talk, request, NOBODY)
            question.is_full = in_full
            talk.ask(question, packed, insists=False)

    def dismiss(self) -> None:
        for talk in self.talks:
            talk.dismiss()

    def close(self) -> None:
        for talk in self.talks:
            talk.close()
