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
        asyncio.get_running_loop()  # as every store for asyncio, it is made on its loop
        self._dialer = dialer

    def link(self, address: Address) -> AioLink:
        link = AioLink(self._dialer(address))
        link.clean_up = follows_asking(link.clean_up)
        return link

    def inbox(self) -> Inbox:
        return AioInbox()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def together(self, jobs: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        return list(await asyncio.gather(*jobs))

    def at_end(self) -> None:
        pass
