"""Ends while it still holds a lease in a global, in one of the ways in which a program ends."""

import asyncio
import sys

import gripfast

KEPT: list[object] = []


def end(way: str) -> None:
    if way == "exit":
        sys.exit(3)
    if way == "error":
        raise RuntimeError("on purpose")


def blocking(url: str, name: str) -> None:
    client = gripfast.connect(url)
    lease = client.lock(name).acquire(wait=5)
    KEPT.extend([client, lease])
    print("held", lease.token, lease.owner)


async def on_asyncio(url: str, name: str, way: str) -> None:
    client = gripfast.connect_async(url)
    lease = await client.lock(name).acquire(wait=5)
    KEPT.extend([client, lease])
    print("held", lease.token, lease.owner)
    await asyncio.to_thread(sys.stdin.readline)
    end(way)


def main(colour: str, way: str, url: str, name: str) -> None:
    if colour == "asyncio":
        asyncio.run(on_asyncio(url, name, way))
    else:
        blocking(url, name)
        sys.stdin.readline()
        end(way)


main(*sys.argv[1:])
