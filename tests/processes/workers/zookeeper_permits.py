"""Acquires and releases permits of the semaphore "api" until it is killed, and journals when it believes to have them.

Arguments: number, URL, journal, ttl. A line of the journal is `lease slots token place from until`: the worker had the
lease at both moments, by the boot clock, and so at all moments in between. Each look at the lease writes another line.
The place is that of its arrival in the queue: the number of its node.
"""

import os
import random
import sys

import gripfast
from gripfast.machine import boottime

number, url, journal, ttl = sys.argv[1:]
chance = random.Random(number)
log = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
client = gripfast.connect(url)
store = client._store()
semaphore = client.semaphore("api", 3, ttl=float(ttl))
print("ready")
while True:
    try:
        with semaphore.acquire(chance.choice((1, 1, 2))) as lease:
            slots = ",".join(map(str, lease.slots))
            place = store.nodes[lease.owner].path.rpartition("_")[2]  # type: ignore[attr-defined]
            began = None
            for _ in range(chance.randrange(1, 8)):
                looked = boottime()
                if not lease.held:
                    break
                began = began or looked
                line = f"{lease.owner} {slots} {lease.token} {place} {began!r} {looked!r}\n"
                os.write(log, line.encode())
                lease.lost.wait(0.005)
    except gripfast.LeaseLost:
        pass  # it was stopped for too long
