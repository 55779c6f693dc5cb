"""What is special about a Cluster for threads."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gripfast.bounded import Calls
from gripfast.core.ports import Inbox
from gripfast.stores.cluster.asking import follows_asking
from gripfast.stores.cluster.topology import Address
from gripfast.stores.listening import Listening, ListeningInbox
from gripfast.stores.redis.blocking import BlockingLink
from gripfast.stores.redis.conversation import IDLE_MOST
from gripfast.stores.redis.dial import Dialer
from gripfast.timed_queue import TimedQueue

Clean = Callable[[str, bytes], bool | None]


class BlockingDriver:
    def __init__(
        self,
        dialer: Callable[[Address], Dialer],
        idle_most: int = IDLE_MOST,
        clean_up: Callable[[Address], Clean] | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`clean_up`: where the claims were sent whose clean-ups are sent here, by node."""
        self._dialer = dialer
        self._idle_most = idle_most
        self._clean_up = clean_up
        self.at_end = at_end
        self._nowhere = Listening()
        self._calls: Calls[Any] = Calls(lambda result: None)

    def link(self, address: Address) -> BlockingLink:
        chosen = None if self._clean_up is None else self._clean_up(address)
        link = BlockingLink(self._dialer(address), self._idle_most, chosen)
        if chosen is None:
            link.clean_up = follows_asking(link.clean_up)
        return link

    def inbox(self) -> Inbox:
        """It listens where it is told to, before its owner waits (`Link.hears`)."""
        return ListeningInbox(self._nowhere)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this driver blocks

    async def together(self, jobs: Sequence[Coroutine[Any, Any, None]], within: float) -> None:
        """The first on this thread. Nothing that blocks here takes longer than it may, so all of them end in time."""
        done: TimedQueue[Any] = TimedQueue()
        others = [self._calls.begin(functools.partial(_run, job), done.put) for job in jobs[1:]]
        _run(jobs[0])
        for _ in others:
            done.get(math.inf)
        for call in others:
            call.outcome()


def _run(job: Coroutine[Any, Any, None]) -> None:
    """It blocks, and never suspends."""
    try:
        job.send(None)
    except StopIteration:
        return
    raise RuntimeError("a blocking request has suspended")
