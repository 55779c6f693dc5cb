"""Every scenario there is. A new one joins by an entry here."""

from bench.embedded import EMBEDDED_PAIR, EMBEDDED_PAIR_ASYNC
from bench.etcd.hand_off import ETCD_HAND_OFF
from bench.etcd.pair import ETCD_DISK, ETCD_PAIR, ETCD_PAIR_ASYNC, ETCD_TASKS
from bench.hand_off import EMBEDDED_HAND_OFF
from bench.memory import MEMORY_PAIR
from bench.redis.far import REDIS_FAR
from bench.redis.hand_off import REDIS_HAND_OFF, REDIS_SECTION
from bench.redis.leases import REDIS_LEASES, REDIS_MEMORY
from bench.redis.observed import REDIS_OBSERVERS
from bench.redis.pair import REDIS_PAIR, REDIS_PAIR_ASYNC, REDIS_TASKS
from bench.redis.permits import REDIS_RWLOCK, REDIS_SEMAPHORE, REDIS_SEMAPHORE_PROCESSES
from bench.redis.replicated import REDIS_REPLICATED
from bench.redis.waiters import REDIS_WAITERS
from bench.redlock.hand_off import REDLOCK_HAND_OFF
from bench.redlock.pair import REDLOCK_DISK, REDLOCK_PAIR
from bench.redlock.rounds import REDLOCK_ROUNDS
from bench.redlock.stopped import REDLOCK_STOPPED
from bench.scenario import Scenario
from bench.sql.hand_off import SQL_HAND_OFF_MARIA, SQL_HAND_OFF_POSTGRES
from bench.sql.pair import SQL_PAIR_MARIA, SQL_PAIR_POSTGRES
from bench.sql.processes import SQL_PROCESSES_MARIA, SQL_PROCESSES_POSTGRES
from bench.sql.waiters import SQL_WAITERS_MARIA, SQL_WAITERS_POSTGRES
from bench.sql.waiting import SQL_WAITING_MARIA, SQL_WAITING_POSTGRES
from bench.start import START_EMBEDDED, START_IMPORT, START_REDIS
from bench.zookeeper.hand_off import ZOOKEEPER_HAND_OFF
from bench.zookeeper.pair import ZOOKEEPER_DISK, ZOOKEEPER_PAIR, ZOOKEEPER_PAIR_ASYNC
from bench.zookeeper.permits import ZOOKEEPER_RWLOCK, ZOOKEEPER_SEMAPHORE

CATALOGUE: tuple[Scenario, ...] = (
    START_IMPORT,
    START_EMBEDDED,
    START_REDIS,
    EMBEDDED_PAIR,
    EMBEDDED_PAIR_ASYNC,
    MEMORY_PAIR,
    EMBEDDED_HAND_OFF,
    REDIS_PAIR,
    REDIS_PAIR_ASYNC,
    REDIS_TASKS,
    REDIS_FAR,
    REDIS_REPLICATED,
    REDIS_OBSERVERS,
    REDIS_HAND_OFF,
    REDIS_SECTION,
    REDIS_WAITERS,
    REDIS_LEASES,
    REDIS_MEMORY,
    REDIS_SEMAPHORE,
    REDIS_RWLOCK,
    REDIS_SEMAPHORE_PROCESSES,
    REDLOCK_PAIR,
    REDLOCK_STOPPED,
    REDLOCK_HAND_OFF,
    REDLOCK_ROUNDS,
    REDLOCK_DISK,
    SQL_PAIR_POSTGRES,
    SQL_PAIR_MARIA,
    SQL_HAND_OFF_POSTGRES,
    SQL_HAND_OFF_MARIA,
    SQL_WAITING_POSTGRES,
    SQL_WAITING_MARIA,
    SQL_WAITERS_POSTGRES,
    SQL_WAITERS_MARIA,
    SQL_PROCESSES_POSTGRES,
    SQL_PROCESSES_MARIA,
    ZOOKEEPER_PAIR,
    ZOOKEEPER_PAIR_ASYNC,
    ZOOKEEPER_DISK,
    ZOOKEEPER_HAND_OFF,
    ZOOKEEPER_SEMAPHORE,
    ZOOKEEPER_RWLOCK,
    ETCD_PAIR,
    ETCD_PAIR_ASYNC,
    ETCD_TASKS,
    ETCD_DISK,
    ETCD_HAND_OFF,
)
