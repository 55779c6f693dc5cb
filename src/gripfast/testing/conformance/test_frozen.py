"""Holders and waiters that stand still: an event loop that nobody runs. What is due must come without their help."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import gripfast
from gripfast.testing.fixtures import needs
from gripfast.testing.waiting import auntil, until


class Frozen:
    """An asyncio client whose loop runs only while it is told something."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = gripfast.connect_async(url)

    def acquire(self, ttl: float) -> Any:
        return self.loop.run_until_complete(self._take(ttl))

    def queues_up(self) -> "asyncio.Task[Any]":
        waiting = self.loop.create_task(self._take(30))
        self.loop.run_until_complete(auntil(self._someone_waits))
        return waiting

    async def _take(self, ttl: float) -> Any:
        return await self.client.lock("job", ttl=ttl, renew=False).acquire(wait=20)

    async def _someone_waits(self) -> bool:
        info = await self.client.inspect("job")
        return info is not None and info.waiters > 0


@contextmanager
def frozen(url: str) -> Iterator[Frozen]:
    one = Frozen(url)
    try:
        yield one
    finally:
        one.loop.run_until_complete(one.client.aclose())
        one.loop.close()


def test_a_waiter_gets_the_lock_when_the_lease_of_a_frozen_holder_runs_out(url: str) -> None:
    with frozen(url) as holder, gripfast.connect(url) as client:
        lease = holder.acquire(ttl=0.15)
        info = client.inspect("job")  # None if this machine is so slow that it has run out
        before = time.monotonic()
        client.lock("job", ttl=30).acquire(wait=5).release()  # whose own pace of asking would be 3 s
        assert time.monotonic() - before < max(lease.ttl, info.expires_in if info else 0) + 1


def test_a_frozen_holder_knows_of_its_loss_as_soon_as_it_is_asked(url: str) -> None:
    with frozen(url) as holder, gripfast.connect(url) as client:
        lease = holder.acquire(ttl=0.15)
        with client.lock("job").acquire(wait=5) as later:
            assert (lease.held, lease.remaining(), lease.lost.is_set()) == (False, 0.0, True)
            assert later.token > lease.token


@needs("fair", "waiters_seen")
def test_a_newcomer_does_not_pass_a_queue_that_stands_still(url: str) -> None:
    with frozen(url) as holder, gripfast.connect(url) as client:
        lease = holder.acquire(ttl=0.5)
        waiting = holder.queues_up()
        until(lambda: (info := client.inspect("job")) is None or info.owner != lease.owner)
        assert client.lock("job").try_acquire() is None
        assert holder.loop.run_until_complete(waiting).token > lease.token
