"""Which layout of keys, tables and nodes this version writes, and why no other one is written beside it.

Versions with different layouts may not see each other's locks: on one store, both could grant the same name. So each
store has a number, its layout, and every client looks at it before its first request:

1. If there is a number, and it is this version's, the client goes on. If it is another one, the client is refused at
   once, without a retry: it reaches no lock.
2. If there is none, the client writes its own, in one step that does nothing if somebody was first, and looks again.
3. Only an operator who has stopped all clients changes or deletes a number.

Why that is enough: a client with a grant has seen its own number before, on the same connection or in the same
session. A number stays what it is as long as the store keeps its data, so two clients of different layouts can't both
have seen their own. Which of them starts first, and how many have been connected for how long, does not matter. A store
that has lost its data has lost its connections, too, unless somebody deletes data under living clients (FLUSHALL,
DROP TABLE): before a version of another layout is started on such a store, the old clients have to be stopped.

An uncontended acquire and release costs nothing more: a number is looked at once for each connection (ZooKeeper: for
each session, etcd: for each client and cluster), when it is made.

| store | where the number is | what it is for |
|---|---|---|
| Redis, Redlock | the key `gripfast` + NUL + `gripfast:layout`, in each database and on each node | the database |
| Redis Cluster | the same key, once, at the node that has its slot | the Cluster |
| PostgreSQL, MySQL | a row of `gripfast_lock` (mode=lease) or `gripfast_grant` (the other modes) | the tables |
| SQLite | a row of `gripfast_meta` | the file |
| ZooKeeper | the node `%layout` below the root | the root |
| etcd | the key `%layout` below the root | the root |

Not for each prefix: `lock:` with the name `a:b` and `lock:a:` with the name `b` are the same lock. The memory store has
no number, because all its clients are of one process. A node of Redlock with another number counts as failed, and a
majority of the nodes decides: two majorities share a node, so two layouts never have one each.

docs/compatibility.md says which versions have which numbers, and what an operator does to change one.
"""

from __future__ import annotations

from gripfast.errors import StoreUnavailable, quoted

REDIS = 1
"""Also of Redlock."""
SQL = 1
SQLITE = 1
ZOOKEEPER = 1
ETCD = 1


class OtherLayout(StoreUnavailable):
    """A refusal where no Fault says that it is permanent. Callers get the plain error."""


def refusal(where: str, found: str, ours: int, elsewhere: str) -> StoreUnavailable:
    """`elsewhere`: what else a client of this version could use."""
    shown = found if found.isascii() and found.isdecimal() and len(found) < 10 else quoted(found)
    words = (
        f"has locks in layout {shown}, and this version of Gripfast uses layout {ours}. Such versions can't "
        f"share locks: run a version with layout {shown} here, or give this version {elsewhere}. "
        "docs/compatibility.md says which version uses which layout, and how to change the layout of a store"
    )
    return StoreUnavailable(f"{where} {words}", {where: words})
