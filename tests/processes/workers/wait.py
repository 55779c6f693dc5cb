"""Stands in line when told to; once granted, writes its number and token into a journal, and leaves when told to."""

import os
import sys

import gripfast


def main(number: str, url: str, name: str, journal: str) -> None:
    client = gripfast.connect(url)
    log = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    print("ready")
    sys.stdin.readline()
    with client.lock(name, label=f"worker {number}") as lease:
        os.write(log, f"{number} {lease.token}\n".encode())
        print("held", lease.token)
        sys.stdin.readline()
        lease.ensure_held()
    client.close()
    print("released")


main(*sys.argv[1:])
