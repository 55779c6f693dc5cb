"""How many connections to its file the embedded store keeps."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gripfast.stores.sqlite.connections import IDLE_MAX, Connections
from support.colours import open_files

AT_ONCE = 60


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Connections]:
    pool = Connections(tmp_path / "locks.db", "normal", 30.0)
    yield pool
    pool.close_for_good()


def use_at_once(pool: Connections, count: int) -> None:
    """Each of so many threads has a connection at the same moment as all the others."""
    meeting = threading.Barrier(count)
    threads = [threading.Thread(target=pool.run, args=(lambda _: meeting.wait(timeout=30),)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_after_many_threads_have_come_and_gone_few_connections_and_files_are_open(pool: Connections) -> None:
    use_at_once(pool, AT_ONCE)
    pool.run(lambda connection: connection.execute("SELECT 1").fetchall())
    assert len(pool._idle) <= IDLE_MAX
    assert len([path for path in open_files().values() if "locks.db" in path]) <= 3 * IDLE_MAX


def test_connections_that_a_few_threads_use_at_once_are_kept(pool: Connections) -> None:
    use_at_once(pool, IDLE_MAX)
    kept = set(pool._idle)
    use_at_once(pool, IDLE_MAX)
    assert len(kept) == IDLE_MAX
    assert set(pool._idle) == kept
