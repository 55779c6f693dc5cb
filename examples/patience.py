"""Wait for a moment at most, and then say who holds the lock, instead of hanging.

Prints:
    busy: held by the import job
    still busy, without waiting: True
    free now: True
"""

import gripfast

with gripfast.connect() as client:
    with client.lock("warehouse", label="the import job"):
        try:
            client.lock("warehouse").acquire(wait=0.05)
        except gripfast.LockTimeout as busy:
            print("busy: held by", busy.holder.label if busy.holder else "someone")
        print("still busy, without waiting:", client.lock("warehouse").try_acquire() is None)
    print("free now:", client.inspect("warehouse") is None)
