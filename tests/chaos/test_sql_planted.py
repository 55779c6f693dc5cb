"""The judgement of the chaos tests would notice: each bug that is planted in the SQL stores is caught, by a rule that
names it. In short, on one engine each; GRIPFAST_CHAOS=long plants all of them in both."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from chaos.sql_stage import SERVED_AGAIN, TTL, Theatre, sql_nursery
from chaos.stage import LONG
from gripfast_lab.verify.journal import now
from support.processes import Worker
from support.proxy import Proxy
from support.sql_process import HOST, SqlServer
from support.sql_servers import MariaServer, PostgresServer

pytestmark = pytest.mark.timeout(600 if LONG else 180)


class Caught(NamedTuple):
    engine: str
    """Where it is planted in the short form; nowhere if that takes long."""
    mode: str
    scene: Callable[[Theatre, str], None]
    rule: str
    """One of those that catch it."""


def contend(theatre: Theatre, bug: str, grants: int = 60, **settings: Any) -> None:
    """Without any fault."""
    theatre.play(bug=bug, **settings)
    theatre.go_on(grants=grants)
    theatre.healed()
    theatre.judge()


def contend_for_longer_than_leases_last(theatre: Theatre, bug: str) -> None:
    contend(theatre, bug, grants=5, renews=0.0, threads=0, tasks=0, keepers=2, names=("kept",))


def hold_replies(theatre: Theatre, bug: str) -> None:
    theatre.play(bug=bug, request_timeout=0.3, names=("a",), hold=(0.0, 0.3))
    for _ in range(6):
        theatre.go_on(grants=5)
        theatre.proxy.hold("replies")
        theatre.wait_out(0.5)
        theatre.proxy.let_go()
    theatre.healed()
    theatre.judge()


def cut(theatre: Theatre, bug: str) -> None:
    theatre.play(bug=bug, ttls=(5.0,), waits=(5.0,))
    theatre.go_on(grants=10)
    since = now()
    theatre.proxy.cut()
    theatre.each(lambda stage: stage.ended_sessions(since))
    theatre.wait_out(2.0)
    theatre.healed()
    theatre.judge()


def stop_a_holder(theatre: Theatre, bug: str) -> None:
    alone: dict[str, Any] = {"threads": 1, "tasks": 0, "keepers": 0, "names": ("a",), "waits": (0.5,), "ttls": (TTL,)}
    theatre.play(bug=bug, processes=1, **alone | {"hold": (60.0, 60.0)})
    [stage], [holder] = theatre.stages, theatre.crews
    theatre.go_on(grants=1)
    theatre.crews.append(stage.crew(processes=1, first=1, **alone))
    holder.stop("process 0")
    theatre.wait_out(TTL * 1.2)
    theatre.healed()
    stage.wait_for_recovery(TTL + SERVED_AGAIN + 0.5)
    holder.go_on("process 0")
    holder.end()
    theatre.crews.remove(holder)
    theatre.judge()


CAUGHT: dict[str, Caught] = {
    "a claim takes what has not run out": Caught("MariaDB", "lease", contend, "overlap|robbed"),
    "a release does not ask whose it is": Caught("PostgreSQL", "lease", hold_replies, "robbed|overlap"),
    "a token is given twice": Caught("MariaDB", "lease", contend, "token"),
    "the engine keeps a lease for half its time": Caught(
        "PostgreSQL", "lease", contend_for_longer_than_leases_last, "overlap"
    ),
    "a row is read, not locked": Caught("MariaDB", "row", contend, "overlap"),
    "an advisory lock is shared": Caught("PostgreSQL", "advisory", contend, "overlap|robbed"),
    "a session's token is given twice": Caught("MariaDB", "advisory", contend, "token"),
    "a holder never sees that its session is gone": Caught(
        "PostgreSQL", "row", cut, "after its session was gone|stuck"
    ),
    "the server never ends a silent session": Caught("", "row", stop_a_holder, "stuck"),
}


@pytest.fixture(scope="module")
def nursery_for_sql() -> Iterator[Worker]:
    with sql_nursery() as nursery:
        yield nursery


ENGINES: dict[str, type[SqlServer]] = {"PostgreSQL": PostgresServer, "MariaDB": MariaServer}
PLANTED = [(bug, engine) for bug, caught in CAUGHT.items() for engine in ENGINES if LONG or engine == caught.engine]
"""Each in one engine; in both in the long form."""


@pytest.fixture(scope="module")
def sql_server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    with ENGINES[request.param]() as server:
        yield server


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(("bug", "sql_server"), PLANTED, indirect=["sql_server"])
def test_a_planted_bug_is_caught(
    bug: str, nursery_for_sql: Worker, sql_server: SqlServer, tmp_path: Path, seed: str
) -> None:
    caught = CAUGHT[bug]
    with Proxy((HOST, sql_server.port)) as proxy:
        theatre = Theatre(nursery_for_sql, sql_server, proxy, tmp_path, seed, modes=(caught.mode,))
        try:
            with pytest.raises(AssertionError, match=caught.rule):
                caught.scene(theatre, bug)
        finally:
            theatre.close()
