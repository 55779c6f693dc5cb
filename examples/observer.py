"""Metrics of locks: how long they were waited for and held, by group, and how they ended.

Prints:
    reports: granted 2, lost 1, refused 1, released 1
    no wait was longer than a second
"""

from collections import Counter

import gripfast


class Metrics(gripfast.Observer):
    def __init__(self) -> None:
        self.ended: Counter[tuple[str | None, str]] = Counter()
        self.waits: list[float] = []

    def granted(self, event: gripfast.Event) -> None:
        self.waits.append(event.waited)
        self.count(event)

    def count(self, event: gripfast.Event) -> None:
        self.ended[event.group, event.kind] += 1  # by the group: names may be any number

    refused = lost = released = count


metrics = Metrics()
with gripfast.connect(observers=[metrics]) as client:
    with client.lock("report:7", group="reports"):
        client.lock("report:7", group="reports").try_acquire()
    client.lock("report:8", group="reports", max_hold=0.05).acquire().lost.wait()

print("reports:", ", ".join(f"{kind} {count}" for (_, kind), count in sorted(metrics.ended.items())))
print("no wait was longer than a second" if max(metrics.waits) < 1 else metrics.waits)
