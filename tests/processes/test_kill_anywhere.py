"""`kill -9` at any moment leaves a usable file: whole, free, and with tokens that go on growing."""

import contextlib
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import holdfast
from support.processes import Worker

KILLS_AT_WORK = 40
KILLS_AT_BIRTH = 15
NAMES = ("shared", "own-0", "own-1", "own-2")


def check(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


def largest_tokens(journal: Path) -> dict[str, int]:
    """The journal's last line may be cut off in the middle: it is skipped."""
    tokens = dict.fromkeys(NAMES, 0)
    for line in journal.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            name, token = line.split()
            tokens[name] = max(tokens[name], int(token))
    return tokens


def acquire_all(url: str, journal: Path) -> None:
    """Every lock is free at once, and its token is larger than any that was seen."""
    seen = largest_tokens(journal)
    with holdfast.connect(url) as client:
        for name in NAMES:
            with client.lock(name).acquire(wait=1.0) as lease:
                assert lease.token > seen[name]
                with journal.open("a") as log:
                    log.write(f"{name} {lease.token}\n")


@contextlib.contextmanager
def prepared(count: int, *arguments: object) -> Iterator[Iterator[Worker]]:
    """Workers one after another; each is started while its predecessor works, because starting takes longest."""
    with contextlib.ExitStack() as stack:
        started = stack.enter_context(Worker("hammer.py", *arguments))

        def hand_out() -> Iterator[Worker]:
            nonlocal started
            for _ in range(count):
                worker, started = started, stack.enter_context(Worker("hammer.py", *arguments))
                worker.expect("ready")
                yield worker

        yield hand_out()


def test_a_process_killed_at_work_leaves_a_whole_file_free_locks_and_growing_tokens(tmp_path: Path) -> None:
    path, journal = tmp_path / "locks.db", tmp_path / "journal"
    journal.touch()
    moments = random.Random(2)
    with prepared(KILLS_AT_WORK, f"sqlite:///{path}", journal) as crew:
        for worker in crew:
            worker.say("go")
            worker.expect("hammering")
            assert not worker.ended_within(moments.uniform(0.0, 0.06)), worker.errors
            worker.kill()
            assert check(path) == "ok"
            acquire_all(f"sqlite:///{path}", journal)
    assert len(journal.read_text().splitlines()) > KILLS_AT_WORK * (len(NAMES) + 1), "the workers hardly worked"


def test_a_process_killed_while_it_creates_the_file_leaves_one_that_the_next_can_use(tmp_path: Path) -> None:
    moments = random.Random(3)
    for number in range(KILLS_AT_BIRTH):
        path, journal = tmp_path / f"locks-{number}.db", tmp_path / f"journal-{number}"
        journal.touch()
        with Worker("hammer.py", f"sqlite:///{path}", journal) as worker:
            worker.expect("ready")
            worker.say("go")
            assert not worker.ended_within(moments.uniform(0.0, 0.012)), worker.errors
            worker.kill()
        acquire_all(f"sqlite:///{path}", journal)
        assert check(path) == "ok"
