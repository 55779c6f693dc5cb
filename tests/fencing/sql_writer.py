"""A process that adds one to a register in PostgreSQL, again and again, under a lock. It may be stopped at any moment.

Started with the URLs of the locks and of the register's database, the name of both, "fenced" or "bare", and the folder
in which it shows that it is at work. Told to end by SIGTERM, it says how many updates were acknowledged, how many reads
and writes the fence has refused, and of how many writes it never heard whether they were committed.
"""

import contextlib
import signal
import sys
import threading

import psycopg
from at_work import at_work  # type: ignore[import-not-found]

import gripfast
from gripfast.fencing import guard

TTL = 0.5
WORK = 0.05
"""Seconds between the last look at the lease and the write: whoever is stopped there can't know."""
IDLE = "-c idle_in_transaction_session_timeout=500"
"""Who is stopped in the middle of a transaction has the fence's row locked: the server ends that session."""

locks_url, data_url, name, how, folder = sys.argv[1:]
over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())


def run(data: "psycopg.Connection", token: int, sql: str) -> "psycopg.Cursor":
    """One transaction. Reads go through the fence as well: a token that it has not seen shuts nobody out."""
    with data.transaction():
        if how == "fenced":
            guard(data, name, token)
        return data.execute(sql)


def add_one(lease: gripfast.Lease, data: "psycopg.Connection") -> None:
    global acknowledged, unknown
    ((value,),) = run(data, lease.token, "SELECT value FROM register").fetchall()
    lease.ensure_held()
    with at_work(folder):
        lease.lost.wait(WORK)
    try:
        run(data, lease.token, f"UPDATE register SET value = {value + 1}")
    except psycopg.OperationalError:
        unknown += 1
        raise
    acknowledged += 1


def work(locks: gripfast.Client, data: "psycopg.Connection") -> None:
    global refused
    while not over.is_set():
        with contextlib.suppress(gripfast.LeaseLost, gripfast.LockTimeout, gripfast.StoreUnavailable):
            with locks.lock(name, ttl=TTL).acquire(wait=0.5) as lease:
                try:
                    add_one(lease, data)
                except gripfast.StaleToken:
                    refused += 1


acknowledged = refused = unknown = 0
with gripfast.connect(locks_url) as locks:
    while not over.is_set():
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(data_url, options=IDLE) as data:
            work(locks, data)
print("ended", acknowledged, refused, unknown, flush=True)
