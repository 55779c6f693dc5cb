"""What is special about a Cluster for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gripfast.core.ports import Inbox
from gripfast.stores.cluster.asking import follows_asking
from gripfast.stores.cluster.topology import Address
from gripfast.stores.local_aio import AioInbox
from gripfast.stores.redis.aio import AioLink
from gripfast.stores.redis.dial import Dialer


class AioDriver:
    def __init__(self, dialer: Callable[[Address], Dialer]) -> None:
        self._loop = asyncio.get_running_loop()
        self._dialer = dialer

    def link(self, address: Address) -> AioLink:
        link = AioLink(self._dialer(address))
        link.clean_up = follows_asking(link.clean_up)
        return link

    def inbox(self) -> Inbox:
        return AioInbox()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def together(self, jobs: Sequence[Coroutine[Any, Any, None]], within: float) -> None:
        """Whatever is not done then is given up: a connection may take longer to be made."""
        tasks = [self._loop.create_task(job) for job in jobs]
        try:
            done, _ = await asyncio.wait(tasks, timeout=within)
        finally:
            for task in tasks:
                task.cancel()
        for task in done:
            task.result()

    def at_end(self) -> None:
        pass
