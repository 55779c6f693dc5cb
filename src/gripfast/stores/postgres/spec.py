"""What Gripfast knows about this engine before it is used."""

from __future__ import annotations

from gripfast.stores import StoreSpec
from gripfast.stores.sql.spec import OPTIONS

SPEC = StoreSpec(
    "postgres",
    "gripfast.stores.postgres.factory",
    schemes=("postgresql", "postgres"),
    names_driver=True,
    several_hosts=True,
    extra="postgres",
    options=OPTIONS,
    more_options="libpq's keywords, such as `sslmode`, `connect_timeout` and `application_name`",
    builds_on="sql",
    doctor="gripfast.stores.postgres.doctor",
)
