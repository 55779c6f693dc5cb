"""Many processes and one embedded semaphore, while some are killed and others stopped for longer than their ttl."""

import contextlib
import random
from pathlib import Path
from typing import NamedTuple

import gripfast
from gripfast.machine import boottime
from support.processes import Worker

LIMIT = 3
PROCESSES = 8


class Belief(NamedTuple):
    owner: str
    slots: frozenset[int]
    token: int
    begins: float
    ends: float


def beliefs(journal: Path) -> list[Belief]:
    """The longest of each lease."""
    found: dict[str, Belief] = {}
    for line in journal.read_text().splitlines():
        owner, slots, token, begins, ends = line.split()
        found[owner] = Belief(owner, frozenset(map(int, slots.split(","))), int(token), float(begins), float(ends))
    return sorted(found.values(), key=lambda belief: belief.begins)


def overlapping(belief: Belief, earlier: list[Belief]) -> list[Belief]:
    """Those who held something when this one began to."""
    return [other for other in earlier if other.ends >= belief.begins]


def test_killed_and_stopped_processes_never_have_more_permits_than_the_limit(tmp_path: Path, is_sampled: bool) -> None:
    url, journal = f"sqlite:///{tmp_path / 'locks.db'}", tmp_path / "journal"
    chance = random.Random(7)
    numbers = iter(range(1_000_000))
    ends = boottime() + (4 if is_sampled else 30)
    with contextlib.ExitStack() as stack:

        def start() -> Worker:
            return stack.enter_context(Worker("permits.py", next(numbers), url, journal))

        crew = [start() for _ in range(PROCESSES)]
        for worker in crew:
            worker.expect("ready")
        killed = stopped = 0
        while boottime() < ends:
            place = chance.randrange(PROCESSES)
            worker = crew[place]
            if chance.random() < 0.5:
                worker.kill()
                crew[place] = start()
                crew[place].expect("ready")
                killed += 1
            else:
                worker.stop()
                worker.ended_within(chance.choice((0.05, 0.7)))
                worker.go_on()
                stopped += 1
        for worker in crew:
            worker.kill()
    assert killed
    assert stopped
    all_beliefs = beliefs(journal)
    assert len(all_beliefs) > 10 * PROCESSES
    assert len({belief.token for belief in all_beliefs}) == len(all_beliefs)
    for place, belief in enumerate(all_beliefs):
        held = overlapping(belief, all_beliefs[:place])
        slots = [slot for other in [belief, *held] for slot in other.slots]
        assert len(slots) == len(set(slots)) <= LIMIT, [belief, *held]
        assert all(other.slots <= set(range(LIMIT)) for other in held)
    with gripfast.connect(url) as client:
        semaphore = client.semaphore("api", LIMIT)
        assert semaphore.acquire(LIMIT, wait=5).slots == (0, 1, 2)


def test_the_permits_of_a_killed_process_are_free_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'locks.db'}"
    with gripfast.connect(url) as client:
        semaphore = client.semaphore("api", LIMIT)
        with Worker("hold_permits.py", url, LIMIT) as worker:
            worker.expect("held")
            assert semaphore.try_acquire() is None
            worker.kill()
            lease = semaphore.try_acquire(LIMIT)
            assert lease is not None, "its ttl is an hour, but its process is dead"
            lease.release()
