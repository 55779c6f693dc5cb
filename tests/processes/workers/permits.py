"""Acquires and releases permits of the semaphore "api" until it is killed, and journals when it believes to have them.

Arguments: number, URL, journal. A line of the journal is `lease slots token from until`: the worker had the lease at
both moments, by the boot clock, and so at all moments in between. Each look at the lease writes another line.
"""

import os
import random
import sys

import gripfast
from gripfast.machine import boottime

number, url, journal = sys.argv[1:]
chance = random.Random(number)
log = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
client = gripfast.connect(url)
semaphore = client.semaphore("api", 3, ttl=0.5)
print("ready")
while True:
    try:
        with semaphore.acquire(chance.choice((1, 1, 2))) as lease:
            slots = ",".join(map(str, lease.slots))
            began = None
            for _ in range(chance.randrange(1, 8)):
                looked = boottime()
                if not lease.held:
                    break
                began = began or looked
                os.write(log, f"{lease.owner} {slots} {lease.token} {began!r} {looked!r}\n".encode())
                lease.lost.wait(0.002)
    except gripfast.LeaseLost:
        pass  # it was stopped for too long
