"""The job of `sync_job.py` in asyncio: three tasks want one lock, and get it one at a time, first come, first served.

Prints:
    a starts
    a ends
    b starts
    b ends
    c starts
    c ends
"""

import asyncio

import gripfast


async def job(name: str) -> None:
    async with gripfast.async_lock("report"):
        print(name, "starts")
        await asyncio.sleep(0.01)
        print(name, "ends")


async def main() -> None:
    await asyncio.gather(job("a"), job("b"), job("c"))


asyncio.run(main())
