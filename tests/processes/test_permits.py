"""Many processes and one semaphore, while some are killed and others stopped for longer than their ttl.

GRIPFAST_CHAOS=long: 64 processes for a minute on each engine; `-s` shows the figures.
"""

import contextlib
import random
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

import gripfast
from gripfast.machine import boottime
from support.family import LONG, PERMITS, store_url
from support.processes import Worker

LIMIT = 3
TTL = 3.0
"""Of the workers' leases: a process that gets no turn on a busy machine for that long may be passed."""


def least(client: gripfast.Client) -> int:
    """Grants for each process in a minute. Who polls is slow to come back after a stop, which holds up the queue for
    up to 3.5 s, a dozen times."""
    return 10 if client.capabilities.push else 5


class Belief(NamedTuple):
    number: str
    owner: str
    slots: frozenset[int]
    token: int
    asked: float
    begins: float
    ends: float


class Journal:
    def __init__(self, path: Path) -> None:
        self.queued: dict[str, float] = {}
        """By owner: in the queue since then at the latest."""
        self.beliefs: list[Belief] = []
        """The longest of each lease, in the order in which they began."""
        found: dict[str, Belief] = {}
        for line in path.read_text().splitlines():
            what, number, owner, *rest = line.split()
            if what == "queued":
                self.queued[owner] = float(rest[1])
                continue
            slots, token, *times = rest
            numbers = frozenset(map(int, slots.split(",")))
            found[owner] = Belief(number, owner, numbers, int(token), *map(float, times))
        self.beliefs = sorted(found.values(), key=lambda belief: belief.begins)

    def check_limit(self) -> int:
        """How many had something at the same time, at most."""
        most, held = 0, list[Belief]()
        for belief in self.beliefs:
            held = [other for other in held if other.ends >= belief.begins] + [belief]
            slots = [slot for other in held for slot in other.slots]
            assert len(slots) == len(set(slots)) <= LIMIT, held
            assert set(slots) <= set(range(LIMIT)), held
            most = max(most, len(held))
        assert len({belief.token for belief in self.beliefs}) == len(self.beliefs)
        return most

    def check_order(self, pauses: dict[str, list[tuple[float, float]]], is_strict: bool) -> int:
        """Who asked when another was in the queue already, got its permits later than that one, or, unless this is
        strict, fitted in beside it: then nobody waits for the other. Who was stopped meanwhile may have been passed.
        Returns how often somebody could have been passed."""
        waited = [
            (self.queued[belief.owner], belief)
            for belief in self.beliefs
            if belief.owner in self.queued and not _was_stopped(belief, self.queued[belief.owner], pauses)
        ]
        compared, place, largest = 0, 0, 0
        waited.sort(key=lambda pair: pair[0])
        for belief in sorted(self.beliefs, key=lambda belief: belief.asked):
            while place < len(waited) and waited[place][0] < belief.asked:
                largest = max(largest, waited[place][1].token)
                place += 1
            compared += place > 0
            if largest > belief.token:
                for _, early in waited[:place]:
                    is_passed = early.token > belief.token and not (not is_strict and self._both_fit(early, belief))
                    assert not is_passed, (early, belief)
        return compared

    def _both_fit(self, early: Belief, late: Belief) -> bool:
        """Beside those that had permits before the late one, and still when it began."""
        held = [each for each in self.beliefs if each.token <= late.token and each.begins <= late.begins <= each.ends]
        return len(early.slots) + sum(len(each.slots) for each in held) <= LIMIT


def _was_stopped(belief: Belief, since: float, pauses: dict[str, list[tuple[float, float]]]) -> bool:
    return any(stopped <= belief.begins and went_on >= since for stopped, went_on in pauses[belief.number])


@pytest.mark.parametrize("store", PERMITS)
@pytest.mark.in_turn(3)
def test_killed_and_stopped_processes_never_have_more_permits_than_the_limit(
    store: str, tmp_path: Path, is_sampled: bool
) -> None:
    processes, seconds = (64, 60) if LONG else (8, 4 if is_sampled else 20)
    path, chance = tmp_path / "journal", random.Random(7)
    numbers = iter(range(1_000_000))
    pauses: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(store_url(store, tmp_path))
        client = stack.enter_context(gripfast.connect(url))

        def start() -> tuple[str, Worker]:
            number = next(numbers)
            return str(number), stack.enter_context(Worker("permits.py", number, url, path, TTL))

        crew = [start() for _ in range(processes)]
        for _, worker in crew:
            worker.expect("ready", within=60)
        killed = stopped = 0
        ends = boottime() + seconds
        while boottime() < ends:
            place = chance.randrange(processes)
            number, worker = crew[place]
            if chance.random() < 0.5:
                worker.kill()
                crew[place] = start()
                crew[place][1].expect("ready", within=60)
                killed += 1
            else:
                began = boottime()
                worker.stop()
                worker.ended_within(chance.choice((0.05, 0.3 if is_sampled else TTL + 0.5)))
                worker.go_on()
                pauses[number].append((began, boottime()))
                stopped += 1
        for _, worker in crew:
            assert not worker.ended_within(0.0), worker.errors
            worker.kill()
        journal = Journal(path)
        most = journal.check_limit()
        # On these each waiter that fits takes its permits by itself, and two may fit at the same time.
        compared = journal.check_order(pauses, is_strict=store not in ("zookeeper", "etcd"))
        print(
            f"\n{store}: {len(journal.beliefs)} grants to {processes} processes in {seconds} s, {killed} killed, "
            f"{stopped} stopped, at most {most} at a time, {compared} asked while others waited"
        )
        assert killed
        assert stopped
        assert compared
        assert len(journal.beliefs) > (least(client) * processes if LONG else processes // 2)
        assert client.semaphore("api", LIMIT).acquire(LIMIT, wait=30).slots == (0, 1, 2)


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
