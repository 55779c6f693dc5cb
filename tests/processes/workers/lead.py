"""A candidate: while it leads, it writes into a journal when it looked at its term, and found it held.

A line has the candidate's number, the token, and the moments before and after the look. The monotonic clock of Linux is
the same in all processes.
"""

import asyncio
import os
import sys
import time

import gripfast

PACE = 0.005


class Journal:
    def __init__(self, number: str, path: str) -> None:
        self._number = number
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def look(self, term: gripfast.Lease | gripfast.AsyncLease) -> None:
        before = time.monotonic()
        term.ensure_held()
        os.write(self._file, f"{self._number} {term.token} {before} {time.monotonic()}\n".encode())


def main(number: str, url: str, name: str, ttl: str, path: str) -> None:
    """Sync and async in turn."""
    journal = Journal(number, path)
    if int(number) % 2:
        asyncio.run(run_async(journal, url, name, float(ttl)))
        return

    def serve(term: gripfast.Lease) -> None:
        while True:
            journal.look(term)
            term.lost.wait(PACE)

    client = gripfast.connect(url)
    print("ready")
    client.election(name, number, ttl=float(ttl)).run(serve)


async def run_async(journal: Journal, url: str, name: str, ttl: float) -> None:
    async def serve(term: gripfast.AsyncLease) -> None:
        while True:
            journal.look(term)
            await term.lost.wait(PACE)

    async with gripfast.connect_async(url) as client:
        print("ready")
        await client.election(name, journal._number, ttl=ttl).run(serve)


main(*sys.argv[1:])
