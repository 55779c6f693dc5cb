"""A program that locks through redis-py keeps its code and gets Gripfast's lock (needs a Redis server).

Prints:
    mine: True
    theirs: False
    the token grew: True
"""

import os

import redis

from gripfast.compat.redis import Lock

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))

with client.lock("example:report", lock_class=Lock) as lock:
    print("mine:", lock.owned())
    print("theirs:", client.lock("example:report").acquire(blocking=False))
    before = lock.fencing_token

with client.lock("example:report", timeout=5, lock_class=Lock) as lock:
    print("the token grew:", lock.fencing_token > before)
