"""What does a job say when it can't get its lock, or loses it? A world in memory shows it, and nobody waits.

Prints:
    free: done
    taken: not now: cron holds it
    taken for 5 s: done
    store is down: later
    held after an hour: True
    held after a suspended hour: False
"""

import gripfast
from gripfast.testing import World


def job() -> str:
    try:
        with gripfast.lock("job").acquire(wait=10):
            return "done"
    except gripfast.LockTimeout as busy:
        return f"not now: {busy.holder.label if busy.holder else 'somebody'} holds it"
    except gripfast.StoreUnavailable:
        return "later"


with World() as world:
    print("free:", job())
    with world.clock.fast_forward():
        with world.hold("job", label="cron"):
            print("taken:", job())
        with world.hold("job", seconds=5):
            print("taken for 5 s:", job())
        with world.outage():
            print("store is down:", job())
    lease = gripfast.lock("job").acquire()
    world.clock.advance(3600)
    print("held after an hour:", lease.held)
    world.clock.suspend(3600)
    print("held after a suspended hour:", lease.held)
