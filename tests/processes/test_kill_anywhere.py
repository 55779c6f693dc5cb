"""`kill -9` at any moment leaves a usable file: whole, free, and with tokens that go on growing."""

import contextlib
import os
import random
import signal
import sqlite3
from pathlib import Path

import gripfast
from support.processes import Worker
from support.waiting import until

KILLS_AT_WORK = 50
KILLS_AT_BIRTH = 20
NAMES = ("shared", "own-0", "own-1", "own-2")
AT_ONCE = 5.0
"""Seconds, on a busy machine; their leases would live for 20 at least."""


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def kill_a_new_process(nursery: Worker, path: Path, journal: Path, after: float, has_worked: bool = False) -> None:
    size = journal.stat().st_size if has_worked else 0
    nursery.say(f"sqlite:///{path} {journal}")
    (pid,) = map(int, nursery.expect("born"))
    until(lambda: not has_worked or journal.stat().st_size > size)
    assert not nursery.ended_within(after), nursery.errors
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid))


def check(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


def largest_tokens(journal: Path) -> dict[str, int]:
    tokens = dict.fromkeys(NAMES, 0)
    for line in journal.read_text().splitlines():
        name, token = line.split()
        tokens[name] = max(tokens[name], int(token))
    return tokens


def acquire_all(path: Path, journal: Path) -> None:
    """Every lock is free at once, and its token is larger than any that was seen."""
    seen = largest_tokens(journal)
    with gripfast.connect(f"sqlite:///{path}") as client:
        for name in NAMES:
            with client.lock(name).acquire(wait=AT_ONCE) as lease:
                assert lease.token > seen[name]
                with journal.open("a") as log:
                    log.write(f"{name} {lease.token}\n")


def test_a_process_killed_at_work_leaves_a_whole_file_free_locks_and_growing_tokens(tmp_path: Path) -> None:
    path, journal = tmp_path / "locks.db", tmp_path / "journal"
    journal.touch()
    moments = random.Random(2)
    with Worker("hammer.py") as nursery:
        for number in range(KILLS_AT_WORK):  # every second one has had a lock, however busy the machine is
            kill_a_new_process(nursery, path, journal, moments.uniform(0.0, 0.06), has_worked=number % 2 == 1)
            assert check(path) == "ok"
            acquire_all(path, journal)
        assert nursery.errors == ""


def test_a_process_killed_while_it_creates_the_file_leaves_one_that_the_next_can_use(tmp_path: Path) -> None:
    moments = random.Random(3)
    with Worker("hammer.py") as nursery:
        for number in range(KILLS_AT_BIRTH):
            path, journal = tmp_path / f"locks-{number}.db", tmp_path / f"journal-{number}"
            kill_a_new_process(nursery, path, journal, moments.uniform(0.0, 0.012))
            acquire_all(path, journal)
            assert check(path) == "ok"
        assert nursery.errors == ""
