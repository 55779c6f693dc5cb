"""Holds very many leases of one client for two ttl, and tells how many it lost and how many threads that took."""

import asyncio
import sys
import threading

import gripfast


def report(before: int, leases: list[gripfast.Lease] | list[gripfast.AsyncLease], ttl: float) -> None:
    lost = sum(lease.lost.is_set() or not lease.held for lease in leases)
    stale = sum(lease.remaining() < ttl / 3 for lease in leases)
    print("kept", len(leases) - lost, lost, stale, before, threading.active_count())


def blocking(url: str, ttl: float, count: int) -> None:
    with gripfast.connect(url) as client:
        client.lock("first", ttl=ttl).acquire().release()
        before = threading.active_count()
        leases = [client.lock(f"many-{number}", ttl=ttl).acquire() for number in range(count)]
        print("holding", len(leases))
        assert not leases[0].lost.wait(2 * ttl)
        report(before, leases, ttl)


async def on_asyncio(url: str, ttl: float, count: int) -> None:
    async with gripfast.connect_async(url) as client:
        await (await client.lock("first", ttl=ttl).acquire()).release()
        before = threading.active_count()
        leases = [await client.lock(f"many-{number}", ttl=ttl).acquire() for number in range(count)]
        print("holding", len(leases))
        assert not await leases[0].lost.wait(2 * ttl)
        report(before, leases, ttl)


if sys.argv[1] == "blocking":
    blocking(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
else:
    asyncio.run(on_asyncio(sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))
print("closed")
