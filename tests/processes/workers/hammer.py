"""Has children that acquire, wait, extend and release in several threads until killed, and journal every token.

One order, `URL JOURNAL`, makes one child. They are forked from here, before anything is connected, because starting
an interpreter for each would take longer than everything else.
"""

import contextlib
import os
import signal
import sys
import threading

import gripfast
import gripfast.stores.sqlite.factory  # now, or each child would spend its short life with loading it

gripfast.connect("memory://").close()


def hammer(client: gripfast.Client, number: int, log: int) -> None:
    shared = client.lock("shared", label=f"thread {number}")
    own = client.lock(f"own-{number}")
    while True:
        with shared as lease:
            os.write(log, f"shared {lease.token}\n".encode())
        with own.acquire(wait=5) as lease:
            os.write(log, f"own-{number} {lease.token}\n".encode())
            lease.extend(20)
        with contextlib.suppress(gripfast.LockTimeout):
            shared.acquire(wait=0.001).release()


def live(url: str, journal: str) -> None:
    log = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    print("born", os.getpid())
    client = gripfast.connect(url)
    for number in range(3):
        threading.Thread(target=hammer, args=(client, number, log), daemon=True).start()
    threading.Event().wait()


signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed children leave no zombies
for order in sys.stdin:
    if os.fork() == 0:
        live(*order.split())
