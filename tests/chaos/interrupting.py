"""Threads that share a Redlock client, and are interrupted at any instruction, while nodes forget scripts,
hang up, and are slow.

Afterwards nothing may be left at any node long before its ttl: every clean-up got there, whoever had to send it.
`python -m chaos.interrupting SEED…` in `tests/` runs it for these seeds, at length.
"""

import os
import random
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import gripfast
from support.redis_server import RedisServer
from support.redlock_nodes import NODES, redlock_url
from support.sweeping import Interrupter
from support.waiting import until

TARGET = os.path.dirname(os.path.abspath(gripfast.__file__)) + os.sep
PREFIX = "attack:"
TTL = 60.0
GONE_WITHIN = 20.0
"""Seconds after which every node is empty, on a busy machine, too: far less than a ttl."""
NEVER = threading.Event()
"""What happens next comes at random moments."""
OPCODES = 20000
"""Three times as many as a pair has: an interrupt comes at one of them, or at none."""


def attack(servers: Sequence[RedisServer], seed: int, seconds: float) -> list[str]:
    """What is left behind, and where."""
    chance = random.Random(seed)
    url = redlock_url(servers, prefix=PREFIX, request_timeout=1, restart_grace=0)
    with gripfast.connect(url, ttl=TTL) as client:
        over = time.monotonic() + seconds
        threads = [
            threading.Thread(target=_work, args=(client, number, random.Random(f"{seed}-{number}"), over))
            for number in range(chance.randrange(8, 17))
        ]
        for thread in threads:
            thread.start()
        while time.monotonic() < over:
            _disturb(chance.choice(servers), chance)
            NEVER.wait(chance.choice([0.005, 0.02, 0.1]))
        for thread in threads:
            thread.join()
        with suppress(AssertionError):
            until(lambda: _is_used(client) and not left_at(servers), within=GONE_WITHIN)
        return left_at(servers)


def _work(client: gripfast.Client, number: int, chance: random.Random, over: float) -> None:
    while time.monotonic() < over:
        name = f"own-{number}" if chance.random() < 0.7 else f"shared-{chance.randrange(3)}"
        with suppress(KeyboardInterrupt, gripfast.GripfastError):
            with Interrupter(TARGET, chance.randrange(1, OPCODES)):
                _hold(client, name)


def _hold(client: gripfast.Client, name: str) -> None:
    lease = client.lock(name).try_acquire()
    if lease is not None:
        with lease:
            pass


def _disturb(server: RedisServer, chance: random.Random) -> None:
    with server.client() as plain:
        what = chance.randrange(5)
        if what < 2:
            plain.script_flush()
        if what in (2, 3):
            plain.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    if what in (1, 4):
        server.pause()
        NEVER.wait(chance.choice([0.05, 0.2]))
        server.resume()


def _is_used(client: gripfast.Client) -> bool:
    """Somebody has to read what is still to come."""
    with suppress(gripfast.GripfastError):
        client.lock("after").acquire(wait=1).release()
    return True


def left_at(servers: Sequence[RedisServer]) -> list[str]:
    found = []
    for place, server in enumerate(servers):
        with server.client() as plain:
            keys = [key for key in plain.keys(f"{PREFIX}*") if not key.startswith(f"{PREFIX}after".encode())]
            found += [f"node {place}: {key!r} = {plain.get(key)!r}" for key in keys]
    return found


def main(seeds: Sequence[str]) -> int:
    failed = 0
    for seed in seeds:
        servers = [RedisServer() for _ in range(NODES)]
        left = attack(servers, int(seed), seconds=12.0)
        print(f"seed {seed}: {left or 'nothing is left'}", flush=True)
        failed += bool(left)
        for server in servers:
            server.close()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
