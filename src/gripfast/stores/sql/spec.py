"""What Gripfast knows about SQL before an engine is used: the options that all databases take, and that engines of
SQLAlchemy are accepted, each for the database that it connects to."""

from __future__ import annotations

from collections.abc import Mapping

from gripfast.stores import StoreSpec
from gripfast.stores.options import Option

OPTIONS: Mapping[str, Option] = {
    "mode": Option(
        "choice", "the kind of lock: a lease in a table, a row lock or an advisory lock", ("lease", "row", "advisory")
    ),
    "max_connections": Option(
        "number", "`row` and `advisory` mode: how many locks a client may hold or wait for; each uses a connection"
    ),
}
SPEC = StoreSpec(
    "sql",
    "gripfast.stores.sql.engines",
    options=OPTIONS,
    clients=("sqlalchemy.engine.base.Engine", "sqlalchemy.ext.asyncio.engine.AsyncEngine"),
)
