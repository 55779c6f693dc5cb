"""A poll is one request to all nodes: what each node gets, and who gets the answers. No socket, no clock.

What may be repeated, what cleans up, which claims it follows, how an answer is read after that: each is decided by a
function here, for all drivers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from gripfast.core.redlock.ballot import majority
from gripfast.core.redlock.nodes import (
    Answer,
    Ballot,
    Each,
    Failed,
    ForceRelease,
    Free,
    Freed,
    Request,
    TakeBack,
    Unlock,
    Vote,
)
from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.stores.faults import Fault
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis import conversation
from gripfast.stores.redis.conversation import Conversation, Followed, Server, Taker
from gripfast.stores.redlock.protocol import Wording

if TYPE_CHECKING:
    from gripfast.stores.redlock.talk import NodeTalk

_FOLLOWED = Freed(was_held=True, has_waiters=False)
"""It has left on the connection that carried the claim: as good as done."""


class Poll:
    """A ballot, and whoever waits for its end."""

    __slots__ = ("_answered", "_ballot", "_pending", "decided", "is_dropped", "is_over")

    def __init__(self, ballot: Ballot, asked: int, decided: Taker) -> None:
        self.decided = decided
        """Is told None, or what went wrong."""
        self.is_over = False
        """Nobody waits for answers any more."""
        self.is_dropped = False
        """And nobody wants what it was for: it was cancelled."""
        self._ballot = ballot
        self._pending = asked
        self._answered = 0
        """A bit for each node."""

    def withdraw(self, unasked: Iterable[NodeTalk]) -> None:
        """It is lost: what has not left yet never will, and the ballot has to know."""
        self.is_dropped = True
        for talk in unasked:
            if not self._answered >> talk.node.place & 1:
                self._ballot.add(talk.node.place, withdrawn(talk.node.where, talk.node.trouble))

    def tell(self, place: int, answer: Answer) -> None:
        bit = 1 << place
        if self.is_over or self._answered & bit:
            return  # no node is counted twice, whatever an interrupt has repeated
        self._pending -= 1
        self._answered |= bit
        if self._ballot.add(place, answer) or self._pending == 0:
            self.is_over = True
            if not self.decided.done():
                self.decided.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.is_over and not self.decided.done():
            self.is_over = True
            self.decided.set_result(error)


class Nobody:
    """Instead of a poll, for what was only sent."""

    is_over = is_dropped = False

    def tell(self, place: int, answer: Answer) -> None:
        pass

    def fail(self, error: Exception) -> None:
        pass


NOBODY = Nobody()


class Question:
    """What a node is asked in one poll. It is told the reply, as a future would be."""

    conversation: Conversation | None = None
    """On which it was sent last."""
    is_full = False
    is_repeated = False
    followed: Sequence[bool | None] | None = None
    """For each clean-up in it, what `Server.clean_up_elsewhere` said; empty if it said nothing."""

    def __init__(self, talk: NodeTalk, request: Request, poll: Poll | Nobody) -> None:
        self.talk = talk
        self.request = request
        self.poll = poll

    def done(self) -> bool:
        return False

    def set_result(self, reply: Any, /) -> None:
        try:
            self.talk.answered(self, reply)
        except Exception as error:  # of a ballot, say: it is for whoever has made it, not for who reads
            self.poll.fail(error)

    def put(self, conversation: Conversation, packed: bytes) -> None:
        self.conversation = conversation
        request = self.request
        if type(request) is Vote:
            conversation.ask_for(self, packed, request.owner)
        elif type(request) is Free:
            conversation.ask_for(self, packed)
            if conversation.claims and conversation.is_open:  # else it has not left
                conversation.server.follows(request.owner, conversation)
        else:
            self._put_rare(conversation, packed)

    def _put_rare(self, conversation: Conversation, packed: bytes) -> None:
        request = self.request
        if type(request) is Each:
            conversation.ask_many_for(self, packed, [setter(each) for each in request.requests])
        else:
            conversation.ask_for(self, packed, setter(request))
        for owner in ends(request, self.talk.inboxes) if conversation.is_open else ():
            conversation.server.follows(owner, conversation)

    @property
    def was_sent(self) -> bool:
        return self.conversation is not None

    @property
    def is_on_its_own(self) -> bool:
        """Nobody is told whether it has failed, so nobody else retries."""
        return only_cleans(self.request) and (self.poll is NOBODY or self.poll.is_over)

    @property
    def may_be_late(self) -> bool:
        return may_be_late(self.request, not self.poll.is_over)

    def fail(self, fault: Fault) -> None:
        answer = not_answered(self.request, failed(fault, self.was_sent), self.followed or ())
        self.poll.tell(self.talk.node.place, answer)


# What a request is ----------------------------------------------------------------------------------------------------


def parts_of(request: Request) -> Sequence[Request]:
    """They are all of one kind."""
    return request.requests if type(request) is Each else (request,)


def kind_of(request: Request) -> type:
    return type(request.requests[0]) if type(request) is Each else type(request)


def setter(request: Request) -> str | None:
    """Whose claim it is, if it is one: something may be at the node afterwards that a clean-up has to follow."""
    return request.owner if type(request) is Vote or type(request) is TakeBack else None


def claims(request: Request) -> Sequence[str]:
    """Whose claims it has."""
    if type(request) is Vote:
        return (request.owner,)
    if type(request) is Free:
        return ()
    return [owner for part in parts_of(request) if (owner := setter(part)) is not None]


def only_cleans(request: Request) -> bool:
    """It must get there, whether anyone waits for its answer or not."""
    kind = kind_of(request)
    return kind is Free or kind is Unlock


def ends(request: Request, inboxes: Inboxes) -> Sequence[str]:
    """The owners who have nothing there afterwards. A waiter keeps its position when an attempt is cleaned up."""
    if type(request) is Free:
        return (request.owner,)
    if not only_cleans(request):
        return ()
    return [part.owner for part in parts_of(request) if _is_last(part, inboxes)]


def _is_last(request: Request, inboxes: Inboxes) -> TypeGuard[Free | Unlock]:
    return type(request) is Free or (type(request) is Unlock and inboxes.find(request.owner) is None)


def follow(clean_up: Request, server: Server, wording: Wording, inboxes: Inboxes, here: Followed | None) -> bool | None:
    """Have it follow the claims of its owner on other connections than this one: `Server.clean_up_elsewhere`.

    Before it leaves itself: a claim that is answered until then has been there before it, and any other is followed.
    """
    assert type(clean_up) is Free or type(clean_up) is Unlock
    pack = functools.partial(wording.in_full, clean_up, b"")
    return server.clean_up_elsewhere(clean_up.owner, pack, _is_last(clean_up, inboxes), here)


# What is asked again --------------------------------------------------------------------------------------------------


def may_repeat(request: Request, fault: Fault, is_repeated: bool) -> bool:
    """As every request to Redis, except a force release: it could end the lease of somebody who got the lock since."""
    return type(request) is not ForceRelease and conversation.may_repeat(fault, is_repeated)


def may_be_late(request: Request, is_wanted: bool) -> bool:
    """That it arrives after later ones of its owner does no harm: its poll still waits for it, or it only cleans up."""
    return is_wanted or only_cleans(request)


def too_few(up: int, asked: int) -> bool:
    """So few that nothing can be decided: those that are down are asked as well, since they may be up again."""
    return up < majority(asked)


# How an answer is read ------------------------------------------------------------------------------------------------


def after_following(where: str, answer: Answer, left: Sequence[bool | None], is_repeated: bool) -> Answer:
    """The answer to clean-ups that had to follow claims on other connections; `left`: whether each could."""
    if isinstance(answer, list):
        return [_after_following(where, *each, is_repeated) for each in zip(answer, left, strict=True)]
    return _after_following(where, answer, left[0], is_repeated)


def _after_following(where: str, answer: Answer, left: bool | None, is_repeated: bool) -> Answer:
    """What was not there may have been freed by the one that followed. If none could, a claim may still come, and has
    to be cleaned up again."""
    if left is None or not isinstance(answer, Freed):
        return answer
    if left:
        return answer._replace(was_held=True)
    if answer.was_held and not is_repeated:
        return answer
    message = "may still receive a request for the lock that was sent before its connection broke"
    return Failed(OutcomeUnknown(f"{where} {message}", {where: message}), was_asked=True)


def both(one: bool | None, other: bool | None) -> bool | None:
    """Whether clean-ups could follow in two places; None where there was nothing to follow."""
    return one if other is None else other if one is None else one and other


def not_answered(request: Request, failed: Failed, left: Sequence[bool | None]) -> Answer:
    """Instead of an answer. A clean-up that has followed is as good as done; where it could not, a claim may come."""
    if True not in left:
        return failed._replace(was_asked=failed.was_asked or False in left)
    answers: list[Answer] = [_FOLLOWED if each else failed for each in left]
    return answers if isinstance(request, Each) else answers[0]


def failed(fault: Fault, was_asked: bool) -> Failed:
    return Failed(fault.error, was_asked, fault.is_permanent, fault.was_refused)


def withdrawn(where: str, trouble: Fault | None) -> Failed:
    """Instead of an answer to what has not left, and never will: its poll is lost without it."""
    message = "got no request, because too many other nodes had already failed"
    fault = trouble or Fault(StoreUnavailable(f"{where} {message}", {where: message}))
    return Failed(fault.error, was_asked=False, was_refused=fault.was_refused)
