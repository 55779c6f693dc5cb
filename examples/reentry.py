"""A function that holds a lock calls another one that takes the same lock: `reentrant=True` allows it, with one lease.

Prints:
    inner and outer share a token: True
    still held after the inner block: True
    free after the outer one: True
"""

import gripfast

with gripfast.connect() as client:
    ledger = client.lock("ledger", reentrant=True)

    def book() -> int:
        with ledger as lease:
            return lease.token

    with ledger as lease:
        print("inner and outer share a token:", book() == lease.token)
        print("still held after the inner block:", lease.held)
    print("free after the outer one:", client.inspect("ledger") is None)
