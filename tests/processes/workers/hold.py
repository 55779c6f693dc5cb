"""Holds a lock, and when told to, reports what its lease says about itself. Blocking API."""

import sys

import holdfast


def main(url: str, name: str, ttl: str) -> None:
    client = holdfast.connect(url)
    lease = client.lock(name, ttl=float(ttl)).acquire(wait=10)
    print("held", lease.token)
    sys.stdin.readline()
    lost, held, remaining = lease.lost.is_set(), lease.held, lease.remaining()
    try:
        lease.ensure_held()
    except holdfast.LeaseLost as error:
        print("lost", lost, held, remaining, error.reason)
    else:
        print("kept", lost, held, remaining)
    sys.stdin.readline()


main(*sys.argv[1:])
