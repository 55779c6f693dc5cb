"""A holder that is killed: its row does not stay for ever. The next one has the lock when the ttl is over; where locks
live in sessions, at once."""

import time

import pytest

import gripfast
from stores.sql_troubles import MODES
from support.processes import Worker
from support.sql_process import SqlServer
from support.sql_servers import mariadb_server, postgres_server

TTL = 2.0
AT_ONCE = 1.0


@pytest.fixture(params=[postgres_server, mariadb_server], ids=["PostgreSQL", "MariaDB"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    shared: SqlServer = request.param()
    return shared


@pytest.mark.parametrize("script", ["hold.py", "ahold.py"], ids=["thread", "task"])
@pytest.mark.parametrize("mode", MODES)
def test_the_next_one_has_the_lock_of_a_killed_holder(server: SqlServer, mode: str, script: str) -> None:
    url = server.lock_space(mode=mode)
    with gripfast.connect(url) as client, Worker(script, url, "job", TTL) as holder:
        holder.expect("held")
        assert client.lock("job").try_acquire() is None
        holder.kill()
        killed = time.monotonic()
        with client.lock("job").acquire(wait=10.0):
            waited = time.monotonic() - killed
    assert waited < (TTL + 1.0 if mode == "lease" else AT_ONCE)
