"""Locks in a PostgreSQL that you already run: who holds a lock, and what its holder sees after a force release.

Prints:
    held by month's end, token grows: True
    somebody else gets: None
    the first holder is told: broken
"""

import os

import gripfast

url = os.environ.get("POSTGRES_URL", "postgresql://localhost/postgres")

with gripfast.connect(url, prefix="example:") as office, gripfast.connect(url, prefix="example:") as other:
    with office.lock("books") as before:
        pass
    lease = office.lock("books", ttl=10, label="month's end").acquire(wait=5)
    info = other.inspect("books")
    print(f"held by {info.label}, token grows:", info.token > before.token)
    print("somebody else gets:", other.lock("books").try_acquire())
    other.force_release("books")
    try:
        lease.release()
    except gripfast.LeaseLost as loss:
        print("the first holder is told:", loss.reason)
