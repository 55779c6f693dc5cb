"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from gripfast.core.ports import Capabilities
from gripfast.stores import StoreSpec
from gripfast.stores.options import Option

CAPABILITIES = Capabilities(
    fair=False,
    push=False,
    session=False,
    durable_fence=False,
    lists=True,
    waiters_seen=False,
    processes=True,
    sees_death=False,
    tells_reason=True,
)
SPEC = StoreSpec(
    "files",
    "gripfast_files.factory",
    schemes=("files",),
    options={"pace": Option("seconds", "how long a waiter waits before it looks again")},
    capabilities=CAPABILITIES,
    doctor="gripfast_files.doctor",
)
