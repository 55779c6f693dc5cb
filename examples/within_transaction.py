"""A lock inside your own transaction: what was written is visible to others before the lock is free (PostgreSQL).

Prints:
    invoice 1 is mine
    taken until the commit: True
    free after it: True
"""

import os

import psycopg

import gripfast

url = os.environ.get("POSTGRES_URL", "postgresql://localhost/postgres")

with gripfast.connect(url, mode="row", prefix="example:") as client, psycopg.connect(url) as connection:
    connection.execute("CREATE TEMPORARY TABLE invoices (number int PRIMARY KEY)")
    connection.commit()

    lock = client.lock("invoices")
    held = lock.within(connection, wait=5)  # first in the transaction: what is read now is true until its end
    (last,) = connection.execute("SELECT coalesce(max(number), 0) FROM invoices").fetchone()
    connection.execute("INSERT INTO invoices VALUES (%s)", (last + 1,))
    print("invoice", last + 1, "is mine")
    print("taken until the commit:", lock.try_acquire() is None)
    connection.commit()

    with lock.acquire(wait=5) as lease:
        print("free after it:", lease.token > held.token)
