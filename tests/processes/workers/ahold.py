"""Holds a lock, and when told to, reports what its lease says about itself. asyncio API."""

import asyncio
import sys

import gripfast


async def main(url: str, name: str, ttl: str) -> None:
    orders: asyncio.Queue[str] = asyncio.Queue()
    asyncio.get_running_loop().add_reader(sys.stdin, lambda: orders.put_nowait(sys.stdin.readline()))
    async with gripfast.connect_async(url) as client:
        lease = await client.lock(name, ttl=float(ttl)).acquire(wait=10)
        print("held", lease.token)
        await orders.get()
        lost, held, remaining = lease.lost.is_set(), lease.held, lease.remaining()
        try:
            lease.ensure_held()
        except gripfast.LeaseLost as error:
            print("lost", lost, held, remaining, error.reason)
        else:
            print("kept", lost, held, remaining)
        await orders.get()


asyncio.run(main(*sys.argv[1:]))
