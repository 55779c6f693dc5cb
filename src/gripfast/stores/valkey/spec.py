"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from gripfast.stores import StoreSpec
from gripfast.stores.redis.failover import OPTIONS
from gripfast.stores.redis.spec import CAPABILITIES

SPEC = StoreSpec(
    "valkey",
    "gripfast.stores.valkey.factory",
    schemes=("valkey", "valkeys"),
    clients=("valkey.client.Valkey", "valkey.asyncio.client.Valkey"),
    extra="valkey",
    options=OPTIONS,
    more_options="settings of valkey-py's connections, such as `socket_timeout`, `client_name` and `ssl_ca_certs`",
    capabilities=CAPABILITIES,
    doctor="gripfast.stores.valkey.doctor",
    builds_on="redis",
)
