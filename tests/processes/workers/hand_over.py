"""Detaches a lock, and adopts others, as told by lines on standard input. Arguments: URL, journal.

`detach` acquires the lock "job", looks at it for a moment, detaches it and prints its text. `adopt TEXT` adopts it, and
prints `adopted` or `refused`. `work` looks at the lease until it is released by `release`, or lost.
A line of the journal is `owner from until`: this process had the lease at both moments, by the boot clock.
"""

import os
import sys

import gripfast
from gripfast.machine import boottime

TTL = 1.0

url, journal = sys.argv[1:]
log = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
client = gripfast.connect(url)
began: dict[str, float] = {}


def look(lease: gripfast.Lease) -> None:
    looked = boottime()
    if lease.held:
        began.setdefault(lease.owner, looked)
        os.write(log, f"{lease.owner} {began[lease.owner]!r} {looked!r}\n".encode())


lease: gripfast.Lease | None = None
print("ready")
for line in sys.stdin:
    order, *text = line.split()
    if order == "detach":
        lease = client.lock("job", ttl=TTL).acquire()
        for _ in range(10):
            look(lease)
        print("detached", lease.detach())
    elif order == "adopt":
        try:
            lease = client.adopt(text[0])
            look(lease)
            print("adopted", lease.token)
        except gripfast.LeaseLost:
            lease = None
            print("refused")
    elif order == "work":
        assert lease is not None
        while True:
            look(lease)
            lease.lost.wait(0.001)
    elif lease is not None:
        look(lease)
        lease.release()
        print("released")
