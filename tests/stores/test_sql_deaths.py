"""A holder that is killed: its row does not stay for ever. The next one has the lock when the ttl is over; where locks
live in sessions, at once."""

import pytest

import gripfast
from stores.sql_troubles import MODES
from support.processes import Worker
from support.sql_process import SqlServer
from support.sql_servers import mariadb_server, postgres_server

pytestmark = pytest.mark.in_turn(2)

PATIENCE = 10.0
TTL = {"lease": 2.0, "row": 6 * PATIENCE, "advisory": 6 * PATIENCE}
"""Less than anybody waits, where the lock is to be free when the ttl is over; more, where it is to be free before. How
soon is not measured: on a server that makes and drops databases for others meanwhile an answer may take a second."""


@pytest.fixture(params=[postgres_server, mariadb_server], ids=["PostgreSQL", "MariaDB"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    shared: SqlServer = request.param()
    return shared


@pytest.mark.parametrize("script", ["hold.py", "ahold.py"], ids=["thread", "task"])
@pytest.mark.parametrize("mode", MODES)
def test_the_next_one_has_the_lock_of_a_killed_holder(server: SqlServer, mode: str, script: str) -> None:
    url = server.lock_space(mode=mode)
    with gripfast.connect(url) as client, Worker(script, url, "job", TTL[mode]) as holder:
        token = int(holder.expect("held")[0])
        assert client.lock("job").try_acquire() is None
        holder.kill()
        with client.lock("job").acquire(wait=PATIENCE) as lease:
            assert lease.token > token
