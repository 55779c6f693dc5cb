"""Members of etcd that are killed, stopped and cut off from each other, leaders that are replaced, a history that is
compacted, clocks that jump: several processes, sync and async, are at work meanwhile. Nobody gets in beside another,
and nothing stays behind.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.etcd_stage import TTL, EtcdStage, etcd_nursery, histories
from chaos.stage import LONG
from support.etcd_servers import EtcdServer, Trio
from support.jumping_clock import JumpingClock
from support.processes import Worker

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # leases are dropped on purpose
    pytest.mark.timeout(1200 if LONG else 180),
]
HOUR = 3600.0


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> JumpingClock:
    """Of all clients."""
    return JumpingClock(tmp_path_factory.mktemp("clock") / "clients")


@pytest.fixture(scope="module")
def nursery_for_etcd(clock: JumpingClock) -> Iterator[Worker]:
    with etcd_nursery(clock) as nursery:
        yield nursery


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    with Trio(cuts=True) as trio:
        yield trio


@pytest.fixture
def stage(nursery_for_etcd: Worker, trio: Trio, tmp_path: Path, seed: str) -> Iterator[EtcdStage]:
    stage = EtcdStage(nursery_for_etcd, trio, tmp_path, seed)
    yield stage
    stage.close()


# Faults ---------------------------------------------------------------------------------------------------------------


def kill_leader(stage: EtcdStage, clock: JumpingClock) -> None:
    restart(stage, stage.trio.leader())


def kill_follower(stage: EtcdStage, clock: JumpingClock) -> None:
    restart(stage, stage.chance.choice(stage.trio.followers()))


def restart(stage: EtcdStage, member: EtcdServer) -> None:
    member.kill()
    try:
        stage.go_on(grants=5)
    finally:
        member.restart()


def kill_all(stage: EtcdStage, clock: JumpingClock) -> None:
    """They come back with their data, one after the other: the first does not serve before it has another."""
    for member in stage.trio.servers:
        member.kill()
    stage.trio.restart_all()


def stop_leader(stage: EtcdStage, clock: JumpingClock) -> None:
    """It goes on as one that was replaced, and does not know."""
    stop(stage, [stage.trio.leader()])


def stop_follower(stage: EtcdStage, clock: JumpingClock) -> None:
    stop(stage, stage.trio.followers()[:1])


def stop_majority(stage: EtcdStage, clock: JumpingClock) -> None:
    stop(stage, stage.chance.sample(stage.trio.servers, 2))


def stop(stage: EtcdStage, members: list[EtcdServer]) -> None:
    for member in members:
        member.pause()
    try:
        stage.wait_out(TTL * stage.chance.uniform(0.3, 1.5))
    finally:
        for member in members:
            member.resume()


def cut_off_leader(stage: EtcdStage, clock: JumpingClock) -> None:
    cut_off(stage, stage.trio.leader())


def cut_off_follower(stage: EtcdStage, clock: JumpingClock) -> None:
    cut_off(stage, stage.chance.choice(stage.trio.followers()))


def cut_off(stage: EtcdStage, member: EtcdServer) -> None:
    stage.trio.cut_off(member)
    try:
        stage.wait_out(TTL * 1.5)
        assert not member.is_healthy()
    finally:
        stage.trio.join()


def move_leader(stage: EtcdStage, clock: JumpingClock) -> None:
    """As an operator does before maintenance: nobody is down."""
    for _ in range(3):
        leader, heir = stage.trio.leader(), stage.chance.choice(stage.trio.followers())
        leader.ctl("move-leader", heir.member_id())
        stage.go_on(grants=5)


def compact(stage: EtcdStage, clock: JumpingClock) -> None:
    """While members defragment, they answer nothing."""
    for member in stage.trio.servers:
        stage.trio.ctl("compaction", str(stage.trio.revision()), "--physical")
        member.ctl("defrag")
        stage.go_on(grants=5)


def jump(stage: EtcdStage, clock: JumpingClock) -> None:
    """The wall clocks of all clients, while the leader is stopped for a while."""
    leader = stage.trio.leader()
    for ahead in (HOUR, -HOUR, 2 * TTL, 0.0):
        clock.set(ahead=ahead)
        stage.go_on(grants=5)
    clock.set(ahead=stage.chance.choice([-HOUR, HOUR]))
    stop(stage, [leader])
    clock.set(ahead=0.0)


Fault = Callable[[EtcdStage, JumpingClock], None]
FAULTS: dict[str, Fault] = {
    "the leader is killed": kill_leader,
    "the leader is stopped, and is none when it goes on": stop_leader,
    "the leader is cut off": cut_off_leader,
    "the leadership is moved": move_leader,
    "a follower is killed": kill_follower,
    "a follower is stopped": stop_follower,
    "a follower is cut off": cut_off_follower,
    "two members are stopped": stop_majority,
    "all members are killed": kill_all,
    "the history is compacted and members defragment": compact,
    "the clocks of clients jump": jump,
}


@pytest.mark.parametrize("faults", histories(FAULTS).values(), ids=histories(FAULTS))
def test_nobody_gets_in_beside_another_while(stage: EtcdStage, clock: JumpingClock, faults: list[Fault]) -> None:
    crew = stage.play()
    stage.go_on(grants=10)
    for fault in faults * len(stage.rounds(1)):
        stage.broke()
        fault(stage, clock)
        stage.over()
    print(f"{stage.grants()} grants, {len(faults) * len(stage.rounds(1))} faults")
    stage.judge_all(crew)


def test_processes_are_killed_and_stopped_whatever_they_are_at(stage: EtcdStage) -> None:
    """What a dead one had is free when its lease is over."""
    crew = stage.play(processes=3)
    for number in stage.rounds(1):
        stage.go_on(grants=stage.chance.randrange(5, 20))
        stage.broke()
        if number == 0:
            crew.kill("process 1")
        crew.stop("process 2")
        stage.wait_out(TTL * 1.2)
        crew.go_on("process 2")
        stage.healed()
    stage.go_on(grants=20)
    stage.judge_all(crew)
