"""Semaphores and read/write locks on Redis: free ones, and a semaphore that more want than it has permits."""

from __future__ import annotations

from bench import permits
from bench.hand_off import ACQUIRED, PROCESSES
from bench.permits import LIMIT
from bench.promise import at_least, at_most, faster
from bench.redis.hand_off import SECTION, contestant
from bench.redis.pair import BARE, bare, peer
from bench.redis.permit_peers import PY_REDIS_SEMAPHORE, RW_LOCKS, SEMAPHORES
from bench.redis.server import redis_server
from bench.redis.wire import NEEDS
from bench.scenario import CONTENDED, Contestant, Scenario
from bench.timing import MICROSECONDS

LOCK = permits.lock("redis")
SEMAPHORE = permits.semaphore("redis")
READ, WRITE = permits.read_lock("redis"), permits.write_lock("redis")

REDIS_SEMAPHORE = Scenario(
    name="redis semaphore pair",
    about=f"one of {LIMIT} permits, acquired and released, beside a lock, a recipe, another library and a bare socket",
    contestants=(Contestant(BARE, bare, NEEDS), *map(peer, (LOCK, SEMAPHORE, *SEMAPHORES))),
    figure=MICROSECONDS,
    against=LOCK.name,
    promises=(faster(SEMAPHORE.name, 1, MICROSECONDS, than=PY_REDIS_SEMAPHORE.name),),
    server=redis_server,
)

REDIS_RWLOCK = Scenario(
    name="redis read/write pair",
    about="a free read/write lock, acquired and released, beside a lock, another library and a bare socket",
    contestants=(Contestant(BARE, bare, NEEDS), *map(peer, (LOCK, READ, WRITE, *RW_LOCKS))),
    figure=MICROSECONDS,
    against=LOCK.name,
    promises=tuple(
        faster(own.name, 1, MICROSECONDS, than=other.name) for own, other in zip((READ, WRITE), RW_LOCKS, strict=True)
    ),
    server=redis_server,
)

REDIS_SEMAPHORE_PROCESSES = Scenario(
    name=f"redis semaphore, {PROCESSES} processes",
    about=f"{PROCESSES} processes that want one of {LIMIT} permits all the time, and keep it for 1 ms",
    contestants=tuple(contestant(make, SECTION) for make in (SEMAPHORE, *SEMAPHORES)),
    figure=ACQUIRED,
    against=PY_REDIS_SEMAPHORE.name,
    promises=(
        at_least(SEMAPHORE.name, 1, ACQUIRED, against=PY_REDIS_SEMAPHORE.name),
        at_most(SEMAPHORE.name, 10, "workers apart %"),
    ),
    charted=("wait p99 ms", "workers apart %"),
    rounds=5,
    pinned=False,
    server=redis_server,
    slower=CONTENDED,
)
