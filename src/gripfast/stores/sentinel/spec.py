"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from gripfast.stores import StoreSpec
from gripfast.stores.options import Option
from gripfast.stores.redis.failover import OPTIONS
from gripfast.stores.redis.spec import MORE_OPTIONS

SPEC = StoreSpec(
    "sentinel",
    "gripfast.stores.sentinel.factory",
    schemes=("redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel"),
    several_hosts=True,
    clients=(
        "redis.sentinel.Sentinel",
        "redis.asyncio.sentinel.Sentinel",
        "valkey.sentinel.Sentinel",
        "valkey.asyncio.sentinel.Sentinel",
    ),
    pools=(
        "redis.sentinel.SentinelConnectionPool",
        "redis.asyncio.sentinel.SentinelConnectionPool",
        "valkey.sentinel.SentinelConnectionPool",
        "valkey.asyncio.sentinel.SentinelConnectionPool",
    ),
    extra="redis",
    options={
        **OPTIONS,
        "sentinel_username": Option("text", "the user name for the Sentinels themselves, if they want one"),
        "sentinel_password": Option("text", "the password for the Sentinels themselves, if they want one"),
        "sentinel_ssl": Option("bool", "whether the Sentinels use TLS; as the servers do, if it is not given"),
    },
    more_options=f"{MORE_OPTIONS}, for the servers; with `sentinel_` before them, for the Sentinels",
    capabilities=None,  # once() depends on `replicas`
    doctor="gripfast.stores.sentinel.doctor",
    builds_on="redis",
)
