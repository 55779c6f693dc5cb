"""Acquires, waits, extends and releases in several threads until it is killed; journals every token."""

import contextlib
import os
import sys
import threading

import holdfast


def hammer(client: holdfast.Client, number: int, log: int) -> None:
    shared = client.lock("shared", label=f"thread {number}")
    own = client.lock(f"own-{number}")
    while True:
        with shared as lease:
            os.write(log, f"shared {lease.token}\n".encode())
        with own.acquire(wait=5) as lease:
            os.write(log, f"own-{number} {lease.token}\n".encode())
            lease.extend(20)
        with contextlib.suppress(holdfast.LockTimeout):
            shared.acquire(wait=0.001).release()


def main(url: str, journal: str) -> None:
    log = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    print("ready")
    sys.stdin.readline()
    client = holdfast.connect(url)
    for number in range(3):
        threading.Thread(target=hammer, args=(client, number, log), daemon=True).start()
    print("hammering")
    threading.Event().wait()


main(*sys.argv[1:])
