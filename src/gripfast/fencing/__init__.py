"""Check fencing tokens where you write, to reject a late writer.

A lease can end while its holder is paused between its last check and its write. No lock can prevent that late write.
The resource (the database, file or service that is written to) can, because the next holder's token is larger. So the
writer sends its token with the write, and the resource rejects a token that is smaller than the largest it has seen:

    with connection.transaction():                       # the caller's own, of psycopg here
        guard(connection, "invoices", lease.token)       # StaleToken: roll back, write nothing
        connection.execute("UPDATE invoices SET …")

    write(redis_client, "invoices", lease.token, ("SET", "invoice:7", "paid"))      # or StaleToken

`guard` keeps the largest token in the database that you write to (PostgreSQL, MariaDB/MySQL, SQLite), in the same
transaction as the write. `async_guard` is the same for async connections. `schema` returns the SQL of their table.
`write` is for Redis, which has no transaction to join: the check and the commands are one script. `put` is for etcd,
and `compare` for your own transactions there. `Gate` keeps the token in memory, for a service that is itself the
resource.

The check protects only a write in the same step: in the same transaction as `guard` or what `compare` returned, as a
command of the same `write` call, or inside the `with Gate.writing(…)` block.
"""

from gripfast.fencing.dialects import async_guard, guard, schema
from gripfast.fencing.etcd import compare, put
from gripfast.fencing.gate import Gate
from gripfast.fencing.redis import Command, write

__all__ = ["Command", "Gate", "async_guard", "compare", "guard", "put", "schema", "write"]
