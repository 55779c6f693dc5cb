"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from dataclasses import replace

from gripfast.stores import StoreSpec
from gripfast.stores.redis.failover import OPTIONS
from gripfast.stores.redis.spec import CAPABILITIES as OF_ONE_SERVER
from gripfast.stores.redis.spec import MORE_OPTIONS

CAPABILITIES = replace(OF_ONE_SERVER, lazy_release=False)
"""A slot may move before the answer to a release is read: then it has to be sent to another node."""

SPEC = StoreSpec(
    "cluster",
    "gripfast.stores.cluster.factory",
    schemes=("redis+cluster", "rediss+cluster", "valkey+cluster", "valkeys+cluster"),
    several_hosts=True,
    clients=(
        "redis.cluster.RedisCluster",
        "redis.asyncio.cluster.RedisCluster",
        "valkey.cluster.ValkeyCluster",
        "valkey.asyncio.cluster.ValkeyCluster",
    ),
    extra="redis",
    options=OPTIONS,
    more_options=f"{MORE_OPTIONS}, for every node",
    capabilities=None,  # once() depends on `replicas`
    doctor="gripfast.stores.cluster.doctor",
    builds_on="redis",
)
