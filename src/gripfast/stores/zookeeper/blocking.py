"""Sync: a thread waits for its own answers, which kazoo's thread hands in."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty
from typing import Any

from gripfast.machine import boottime
from gripfast.stores.inboxes import BlockingInbox
from gripfast.stores.zookeeper.driver import ANSWER, Listener, send
from gripfast.stores.zookeeper.requests import Call, leave_silent
from gripfast.stores.zookeeper.session import Session
from gripfast.timed_queue import TimedQueue


class BlockingLink:
    inbox = BlockingInbox

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout

    async def connected(self, session: Session, until: float, or_refused: bool = False) -> bool:
        notified: TimedQueue[None] = TimedQueue()

        def notify() -> None:
            notified.put(None)

        try:
            session.when_connected(notify, or_refused)
            session.start()
            notified.get(until - boottime())
        except Empty:
            return False
        finally:
            session.no_longer(notify)
        return session.is_connected or not or_refused

    async def request(self, calls: Sequence[Call], until: float, *listeners: Listener) -> list[Any]:
        sent = boottime()
        answered: TimedQueue[Any] = TimedQueue()
        replies = send(calls, *listeners, answered.put)
        try:
            for _ in replies:
                answered.get(until - boottime())
        except Empty:
            leave_silent(calls, replies, sent, self.timeout)
        return list(map(ANSWER, replies))
