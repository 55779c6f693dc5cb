"""What is known about the requests of a client: pure, without socket, clock or thread, for both drivers.

The rules about requests that come late, get lost or are made again stand here, once:

1. A claim is unanswered from before it leaves until its answer was read: `Claims.note`, `Conversation.answered`.
2. An unanswered claim may still take effect. Before its owner counts as having nothing, the session that carried it
   ends: `Claims.take_unanswered`. A session that a proxy hands around is not ours to end.
3. An owner that never made a claim has nothing at the engine: it is not in `Claims`.
4. A claim that was answered with a no leaves nothing there: `Claims.was_refused`.
5. A connection without an answer is closed, and so is every idle one that has not answered since that request began. A
   server that takes no writes is left altogether: `verdict`.
6. What the server has not done may be repeated, up to TRIES times, and what only met a connection that had been
   closed: `may_repeat`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gripfast.stores.sql.faults import broken, no_answer_in
from gripfast.stores.sql.ports import Answer, Dialect, Fault, Refusal, Wire

TRIES = 6
"""Of a request that the server gives up because of others."""


@dataclass(slots=True, eq=False)
class Conversation:
    """On one connection, with one request under way at most."""

    session: int
    birth: str
    is_proxied: bool
    sent: int = 0
    """Requests, counted before they leave."""
    answered: int = 0
    used_at: float = 0.0
    """When it was last answered."""

    @classmethod
    def on(cls, wire: Wire) -> Conversation:
        return cls(wire.session, wire.birth, wire.is_proxied)

    @property
    def is_unanswered(self) -> bool:
        return self.sent > self.answered

    def broken(self, where: str, error: OSError) -> Fault:
        return broken(where, error, was_idle=self.answered > 0)


class UnansweredClaim(NamedTuple):
    conversation: Conversation
    number: int
    """Which of the requests of that conversation is its last one."""

    @property
    def is_over(self) -> bool:
        return self.conversation.answered >= self.number or self.conversation.is_proxied


class Claims(dict[str, list[UnansweredClaim]]):
    """By owner, those of a client, whose threads use it at once. It has every owner that may have something there."""

    def note(self, owner: str, conversation: Conversation, requests: int = 1) -> None:
        """Before the claim leaves, as so many requests. A waiter claims again and again: what was answered goes. In a
        new list, because the thread that cleans up may be taking from the old one; what it takes then is ended twice,
        which does no harm."""
        claim, before = UnansweredClaim(conversation, conversation.sent + requests), self.get(owner)
        left = [each for each in before if each.conversation.answered < each.number] if before else []
        self[owner] = [*left, claim]

    def has_unanswered(self, owner: str) -> bool:
        for conversation, number in self.get(owner, ()):  # noqa: SIM110 - on the way of every release
            if conversation.answered < number:
                return True
        return False

    def take_unanswered(self, owner: str) -> UnansweredClaim | None:
        """One whose session must end; it is noted again if that fails."""
        claims = self.get(owner, [])
        while claims:
            try:
                claim = claims.pop()
            except IndexError:  # another thread was faster
                break
            if not claim.is_over:
                return claim
        return None

    def was_refused(self, owner: str) -> None:
        if not self.has_unanswered(owner):
            self.pop(owner, None)


class Verdict(NamedTuple):
    """On an answer without rows."""

    answer: Refusal | Fault
    closes: bool = False
    """This connection, and those that are as old."""
    leaves_server: bool = False
    """Every connection that nobody uses is closed: the next one may reach the primary."""


def verdict(dialect: Dialect, answer: Refusal | Fault | None, seconds: float) -> Verdict:
    """`seconds` is how long the answer was waited for."""
    if answer is None:
        return Verdict(no_answer_in(dialect.where, seconds), closes=True)
    if isinstance(answer, Fault):
        return Verdict(answer, closes=True)
    if answer.kind in ("gone", "broken_off"):  # on a shared connection as good as one that was found closed
        return Verdict(dialect.refused(answer)._replace(kind="down", was_idle=True))
    is_read_only = answer.kind == "read_only"
    return Verdict(answer, closes=is_read_only, leaves_server=is_read_only)


def may_repeat(answer: Answer | Fault, is_repeatable: bool, tried: int) -> bool:
    """A server that takes no writes has done nothing either, and was left: the next may be the primary."""
    if not isinstance(answer, list) and answer.kind == "read_only":
        return not tried
    return answer.was_idle and is_repeatable if isinstance(answer, Fault) else was_undone(answer)


def was_undone(answer: Answer | Fault) -> bool:
    """By the server, because of others: a deadlock, or transactions that can't be put in order."""
    return isinstance(answer, Refusal) and answer.kind == "retry"
