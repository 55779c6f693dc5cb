"""Waits for a permit, and works for ever when it has it."""

import sys

import gripfast


def main(url: str, name: str, limit: str) -> None:
    with gripfast.connect(url) as client:
        client.semaphore(name, limit=int(limit)).acquire(wait=60.0)
        print("held")
        sys.stdin.read()


main(*sys.argv[1:])
