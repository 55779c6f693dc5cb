"""A job that must not run twice at the same time, on this machine's embedded store.

Prints:
    working alone
    the token is larger than last time: True
"""

import gripfast

with gripfast.lock("nightly") as lease:
    print("working alone")
    first = lease.token

with gripfast.lock("nightly", ttl=10, label="nightly report") as lease:
    print("the token is larger than last time:", lease.token > first)
