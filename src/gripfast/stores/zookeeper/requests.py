"""How the store waits for ZooKeeper: what sync and async offer it, and what becomes of requests without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kazoo.exceptions import ConnectionLoss

from gripfast.core.ports import Inbox, Unreachable, to_raise, unreachable
from gripfast.machine import boottime
from gripfast.stores.zookeeper import protocol
from gripfast.stores.zookeeper.driver import Listener, Reply
from gripfast.stores.zookeeper.session import Session

Call = tuple[Session, Any]
"""A request, as kazoo's `serialization` has it, and the session that it is sent in."""


class Link(Protocol):
    timeout: float

    def inbox(self) -> Inbox: ...

    async def connected(self, session: Session, until: float, or_refused: bool = False) -> bool:
        """Whether there is a connection, once there is one or it is too late; with `or_refused` also once all servers
        have refused."""
        ...

    async def request(self, calls: Sequence[Call], until: float, *listeners: Listener) -> list[Any]:
        """The answer to each, or the exception it ended with; NO_ANSWER if there was none in time. They leave in order.
        The listeners get every reply on kazoo's thread, even if the caller has gone."""
        ...


def leave_silent(calls: Sequence[Call], replies: Sequence[Reply], sent: float, timeout: float) -> None:
    """Leave connections on which nothing came, if they had enough time: a deadline that was near proves nothing."""
    if boottime() - sent >= timeout / 2:
        for session in {call[0] for call, reply in zip(calls, replies, strict=True) if not reply.is_answered}:
            session.leave_if_silent(sent)


async def retried(link: Link, calls: Sequence[Call], until: float) -> list[Any]:
    """Sent once more if the connection broke meanwhile: for what may be repeated, in one session."""
    answers = await link.request(calls, until)
    was_lost = any(isinstance(answer, ConnectionLoss) for answer in answers)
    if was_lost and await link.connected(calls[0][0], until):
        answers = await link.request(calls, until)
    return answers


def not_connected(session: Session) -> Unreachable:
    """Nothing was sent: all servers refused, or the time is over."""
    return unreachable(protocol.not_connected(session.where, session.troubles), was_sent=False, was_refused=True)


def failed(session: Session, error: BaseException, may_raise: bool = False) -> Unreachable:
    fault = protocol.fault(session.where, error)
    if may_raise and protocol.is_permanent(error):
        raise to_raise(fault)
    return unreachable(fault)
