"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from gripfast.stores import StoreSpec
from gripfast.stores.options import Option

SPEC = StoreSpec(
    "sqlite",
    "gripfast.stores.sqlite.factory",
    schemes=("sqlite",),
    options={
        "synchronous": Option(
            "choice",
            "`full` writes each grant to the disk before it is reported, so tokens survive a power cut; slower",
            ("normal", "full"),
        )
    },
    doctor="gripfast.stores.sqlite.doctor",
)
