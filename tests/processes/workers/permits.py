"""Acquires and releases permits of the semaphore "api" until it is killed, and journals when it believes to have them.

Arguments: number, URL, journal, ttl. Times are of the boot clock. The lines of the journal:

- `queued number owner asked at`: it had asked at the first moment, and was in the queue at the second.
- `had number owner slots token asked from until`: it had the lease at the last two moments, and so at all moments in
  between. Each look at the lease writes another line.
"""

import asyncio
import logging
import os
import random
import sys

import gripfast
from gripfast.machine import boottime

number, url, journal, ttl = sys.argv[1:]
chance = random.Random(number)
log = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def write(*words: object) -> None:
    os.write(log, (" ".join(map(str, words)) + "\n").encode())


class Queued(logging.Handler):
    """Hears of the first answer that says: you have to wait."""

    asked = 0.0
    owner = ""

    def emit(self, record: logging.LogRecord) -> None:
        if "waiting as owner" in record.msg and record.gripfast_owner != self.owner:  # type: ignore[attr-defined]
            self.owner = record.gripfast_owner  # type: ignore[attr-defined]
            write("queued", number, self.owner, repr(self.asked), repr(boottime()))


queued = Queued()
logging.getLogger("gripfast.lease").addHandler(queued)
logging.getLogger("gripfast.lease").setLevel(logging.DEBUG)


class Looks:
    def __init__(self, lease: gripfast.Lease | gripfast.AsyncLease) -> None:
        self.lease = lease
        self._slots = ",".join(map(str, lease.slots))
        self._began: float | None = None

    def look(self) -> bool:
        looked = boottime()
        if not self.lease.held:
            return False
        self._began = self._began or looked
        owner, token = self.lease.owner, self.lease.token
        write("had", number, owner, self._slots, token, repr(queued.asked), repr(self._began), repr(looked))
        return True


def work() -> None:
    semaphore = gripfast.connect(url).semaphore("api", 3, ttl=float(ttl))
    print("ready")
    while True:
        try:
            queued.asked = boottime()
            with semaphore.acquire(chance.choice((1, 1, 2))) as lease:
                looks = Looks(lease)
                for _ in range(chance.randrange(1, 8)):
                    if not looks.look():
                        break
                    lease.lost.wait(0.002)
        except gripfast.LeaseLost:
            pass  # it was stopped for too long


async def work_async() -> None:
    semaphore = gripfast.connect_async(url).semaphore("api", 3, ttl=float(ttl))
    print("ready")
    while True:
        try:
            queued.asked = boottime()
            async with semaphore.acquire(chance.choice((1, 1, 2))) as lease:
                looks = Looks(lease)
                for _ in range(chance.randrange(1, 8)):
                    if not looks.look():
                        break
                    await lease.lost.wait(0.002)
        except gripfast.LeaseLost:
            pass


if int(number) % 2:
    asyncio.run(work_async())
else:
    work()
