"""A process that adds one to a counter in Redis: it reads, waits for an order (and may be paused meanwhile), writes.

Started with the URL of the server, the names of lock and counter, and "fenced" or "bare".
"""

import contextlib
import sys

import redis

import gripfast
from gripfast.fencing import write

url, name, how = sys.argv[1:]

with gripfast.connect(url) as locks, redis.Redis.from_url(url) as data:
    # The lease is lost by the time the block ends. A writer that is paused after its last check can't know.
    with contextlib.suppress(gripfast.LeaseLost), locks.lock(name, ttl=0.5) as lease:
        value = int(data.get(name) or 0)
        print("read", value, flush=True)
        sys.stdin.readline()
        try:
            if how == "fenced":
                write(data, name, lease.token, ("SET", name, value + 1))
            else:
                data.set(name, value + 1)
            print("written", flush=True)
        except gripfast.StaleToken as refusal:
            print("refused", refusal.token == lease.token, refusal.seen > lease.token, flush=True)
