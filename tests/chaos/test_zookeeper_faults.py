"""ZooKeeper servers that are killed, stopped and cut off from each other, connections that are cut, replies that are
lost: several processes and both colours are at work meanwhile, nobody gets in beside another, and nothing stays behind.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chaos.cutting import World
from chaos.losing import lose_every_reply
from chaos.stage import LONG
from chaos.zookeeper_stage import SESSION, ZooKeeperStage, histories, left_behind, zookeeper_nursery
from support.processes import Worker
from support.proxy import Proxy
from support.server_process import HOST
from support.waiting import until
from support.zookeeper_servers import Ensemble, ZooKeeperServer

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # leases are dropped on purpose
    pytest.mark.timeout(600 if LONG else 180),
]


@pytest.fixture(scope="module")
def nursery_for_zookeeper() -> Iterator[Worker]:
    with zookeeper_nursery() as nursery:
        yield nursery


# One server -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def before(zookeeper: ZooKeeperServer) -> Iterator[Proxy]:
    """What stands before the server."""
    with Proxy((HOST, zookeeper.port)) as proxy:
        yield proxy


@pytest.fixture
def stage(
    nursery_for_zookeeper: Worker, zookeeper: ZooKeeperServer, before: Proxy, tmp_path: Path, seed: str
) -> Iterator[ZooKeeperStage]:
    url = behind(before, zookeeper.lock_space())
    stage = ZooKeeperStage(nursery_for_zookeeper, url, zookeeper.client, tmp_path, seed)
    yield stage
    zookeeper.resume()
    stage.close()


def behind(proxy: Proxy, url: str) -> str:
    return f"zookeeper://{proxy.host}:{proxy.port}?{url.partition('?')[2]}"


def restart(stage: ZooKeeperStage, server: ZooKeeperServer, proxy: Proxy) -> None:
    server.restart()


def stop(stage: ZooKeeperStage, server: ZooKeeperServer, proxy: Proxy) -> None:
    server.pause()
    stage.wait_out(SESSION * 1.2)
    server.resume()


def cut(stage: ZooKeeperStage, server: ZooKeeperServer, proxy: Proxy) -> None:
    for _ in range(5):
        proxy.cut()
        stage.go_on(grants=stage.chance.randrange(1, 5))


def hold_replies(stage: ZooKeeperStage, server: ZooKeeperServer, proxy: Proxy) -> None:
    proxy.hold("replies")
    stage.wait_out(SESSION * 1.2)
    proxy.let_go()


def lose_replies(stage: ZooKeeperStage, server: ZooKeeperServer, proxy: Proxy) -> None:
    for _ in range(5):
        proxy.drop_reply(stage.chance.randrange(1, 20))
        until(lambda: not proxy.armed())
        stage.go_on(grants=2)


Fault = Callable[[ZooKeeperStage, ZooKeeperServer, Proxy], None]
FAULTS: dict[str, Fault] = {
    "the server is killed and comes back with its data": restart,
    "the server is stopped for longer than sessions live": stop,
    "connections are cut": cut,
    "replies are held back for longer than sessions live": hold_replies,
    "replies are lost": lose_replies,
}


@pytest.mark.parametrize("faults", histories(FAULTS).values(), ids=histories(FAULTS))
def test_nobody_gets_in_beside_another_while(
    stage: ZooKeeperStage, zookeeper: ZooKeeperServer, before: Proxy, faults: list[Fault]
) -> None:
    crew = stage.play(request_timeout=2.0)
    stage.go_on(grants=10)
    for fault in faults * len(stage.rounds(1)):
        stage.broke()
        fault(stage, zookeeper, before)
        stage.over()
    stage.judge_all(crew)


def test_processes_are_killed_and_stopped_whatever_they_are_at(stage: ZooKeeperStage) -> None:
    """What a dead one had is free when its session is over."""
    crew = stage.play(processes=3)
    for number in stage.rounds(1):
        stage.go_on(grants=stage.chance.randrange(5, 20))
        stage.broke()
        if number == 0:
            crew.kill("process 1")
        crew.stop("process 2")
        stage.wait_out(SESSION * 1.2)
        crew.go_on("process 2")
        stage.healed()
    stage.go_on(grants=20)
    stage.judge_all(crew)


WAYS = {
    "blocking, connected": ("blocking", False),
    "asyncio, new": ("asyncio", True),
    "blocking, new": ("blocking", True),
    "asyncio, connected": ("asyncio", False),
}
"""Who loses the replies; and whether it loses those to a new client, which connects."""
TRIED = list(WAYS)[: None if LONG else 2]


@pytest.fixture(scope="module")
def space(zookeeper: ZooKeeperServer) -> Iterator[str]:
    url = zookeeper.lock_space()
    yield url
    with zookeeper.client() as observer:
        assert left_behind(observer, url, within=1.0) == []


@pytest.mark.parametrize("way", TRIED)
def test_every_reply_in_turn_is_lost(space: str, before: Proxy, way: str) -> None:
    """A caller need not notice: each is asked for once more."""
    colour, is_new = WAYS[way]
    with closing(World(colour, space, before, behind(before, space), request_timeout=5.0)) as world:
        lost = lose_every_reply(world, is_new)
    assert lost.replies > 8
    assert not lost.problems


# Three servers --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Ensemble]:
    with Ensemble("syncLimit=5") as ensemble:
        yield ensemble


@pytest.fixture
def large_stage(
    nursery_for_zookeeper: Worker, ensemble: Ensemble, tmp_path: Path, seed: str
) -> Iterator[ZooKeeperStage]:
    stage = ZooKeeperStage(nursery_for_zookeeper, ensemble.lock_space(), ensemble.client, tmp_path, seed)
    yield stage
    stage.close()


def kill_leader(stage: ZooKeeperStage, ensemble: Ensemble) -> None:
    leader = ensemble.leader()
    leader.kill()
    try:
        stage.go_on(grants=5, within=30)  # an election, and new connections, on a busy machine
    finally:
        leader.restart()


def stop_leader(stage: ZooKeeperStage, ensemble: Ensemble) -> None:
    leader = ensemble.leader()
    leader.pause()
    try:
        stage.wait_out(SESSION * 1.2)
    finally:
        leader.resume()


def cut_off_leader(stage: ZooKeeperStage, ensemble: Ensemble) -> None:
    cut_off(stage, ensemble, ensemble.leader())


def cut_off_follower(stage: ZooKeeperStage, ensemble: Ensemble) -> None:
    cut_off(stage, ensemble, ensemble.follower())


def cut_off(stage: ZooKeeperStage, ensemble: Ensemble, server: ZooKeeperServer) -> None:
    ensemble.cut_off(server)
    try:
        stage.wait_out(SESSION * 1.2)
    finally:
        ensemble.join(server)


LargeFault = Callable[[ZooKeeperStage, Ensemble], None]
LARGE_FAULTS: dict[str, LargeFault] = {
    "the leader is killed": kill_leader,
    "the leader is stopped, and is none when it goes on": stop_leader,
    "the leader is cut off from those that follow it": cut_off_leader,
    "a follower is cut off from its leader": cut_off_follower,
}


@pytest.mark.parametrize("faults", histories(LARGE_FAULTS).values(), ids=histories(LARGE_FAULTS))
def test_nobody_gets_in_beside_another_in_an_ensemble_while(
    large_stage: ZooKeeperStage, ensemble: Ensemble, faults: list[LargeFault]
) -> None:
    crew = large_stage.play(request_timeout=2.0)
    large_stage.go_on(grants=10)
    for fault in faults * len(large_stage.rounds(1)):
        large_stage.broke()
        fault(large_stage, ensemble)
        ensemble.all_serve()
        large_stage.over()
    large_stage.judge_all(crew)
