"""Code written for threading's locks works across processes: here a Condition over a Holdfast lock.

Prints:
    got bread
    got butter
"""

import threading

import holdfast
from holdfast.compat.threading import RLock

with holdfast.connect() as client:
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
