"""Reads and writes "index" in turn, and writes down from when to when it believed so. Arguments: seed, URL, journal."""

import random
import sys
from pathlib import Path

import gripfast
from gripfast.machine import boottime

seed, url, journal = sys.argv[1:]
chance = random.Random(seed)
client = gripfast.connect(url)
rwlock = client.rwlock("index")
print("ready")
while True:
    is_writer = chance.random() < 0.4
    with (rwlock.write() if is_writer else rwlock.read()).acquire(wait=60) as lease:
        begins = boottime()
        for _ in range(chance.randrange(1, 30)):
            lease.ensure_held()
            with Path(journal).open("a") as file:
                file.write(f"{lease.owner} {int(is_writer)} {lease.token} {begins!r} {boottime()!r}\n")
