"""Many processes and one embedded lock: nobody gets in twice, and nobody is passed."""

from collections.abc import Callable
from pathlib import Path

import pytest

import gripfast
from support.processes import Worker, workers
from support.waiting import until

PROCESSES = 8


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'locks.db'}"


def waiting(client: gripfast.Client, name: str, count: int) -> Callable[[], bool]:
    def counted() -> bool:
        info = client.inspect(name)
        return info is not None and info.waiters == count

    return counted


def test_eight_processes_adding_to_an_unprotected_counter_lose_no_increment(
    url: str, tmp_path: Path, is_sampled: bool
) -> None:
    rounds = 100 if is_sampled else 500
    counter, journal = tmp_path / "counter", tmp_path / "journal"
    counter.write_text("0")
    journal.touch()
    with workers(PROCESSES, "count.py", url, counter, journal, rounds) as crew:
        for worker in crew:
            worker.expect("ready")
        for worker in crew:
            worker.say("go")
        for worker in crew:
            worker.expect("done", within=50.0)
        assert [worker.ended() for worker in crew] == [0] * PROCESSES
    assert int(counter.read_text()) == PROCESSES * rounds
    tokens = [int(line) for line in journal.read_text().split()]
    assert len(tokens) == PROCESSES * rounds
    assert tokens == sorted(set(tokens)), "tokens must grow from one critical section to the next"


def test_processes_are_granted_the_lock_in_the_order_in_which_they_stood_in_line(url: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with gripfast.connect(url) as client, workers(PROCESSES, "wait.py", url, "line", journal) as crew:
        lease = client.lock("line").acquire()
        order = [3, 0, 7, 5, 1, 6, 2, 4]
        for place, number in enumerate(order, start=1):
            crew[number].expect("ready")
            crew[number].say("stand in line")
            until(waiting(client, "line", place))
        for worker in crew:
            worker.say("leave as soon as it is yours")
        assert not journal.exists() or journal.read_text() == ""
        lease.release()
        for worker in crew:
            worker.expect("held")
            worker.expect("released")
    grants = [line.split() for line in journal.read_text().splitlines()]
    assert [int(number) for number, _ in grants] == order
    tokens = [lease.token, *(int(token) for _, token in grants)]
    assert tokens == sorted(set(tokens))


def test_threads_of_this_process_stand_in_the_same_line_as_other_processes(url: str, tmp_path: Path) -> None:
    """First a process, then this one: a waiter of the releasing process itself does not pass."""
    with (
        gripfast.connect(url) as client,
        gripfast.connect(url) as other,
        Worker("wait.py", 0, url, "line", tmp_path / "journal") as worker,
    ):
        lease = client.lock("line").acquire()
        worker.expect("ready")
        worker.say("stand in line")
        until(waiting(client, "line", 1))
        lease.release()
        assert other.lock("line").try_acquire() is None, "the lock went past the line"
        (token,) = worker.expect("held")
        worker.say("leave")
        with other.lock("line").acquire(wait=5.0) as mine:
            assert mine.token > int(token) > lease.token
