"""The blocking colour: a thread waits for its own answers, which kazoo's thread hands in."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

from gripfast.machine import boottime
from gripfast.stores.inboxes import BlockingInbox
from gripfast.stores.zookeeper.looking import Call
from gripfast.stores.zookeeper.session import Session


class BlockingLink:
    def __init__(self, where: str, timeout: float) -> None:
        self.where = where
        self.timeout = timeout
        self.now = boottime

    def inbox(self) -> BlockingInbox:
        return BlockingInbox()

    async def connected(self, session: Session, until: float, or_refused: bool = False) -> bool:
        told: queue.SimpleQueue[None] = queue.SimpleQueue()

        def tell() -> None:
            told.put(None)

        try:
            session.when_connected(tell, or_refused)
            session.start()
            told.get(timeout=max(0.0, until - boottime()))
        except queue.Empty:
            return False
        finally:
            session.no_longer(tell)
        return session.is_connected or not or_refused

    async def ask(self, calls: Sequence[Call], until: float) -> list[Any]:
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        results = [call() for call in calls]
        for result in results:
            result.rawlink(told.put)
        try:
            for _ in results:
                told.get(timeout=max(0.0, until - boottime()))
        except queue.Empty:
            pass
        return [outcome(result) for result in results]


def outcome(result: Any) -> Any:
    if not result.ready():
        return TimeoutError("no answer in time")
    return result.value if result.exception is None else result.exception
