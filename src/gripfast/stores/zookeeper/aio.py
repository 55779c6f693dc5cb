"""The asyncio colour: kazoo's thread tells the loop, which wakes the task; no thread waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from gripfast.machine import boottime
from gripfast.stores.inboxes import AioInbox
from gripfast.stores.zookeeper.blocking import outcome
from gripfast.stores.zookeeper.looking import Call
from gripfast.stores.zookeeper.session import Session


class AioLink:
    def __init__(self, where: str, timeout: float) -> None:
        self.where = where
        self.timeout = timeout
        self.now = boottime
        self._loop = asyncio.get_running_loop()

    def inbox(self) -> AioInbox:
        return AioInbox()

    async def connected(self, session: Session, until: float, or_refused: bool = False) -> bool:
        told = self._loop.create_future()

        def tell() -> None:
            self._tell(told)

        try:
            session.when_connected(tell, or_refused)
            session.start()
            await asyncio.wait([told], timeout=max(0.0, until - boottime()))
        finally:
            session.no_longer(tell)
        return told.done() and (session.is_connected or not or_refused)

    async def ask(self, calls: Sequence[Call], until: float) -> list[Any]:
        results = [call() for call in calls]
        told = self._loop.create_future()
        teller = self._teller(told, len(results))
        for result in results:
            result.rawlink(lambda _: teller())
        await asyncio.wait([told], timeout=max(0.0, until - boottime()))
        return [outcome(result) for result in results]

    def _teller(self, told: asyncio.Future[None], count: int) -> Callable[[], None]:
        """To be called so often, on any thread."""
        left = iter(range(count - 1, -1, -1))

        def tell() -> None:
            if next(left) == 0:
                self._tell(told)

        return tell

    def _tell(self, told: asyncio.Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_set, told)


def _set(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
