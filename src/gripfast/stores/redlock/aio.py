"""The asyncio driver: one connection per node that all tasks share, and one more for notifications when somebody waits.

There is no task per node: whoever reads a reply, on the loop, tells the ballot.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from gripfast.machine import boottime
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.local_aio import AioInbox
from gripfast.stores.redis.aio import AioLink
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redlock.protocol import Wording
from gripfast.stores.redlock.shared import SharedNodes
from gripfast.stores.redlock.talk import Health, Node, NodeTalk


class AioNodes(SharedNodes):
    inbox = AioInbox

    def __init__(self, dialers: Sequence[Dialer], wording: Wording) -> None:
        self._loop = loop = asyncio.get_running_loop()
        inboxes, down = Inboxes(), set[Health]()
        self._links = [AioLink(dialer, inboxes, makes_sure=True) for dialer in dialers]
        self._listening_takes = max(dialer.timeout for dialer in dialers)
        nodes, talks = [], []
        for place, link in enumerate(self._links):
            node = Node(place, link.server, loop, boottime, down)
            node.notifications = link.notifications
            nodes.append(node)
            talks.append(NodeTalk(node, link.requests, wording, inboxes, loop))
            node.probe = talks[-1].dial
        super().__init__(nodes, talks, wording, inboxes, down, loop.create_future)

    async def listen(self) -> None:
        opening = self._begin_to_listen()
        if opening:
            await asyncio.wait(opening, timeout=self._listening_takes)

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def chance(self) -> float:
        return random.random()

    def close_soon(self) -> None:
        """From any thread, and also when the loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self.close_now)
        except RuntimeError:
            self._is_closed = True
            for link in self._links:
                link.close_soon()
