"""Names that nobody uses any more are forgotten as fast as new ones are made."""

import time
from typing import Any

import pytest

import gripfast
from gripfast.core import rules
from gripfast.stores.sql import requests
from regressions.sql_stage import ENGINES, MODES
from support.sql_servers import mariadb_server, postgres_server
from support.waiting import until

SERVERS = {"postgres": postgres_server, "mysql": mariadb_server}
TABLES = {"lease": "gripfast_lock", "row": "gripfast_row", "advisory": "gripfast_grant"}
MEMORY_US = 500_000
"""Half a second instead of a day."""
OLD = 120


@pytest.fixture(params=ENGINES)
def server(request: pytest.FixtureRequest) -> Any:
    return SERVERS[request.param]()


@pytest.mark.parametrize("mode", MODES)
def test_idle_names_are_forgotten_faster_than_new_ones_are_made(
    server: Any, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 a minute were, however many were made."""
    monkeypatch.setattr(rules, "TOKEN_MEMORY_US", MEMORY_US)
    monkeypatch.setattr(requests, "SWEEP_MOST", 10)
    monkeypatch.setattr(requests, "SWEEP_AFTER", 3)
    monkeypatch.setattr(requests, "SWEEP_PACE", 0.2)
    with server.fresh_database(mode=mode) as url, gripfast.connect(url) as client:
        database = url.partition("?")[0].rpartition("/")[2]

        def count() -> int:
            """The names; one row more has the number of the layout, and stays."""
            return int(server.execute(f"SELECT count(*) - 1 FROM {TABLES[mode]}", database=database)[0][0])

        for number in range(OLD):
            client.lock(f"old-{number}").acquire().release()
        assert count() <= OLD
        aged = time.monotonic() + MEMORY_US / 1_000_000
        until(lambda: time.monotonic() > aged)
        made = 0

        def is_cleared() -> bool:
            nonlocal made
            client.lock(f"new-{made}").acquire().release()
            made += 1
            return count() < OLD // 2

        until(is_cleared, within=20)
        assert made < OLD
