"""The checking side of fencing tokens: at the resource, refuse whoever has been overtaken.

A lease can end while its holder is paused between its last check and its write. No lock can prevent that write; the
resource can, because the next holder's token is larger. So the writer sends its token along, and the resource refuses
a token smaller than the largest it has seen:

    with connection.transaction():                       # the caller's own, of psycopg here
        guard(connection, "invoices", lease.token)       # StaleToken: roll back, write nothing
        connection.execute("UPDATE invoices SET …")

    write(redis_client, "invoices", lease.token, ("SET", "invoice:7", "paid"))      # or StaleToken

`guard` keeps the largest token in the database that is written to (PostgreSQL, MariaDB/MySQL, SQLite), in the same
transaction as the write; `async_guard` is the same for connections that are awaited, and `schema` gives the table that
they need. `write` is for Redis, which has no transaction to join: check and commands are one script.
`Gate` keeps the token in memory, for a service that is itself the resource.

Each is atomic with the write only if the write happens inside: before the commit, as a command of `write`, or within
`Gate.writing`.
"""

from gripfast.fencing.dialects import async_guard, guard, schema
from gripfast.fencing.gate import Gate
from gripfast.fencing.redis import write

__all__ = ["Gate", "async_guard", "guard", "schema", "write"]
