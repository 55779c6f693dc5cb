"""Works inside `async with lock` for ever: only the loss of the lease ends it."""

import asyncio
import sys

import gripfast


async def main(url: str, name: str, ttl: str) -> None:
    async with gripfast.connect_async(url) as client:
        try:
            async with client.lock(name, ttl=float(ttl)) as lease:
                print("held", lease.token)
                await asyncio.get_running_loop().create_future()
        except gripfast.LeaseLost as error:
            print("lost", lease.lost.is_set(), lease.held, lease.remaining(), error.reason)


asyncio.run(main(*sys.argv[1:]))
