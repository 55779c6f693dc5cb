"""Thousands of leases of one client are kept by one watchdog."""

from pathlib import Path

import gripfast
from support.processes import Worker

TTL = 5.0


def test_none_of_many_leases_is_lost_in_two_ttl_and_no_thread_is_added(tmp_path: Path, is_sampled: bool) -> None:
    """Both stores, and asyncio, side by side: one after another they would take too long."""
    count = 2_000 if is_sampled else 10_000
    urls = {store: f"sqlite:///{tmp_path}/{store}.db" for store in ("blocking", "asyncio")}
    with (
        Worker("many.py", "blocking", "memory://", TTL, count) as memory,
        Worker("many.py", "blocking", urls["blocking"], TTL, count) as sqlite,
        Worker("many.py", "asyncio", urls["asyncio"], TTL, count) as async_sqlite,
    ):
        crew = {"memory": memory, "sqlite": sqlite, "async sqlite": async_sqlite}
        for name, worker in crew.items():
            assert worker.expect("holding", within=40.0) == [str(count)], name
        for name, worker in crew.items():
            kept, lost, stale, before, after = map(int, worker.expect("kept", within=40.0))
            assert (kept, lost, stale) == (count, 0, 0), name
            assert after <= before, f"{name}: threads grew from {before} to {after}"
        for name, worker in crew.items():
            worker.expect("closed", within=20.0)
            assert worker.ended() == 0, name
    for url in urls.values():
        with gripfast.connect(url) as client:
            assert list(client.list()) == [], "closing the client must have released all"
