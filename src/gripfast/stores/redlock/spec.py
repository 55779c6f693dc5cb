"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from gripfast.core.redlock.store import CAPABILITIES
from gripfast.stores import StoreSpec
from gripfast.stores.options import Option
from gripfast.stores.redis.spec import MORE_OPTIONS

SPEC = StoreSpec(
    "redlock",
    "gripfast.stores.redlock.factory",
    schemes=("redlock", "redlocks"),
    several_hosts=True,
    takes_lists=True,
    extra="redis",
    options={
        "max_ttl": Option("seconds", "the largest ttl that a lock may have; set the same value in all clients"),
        "restart_grace": Option(
            "seconds", "how long a node that restarted without its data must not vote; at least `max_ttl`"
        ),
    },
    more_options=f"{MORE_OPTIONS}, for every node",
    capabilities=CAPABILITIES,
    builds_on="redis",
    doctor="gripfast.stores.redlock.doctor",
)
