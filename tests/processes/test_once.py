"""`once()` among processes that are killed at random: everything is done, and nothing is begun after it was done."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import Worker
from support.redis_server import lock_space
from support.sql_servers import mariadb_server, postgres_server

KEYS, WORKERS, KILLS = 20, 3, 8


@pytest.fixture(params=["sqlite", "redis", "postgres", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    match request.param:
        case "sqlite":
            yield f"sqlite:///{tmp_path / 'locks.db'}"
        case "redis":
            with lock_space("once") as url:
                yield url
        case "postgres":
            yield postgres_server().lock_space()
        case _:
            yield mariadb_server().lock_space()


def test_what_is_done_is_never_begun_again_though_processes_are_killed(url: str, tmp_path: Path) -> None:
    journal, chance = tmp_path / "journal", random.Random(7)
    journal.touch()
    arguments = ("once.py", 0, url, journal, KEYS, 0 if url.startswith("sqlite") else 1)
    with contextlib.ExitStack() as stack:
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
