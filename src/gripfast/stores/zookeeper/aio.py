"""Async: kazoo's thread notifies the loop, which wakes the task; no thread waits."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

from gripfast.machine import boottime
from gripfast.stores.local_aio import AioInbox
from gripfast.stores.zookeeper.driver import ANSWER, Listener, Reply, send
from gripfast.stores.zookeeper.requests import Call, leave_silent
from gripfast.stores.zookeeper.session import Session


class AioLink:
    inbox = AioInbox

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._loop = asyncio.get_running_loop()

    async def connected(self, session: Session, until: float, or_refused: bool = False) -> bool:
        notified = self._loop.create_future()

        def notify() -> None:
            self._wake(notified)

        try:
            session.when_connected(notify, or_refused)
            session.start()
            await asyncio.wait([notified], timeout=max(0.0, until - boottime()))
        finally:
            session.no_longer(notify)
        return notified.done() and (session.is_connected or not or_refused)

    async def request(self, calls: Sequence[Call], until: float, *listeners: Listener) -> list[Any]:
        sent = boottime()
        all_answered = self._loop.create_future()
        unanswered = itertools.count(len(calls) - 1, -1)

        def notify(_: Reply) -> None:
            if next(unanswered) == 0:
                self._wake(all_answered)

        replies = send(calls, *listeners, notify)
        await asyncio.wait([all_answered], timeout=max(0.0, until - boottime()))
        if not all_answered.done():
            leave_silent(calls, replies, sent, self.timeout)
        return list(map(ANSWER, replies))

    def _wake(self, future: asyncio.Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_set, future)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
