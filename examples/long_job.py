"""A long job looks before each step whether it is still alone; an operator takes its lock away in between.

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
                lease.lost.wait(10)  # renewal finds out; a real job would just go on working


try:
    steps()
except gripfast.LeaseLost as lost:
    print("stopped:", lost.reason)
client.close()
