"""What happens to those who use the locks: killed while they hold or wait, stopped for longer than their ttl."""

from typing import Any

import pytest

from chaos.stage import Crew, Stage
from gripfast_lab.sim.attempts import Attempt, attempts_of
from support.waiting import until

TTL = 1.0
SERVED_AGAIN = 1.5


def crew_of_one(stage: Stage, number: int, **settings: Any) -> Crew:
    return stage.crew(processes=1, first=number, **settings)


def holder_for_good(stage: Stage, actors: dict[str, int]) -> Crew:
    holder = crew_of_one(stage, 0, names=("a",), waits=(0.0,), hold=(60.0, 60.0), renews=1.0, keepers=0, **actors)
    until(lambda: is_holding(stage, "process 0/"))
    return holder


def latest(stage: Stage, process: str) -> Attempt | None:
    mine = [each for each in attempts_of(stage.events()) if each.asked.who.startswith(process)]
    return mine[-1] if mine else None


def is_holding(stage: Stage, process: str) -> bool:
    attempt = latest(stage, process)
    return attempt is not None and attempt.granted is not None and attempt.closed_by is None


def is_waiting(stage: Stage, process: str) -> bool:
    attempt = latest(stage, process)
    return attempt is not None and attempt.granted is None and attempt.closed_by is None


def test_processes_are_killed_whatever_they_are_at(stage: Stage) -> None:
    steady = stage.crew(processes=1)
    for number in stage.rounds(4):
        victim = crew_of_one(stage, 1 + number)
        stage.go_on(grants=stage.chance.randrange(1, 40))
        victim.kill(f"process {1 + number}")
    stage.healed()
    stage.go_on(grants=20)
    stage.judge(steady, recover_within=TTL + SERVED_AGAIN)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("actors", [{"threads": 1, "tasks": 0}, {"threads": 0, "tasks": 1}], ids=["thread", "task"])
def test_a_process_is_killed_while_it_holds(stage: Stage, actors: dict[str, int]) -> None:
    """It would hold for a minute; the next one has the lock when its ttl is over."""
    holder = holder_for_good(stage, actors)
    others = crew_of_one(stage, 1, names=("a",), keepers=0)
    until(lambda: is_waiting(stage, "process 1/"))
    holder.kill("process 0")
    stage.healed()
    stage.go_on(grants=5)
    stage.judge(others, recover_within=TTL + 0.5)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("actors", [{"threads": 2, "tasks": 0}, {"threads": 0, "tasks": 2}], ids=["threads", "tasks"])
def test_processes_are_killed_while_they_wait(stage: Stage, actors: dict[str, int]) -> None:
    """Nobody hears what they are pushed: they are passed over at once, or at the latest when their ttl is over."""
    settings = {"names": ("a",), "keepers": 0}
    others = crew_of_one(stage, 0, **settings)
    with stage.server.client() as client:
        for number in stage.rounds(3):
            waiters = crew_of_one(stage, 1 + number, **settings, waits=(2.0,), **actors)
            until(lambda number=number: is_waiting(stage, f"process {1 + number}/"))
            stage.broke()
            waiters.kill(f"process {1 + number}")
            stage.healed()
            stage.go_on(grants=10)
        assert client.pubsub_channels()
    stage.judge(others, recover_within=TTL + SERVED_AGAIN)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("actors", [{"threads": 1, "tasks": 0}, {"threads": 0, "tasks": 1}], ids=["thread", "task"])
def test_a_process_that_holds_is_stopped_for_longer_than_its_ttl(stage: Stage, actors: dict[str, int]) -> None:
    holder = holder_for_good(stage, actors)
    others = crew_of_one(stage, 1, names=("a",), keepers=0)
    until(lambda: is_waiting(stage, "process 1/"))
    holder.stop("process 0")
    stage.healed()
    stage.go_on(grants=5)
    holder.go_on("process 0")
    until(lambda: not is_holding(stage, "process 0/"))
    stopped = next(each for each in attempts_of(stage.events()) if each.asked.who.startswith("process 0/"))
    assert stopped.closed_by is not None
    assert stopped.closed_by.kind == "lost"
    holder.end()
    stage.judge(others, recover_within=TTL + 0.5)


def test_processes_are_stopped_whatever_they_are_at(stage: Stage) -> None:
    crew = stage.crew()
    for _ in stage.rounds(1):
        stage.go_on(grants=stage.chance.randrange(5, 30))
        process = stage.chance.choice(["process 0", "process 1"])
        stage.broke()
        crew.stop(process)
        stage.wait_out(TTL * 1.1)
        crew.go_on(process)
        stage.healed()
    stage.go_on(grants=20)
    stage.judge(crew, may_be_unreachable=True, recover_within=TTL + SERVED_AGAIN)
