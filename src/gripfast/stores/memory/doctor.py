"""What `gripfast doctor` says about locks in memory: only what they are good for."""

from __future__ import annotations

from typing import Any

from gripfast.stores.doctor import Examination, Terms, advice

ONE_PROCESS = advice(
    "memory-one-process",
    "these locks are in the memory of one process",
    why="Two processes, or two machines, both get the lock. This store is good for tests, and for programs of "
    "one process.",
    todo="To exclude other processes of this machine, use a file: sqlite:////var/lib/app/locks.db. For several "
    "machines use a server: docs/choosing.md",
)


def examine(factory: Any, terms: Terms) -> Examination:
    return Examination("locks of this process alone", [ONE_PROCESS()])
