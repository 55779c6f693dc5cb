"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from gripfast.core.ports import Capabilities
from gripfast.stores import StoreSpec
from gripfast.stores.redis.failover import OPTIONS

MORE_OPTIONS = "settings of redis-py's connections, such as `socket_timeout`, `client_name` and `ssl_ca_certs`"
CAPABILITIES = Capabilities(
    fair=True,
    push=True,
    lists=True,
    waiters_seen=True,
    processes=True,
    tells_reason=True,
    keeps=True,
    once=True,
    hands_over=True,
    lazy_release=True,
    semaphores=True,
    rwlocks=True,
    downgrades=True,
)
SPEC = StoreSpec(
    "redis",
    "gripfast.stores.redis.factory",
    schemes=("redis", "rediss", "unix"),
    clients=("redis.client.Redis", "redis.asyncio.client.Redis"),
    extra="redis",
    options=OPTIONS,
    more_options=MORE_OPTIONS,
    capabilities=CAPABILITIES,
    doctor="gripfast.stores.redis.doctor",
)
