"""SQL servers that are killed, stopped, cut off and kept from answering, sessions that are ended, processes that die:
all three kinds of locks, both colours and several processes are at work meanwhile, and nothing that must not happen
happens. `test_sql_planted` shows that it would be noticed.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.sql_stage import TTL, Theatre, sql_nursery
from chaos.stage import LONG
from gripfast_lab.verify.journal import now
from support.processes import Worker
from support.proxy import Proxy
from support.sql_process import HOST, SqlServer
from support.sql_servers import MariaServer, PostgresServer

pytestmark = pytest.mark.timeout(600 if LONG else 180)

LASTS = TTL * 1.8
"""Seconds that a fault lasts: longer than a lease lives, and than anybody waits for a reply."""
IMPATIENT = 1.4
"""Seconds for one request, where a fault lasts longer; enough to connect on a busy machine."""


@pytest.fixture(scope="module")
def nursery_for_sql() -> Iterator[Worker]:
    with sql_nursery() as nursery:
        yield nursery


@pytest.fixture(scope="module", params=[PostgresServer, MariaServer], ids=["PostgreSQL", "MariaDB"])
def sql_server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    with request.param() as server:
        yield server


@pytest.fixture
def theatre(nursery_for_sql: Worker, sql_server: SqlServer, tmp_path: Path, seed: str) -> Iterator[Theatre]:
    with Proxy((HOST, sql_server.port)) as proxy:
        theatre = Theatre(nursery_for_sql, sql_server, proxy, tmp_path, seed)
        yield theatre
        sql_server.resume()
        theatre.close()


# Faults -------------------------------------------------------------------------------------------------------------


def restart(theatre: Theatre) -> None:
    theatre.broke()
    since = now()
    theatre.server.restart()
    theatre.each(lambda stage: stage.ended_sessions(since))


def stop(theatre: Theatre) -> None:
    """For longer than any lease lives."""
    theatre.broke()
    theatre.server.pause()
    theatre.wait_out(LASTS)
    theatre.server.resume()


def end_sessions(theatre: Theatre) -> None:
    theatre.broke()
    for share in (0.3, 1.0, 0.5):
        theatre.kill_sessions(share)
        theatre.go_on(grants=theatre.chance.randrange(1, 5))


def cut(theatre: Theatre) -> None:
    theatre.broke()
    for _ in range(3):
        since = now()
        theatre.proxy.cut()
        theatre.each(lambda stage, since=since: stage.ended_sessions(since))
        theatre.go_on(grants=theatre.chance.randrange(1, 5))


def hold_replies(theatre: Theatre) -> None:
    """For longer than anybody waits for one, and than a lease lives."""
    theatre.broke()
    theatre.proxy.hold("replies")
    theatre.wait_out(LASTS)
    theatre.proxy.let_go()


FAULTS: dict[str, Callable[[Theatre], None]] = {
    "the server is killed and comes back with its data": restart,
    "the server is stopped for longer than a ttl": stop,
    "sessions are ended": end_sessions,
    "connections are cut": cut,
    "replies are held back": hold_replies,
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_nobody_gets_in_beside_another_while(theatre: Theatre, fault: Callable[[Theatre], None]) -> None:
    theatre.play(request_timeout=IMPATIENT if fault in (stop, hold_replies) else 2.0)
    for _ in theatre.rounds(1):
        theatre.go_on(grants=10)
        fault(theatre)
        theatre.healed()
    theatre.go_on(grants=10)
    theatre.judge()


def test_processes_are_killed_and_stopped_whatever_they_are_at(theatre: Theatre) -> None:
    """What a dead one had is free when its ttl is over; what lived in its session, at once."""
    theatre.play(processes=3, request_timeout=2.0)  # the server is not what fails here
    for number in theatre.rounds(1):
        theatre.go_on(grants=theatre.chance.randrange(5, 20))
        theatre.broke()
        for crew in theatre.crews:
            if number == 0:
                crew.kill("process 1")
            crew.stop("process 2")
        theatre.wait_out(TTL * 1.2)
        for crew in theatre.crews:
            crew.go_on("process 2")
        theatre.healed()
    theatre.go_on(grants=20)
    theatre.judge()


def test_whoever_the_engine_serves_takes_what_it_is_given(theatre: Theatre) -> None:
    """All have much patience, and ask for the same: nobody may have the lock at the server and not know it."""
    theatre.play(names=("a",), keepers=0, waits=(30.0,), ttls=(30.0,))
    theatre.healed()
    theatre.go_on(grants=theatre.rounds(30).stop)
    theatre.judge()
