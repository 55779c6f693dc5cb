"""Readers that wait behind a writer enter together: one release lets all of them in, and each is told by a push.

GRIPFAST_CHAOS=long measures how long that takes, on a machine with nothing else to do; `-s` shows the figures.
"""

import asyncio
import statistics

import gripfast
from gripfast.machine import boottime
from support.both_colours import staged
from support.family import LONG
from support.proxy import Proxy
from support.redis_server import shared_server
from support.waiting import auntil

READERS = 100
DELAY = 0.020
"""Seconds, each way."""
ROUNDS = 20 if LONG else 1
SOON = 0.080 if LONG else 1.5
"""Far less than the time after which a waiter asks by itself."""


@staged
async def test_a_hundred_readers_enter_soon_after_the_release_of_the_writer() -> None:
    server = shared_server()
    proxy = Proxy(("127.0.0.1", server.port))
    proxy.delay(DELAY, DELAY)
    try:
        url = f"redis://127.0.0.1:{proxy.port}/0?prefix=readers:"
        async with (
            gripfast.connect_async(url) as client,
            gripfast.connect_async(url) as other,
        ):
            await last_reader_after_release(client, other)  # the server learns the scripts: one round trip more
            took = [await last_reader_after_release(client, other) for _ in range(ROUNDS)]
    finally:
        proxy.close()
    print(
        f"\nthe last of {READERS} readers entered {1000 * statistics.median(took):.0f} ms (median of {ROUNDS}) and "
        f"{1000 * max(took):.0f} ms (at most) after release() was called"
    )
    assert max(took) < SOON


async def last_reader_after_release(client: gripfast.AsyncClient, other: gripfast.AsyncClient) -> float:
    index, entered, go = client.rwlock("index"), list[float](), asyncio.Event()
    lease = await other.rwlock("index").write().acquire()

    async def read() -> None:
        async with index.read():
            entered.append(boottime())
            await go.wait()

    async def all_wait() -> bool:
        info = await other.inspect("index", kind="rwlock")
        return info is not None and info.waiters == READERS

    readers = [asyncio.create_task(read()) for _ in range(READERS)]
    await auntil(all_wait)
    released = boottime()
    await lease.release()
    await auntil(lambda: len(entered) == READERS)
    go.set()
    await asyncio.gather(*readers)
    return max(entered) - released
