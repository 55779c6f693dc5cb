"""Sync: a thread waits for its own answers, which kazoo's thread hands in."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

from gripfast.machine import boottime
from gripfast.stores.inboxes import BlockingInbox
from gripfast.stores.zookeeper.driver import ANSWER, Listener, send
from gripfast.stores.zookeeper.requests import Call, leave_silent
from gripfast.stores.zookeeper.session import Session


class BlockingLink:
    inbox = BlockingInbox

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout

    async def connected(self, session: Session, until: float, or_refused: bool = False) -> bool:
        notified: queue.SimpleQueue[None] = queue.SimpleQueue()

        def notify() -> None:
            notified.put(None)

        try:
            session.when_connected(notify, or_refused)
            session.start()
            notified.get(timeout=max(0.0, until - boottime()))
        except queue.Empty:
            return False
        finally:
            session.no_longer(notify)
        return session.is_connected or not or_refused

    async def request(self, calls: Sequence[Call], until: float, *listeners: Listener) -> list[Any]:
        sent = boottime()
        answered: queue.SimpleQueue[Any] = queue.SimpleQueue()
        replies = send(calls, *listeners, answered.put)
        try:
            for _ in replies:
                answered.get(timeout=max(0.0, until - boottime()))
        except queue.Empty:
            leave_silent(calls, replies, sent, self.timeout)
        return list(map(ANSWER, replies))
