"""Adds to an unprotected counter file under one lock, and writes the tokens it saw into a journal."""

import os
import sys
from pathlib import Path

import gripfast


def main(number: str, url: str, counter: str, journal: str, rounds: str) -> None:
    client = gripfast.connect(url)
    lock = client.lock("counter", label=f"worker {number}")
    log = os.open(journal, os.O_WRONLY | os.O_APPEND)
    print("ready")
    sys.stdin.readline()
    for _ in range(int(rounds)):
        with lock as lease:
            value = int(Path(counter).read_text())
            os.write(log, f"{lease.token}\n".encode())
            Path(counter).write_text(str(value + 1))
    client.close()
    print("done")


main(*sys.argv[1:])
