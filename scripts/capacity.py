"""How much a store takes: the figures of docs/operations.md, "Capacity". Give it a URL of a store that nobody uses.

    python scripts/capacity.py redis://localhost:6379

It prints pairs of acquire and release per second, by one process and by several, and, for Redis, what the server's
memory grows by for each lock that is held.
"""

import multiprocessing
import sys
import time

import gripfast

SECONDS = 3.0
PROCESSES = 4
LOCKS = 2000


def pairs(url: str, worker: int) -> int:
    """How many of a lock of its own."""
    done, name = 0, f"capacity:{worker}"
    with gripfast.connect(url) as client:
        client.lock(name).acquire().release()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            client.lock(name).acquire().release()
            done += 1
    return done


def bytes_per_lock(url: str) -> float:
    """Of the server, with the key of the token."""
    import redis

    with gripfast.connect(url) as client, redis.Redis.from_url(url) as server:
        client.lock("capacity:first").acquire().release()
        before = server.info("memory")["used_memory"]
        held = [client.lock(f"capacity:held:{number}").acquire() for number in range(LOCKS)]
        after = server.info("memory")["used_memory"]
        for lease in held:
            lease.release()
    return float(after - before) / LOCKS


def main(url: str) -> None:
    print(f"1 process: {pairs(url, 0) / SECONDS:,.0f} pairs/s")  # noqa: T201
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        done = pool.starmap(pairs, [(url, worker) for worker in range(PROCESSES)])
    print(f"{PROCESSES} processes: {sum(done) / SECONDS:,.0f} pairs/s")  # noqa: T201
    if url.startswith("redis://"):
        print(f"memory of the server: {bytes_per_lock(url):,.0f} bytes for each held lock")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
