"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from gripfast.core.ports import Capabilities
from gripfast.stores import StoreSpec

CAPABILITIES = Capabilities(
    fair=True,
    push=True,
    lists=True,
    waiters_seen=True,
    tells_reason=True,
    semaphores=True,
    rwlocks=True,
    downgrades=True,
    keeps=True,
    once=True,
    hands_over=True,
)
SPEC = StoreSpec(
    "memory",
    "gripfast.stores.memory.factory",
    schemes=("memory",),
    capabilities=CAPABILITIES,
    doctor="gripfast.stores.memory.doctor",
)
