"""Holds a lock, and when told to, reports what its lease says about itself. Blocking API."""

import sys

import gripfast


def main(url: str, name: str, ttl: str, min_hold: str | None = None) -> None:
    client = gripfast.connect(url)
    lease = client.lock(name, ttl=float(ttl), min_hold=float(min_hold) if min_hold else None).acquire(wait=10)
    print("held", lease.token)
    sys.stdin.readline()
    lost, held, remaining = lease.lost.is_set(), lease.held, lease.remaining()
    try:
        lease.ensure_held()
    except gripfast.LeaseLost as error:
        print("lost", lost, held, remaining, error.reason)
    else:
        print("kept", lost, held, remaining)
    sys.stdin.readline()


main(*sys.argv[1:])
