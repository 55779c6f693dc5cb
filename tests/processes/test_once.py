"""`once()` among processes that are killed at random: everything is done, and nothing is begun after it was done.

GRIPFAST_CHAOS=long: 20 processes, 200 keys; `-s` shows the figures. On servers the clocks of the processes are hours
apart. The embedded store is on one machine, which has one clock.
"""

import contextlib
import random
from pathlib import Path

import pytest

from support.family import FOR_ONCE, KEEPS, LONG, store_url
from support.processes import Worker

KEYS, WORKERS, KILLS = (200, 20, 100) if LONG else (20, 3, 8)


@pytest.mark.parametrize("store", KEEPS)
@pytest.mark.in_turn(2)
def test_what_is_done_is_never_begun_again_though_processes_are_killed(store: str, tmp_path: Path) -> None:
    journal, chance = tmp_path / "journal", random.Random(7)
    journal.touch()
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(store_url(store, tmp_path)) + FOR_ONCE.get(store, "")
        arguments = ("once.py", 0, url, journal, KEYS, 0 if store == "sqlite" else 1)
        workers = [stack.enter_context(Worker(*arguments)) for _ in range(WORKERS)]
        for _ in range(KILLS):
            victim = chance.randrange(WORKERS)
            workers[victim].ended_within(chance.uniform(0.3, 0.6))  # somewhere in its work
            workers[victim].kill()
            workers[victim] = stack.enter_context(Worker(*arguments))
        for worker in workers:
            while worker.line(30).startswith("begun"):
                pass
            assert worker.errors == ""
    steps = [line.split() for line in journal.read_text().splitlines()]
    done: set[str] = set()
    for step, key in steps:
        assert (step, key) != ("begun", key) or key not in done, f"{key} was begun after it was done"
        if step == "done":
            done.add(key)
    begun = [key for step, key in steps if step == "begun"]
    assert set(begun) == {f"key-{number}" for number in range(KEYS)}
    again = len(begun) - len(set(begun))
    print(f"\n{store}: {KEYS} keys, {WORKERS} processes, {KILLS} kills, {again} begun again before they were done")
