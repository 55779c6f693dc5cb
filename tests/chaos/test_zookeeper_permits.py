"""Many processes and one semaphore on ZooKeeper, while some are killed, and others stopped for longer than their
session lives: never more permits than the limit, no number twice, and nobody passes the queue.

GRIPFAST_PROCESSES and GRIPFAST_SECONDS make it larger.
"""

import contextlib
import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import gripfast
from chaos.stage import LONG
from gripfast.machine import boottime
from support.processes import Worker
from support.zookeeper_servers import ZooKeeperServer

LIMIT = 3
TTL = 1.2
SESSION = TTL / 0.75
PROCESSES = int(os.environ.get("GRIPFAST_PROCESSES", "6"))
SECONDS = float(os.environ.get("GRIPFAST_SECONDS", "30" if LONG else "4"))

pytestmark = pytest.mark.timeout(120 + 4 * SECONDS)


class Belief(NamedTuple):
    owner: str
    slots: frozenset[int]
    token: int
    place: int
    begins: float
    ends: float


def beliefs(journal: Path) -> list[Belief]:
    """The longest of each lease, in the order of their grants."""
    found: dict[str, Belief] = {}
    for line in journal.read_text().splitlines():
        owner, slots, token, place, begins, ends = line.split()
        numbers = frozenset(map(int, slots.split(",")))
        found[owner] = Belief(owner, numbers, int(token), int(place), float(begins), float(ends))
    return sorted(found.values(), key=lambda belief: belief.token)


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def harass(url: str, journal: Path) -> tuple[int, int]:
    """How many were killed, and how many stopped."""
    chance = random.Random(7)
    numbers = iter(range(1_000_000))
    killed = stopped = 0
    with contextlib.ExitStack() as stack:

        def start() -> Worker:
            return stack.enter_context(Worker("zookeeper_permits.py", next(numbers), url, journal, TTL))

        crew = [start() for _ in range(PROCESSES)]
        for worker in crew:
            worker.expect("ready", within=60)
        ends = boottime() + SECONDS
        while boottime() < ends:
            place = chance.randrange(PROCESSES)
            worker = crew[place]
            if chance.random() < 0.4:
                worker.kill()
                crew[place] = start()
                crew[place].expect("ready", within=60)
                killed += 1
            else:
                worker.stop()
                worker.ended_within(chance.choice((0.05, 0.5, 1.2 * SESSION)))
                worker.go_on()
                stopped += 1
        for worker in crew:
            worker.kill()
    return killed, stopped


def passed(found: list[Belief]) -> list[tuple[Belief, Belief]]:
    """Who got permits before another that had come earlier and wanted more than were left beside them. If both fit, it
    does not matter who is the first to take its own: nobody waits for the other."""
    pairs = []
    for index, late in enumerate(found):
        for early in found[index + 1 : index + 50]:
            if early.place < late.place:
                held = sum(len(each.slots) for each in found[:index] if each.ends >= late.begins)
                if held + len(early.slots) + len(late.slots) > LIMIT:
                    pairs.append((early, late))
    return pairs


def test_killed_and_stopped_processes_never_have_more_permits_than_the_limit(
    server: ZooKeeperServer, tmp_path: Path
) -> None:
    url, journal = server.lock_space(), tmp_path / "journal"
    killed, stopped = harass(url, journal)
    assert killed
    assert stopped
    found = beliefs(journal)
    assert len(found) > 2 * PROCESSES
    assert len({belief.token for belief in found}) == len(found)
    most = 0
    by_time = sorted(found, key=lambda belief: belief.begins)
    for index, belief in enumerate(by_time):
        held = [other for other in by_time[:index] if other.ends >= belief.begins]
        slots = [slot for other in [belief, *held] for slot in other.slots]
        assert len(slots) == len(set(slots)) <= LIMIT, [belief, *held]
        assert set(slots) <= set(range(LIMIT))
        most = max(most, len(slots))
    assert most > 1
    assert passed(found) == []
    inversions = sum(second.place < first.place for first, second in itertools.pairwise(found))
    print(f"{PROCESSES} processes, {SECONDS:g} s, {killed} killed, {stopped} stopped: {len(found)} leases, "
          f"at most {most} permits, {inversions} of them granted the other way round")  # fmt: skip
    with gripfast.connect(url) as client:
        with client.semaphore("api", LIMIT, ttl=TTL).acquire(LIMIT, wait=4 * SESSION) as lease:
            assert lease.slots == (0, 1, 2)
            info = client.inspect("api", "semaphore")
            assert info is not None
            assert info.waiters == 0
        assert client.inspect("api", "semaphore") is None


def test_the_lock_of_a_killed_writer_is_free_when_its_session_is_over(server: ZooKeeperServer) -> None:
    url = server.lock_space()
    with gripfast.connect(url) as client:
        rwlock = client.rwlock("index", ttl=TTL)
        with Worker("zookeeper_writer.py", url, TTL) as writer:
            writer.expect("held")
            assert rwlock.read().try_acquire() is None
            writer.kill()
            with rwlock.read().acquire(wait=4 * SESSION) as one, client.rwlock("index").read() as two:
                assert one.held
                assert two.held
