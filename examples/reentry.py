"""A function that locks calls another that takes the same lock: allowed if the lock says so. One lease, one token.

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
