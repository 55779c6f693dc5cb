"""A long job checks before each step that it still holds its lock; an operator releases the lock by force meanwhile.

Prints:
    step 1
    step 2
    stopped: broken
"""

import gripfast

client = gripfast.connect()


def steps() -> None:
    with client.lock("migration", ttl=0.3) as lease:
        for step in range(1, 1000):
            lease.ensure_held()  # cheap: it reads the clock, not the engine
            print("step", step)
            if step == 2:
                client.force_release("migration")  # stands for: someone ran `gripfast break migration`
                lease.lost.wait(10)  # the next renewal finds out; a real job would just go on working


try:
    steps()
except gripfast.LeaseLost as lost:
    print("stopped:", lost.reason)
client.close()
