"""Code written for threading's locks works across processes: here a Condition over a Gripfast lock.

Prints:
    got bread
    got butter
"""

import threading

import gripfast
from gripfast.compat.threading import RLock

with gripfast.connect() as client:
    table = threading.Condition(RLock(client, "table"))
    dishes: list[str] = []

    def eat() -> None:
        for _ in range(2):
            with table:
                table.wait_for(lambda: dishes)
                print("got", dishes.pop(0))

    eater = threading.Thread(target=eat)
    eater.start()
    for dish in ("bread", "butter"):
        with table:
            dishes.append(dish)
            table.notify()
    eater.join()
