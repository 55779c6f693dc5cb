"""Clocks that jump: of a node, and of clients. Exclusion may break by it, and does; the tokens grow all the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.five import LOAD, MAX_TTL, NODE_TIMEOUT, RECOVERED, TTL, as_new, five_nodes
from chaos.stage import NURSERY, Stage
from gripfast_lab.verify.journal import now
from support.both_colours import both_colours, staged
from support.jumping_clock import JumpingClock
from support.processes import Worker
from support.redis_server import RedisServer
from support.redlock_nodes import NODES

HOUR = 3600.0
AMPLE = 20.0
"""A ttl within which two nodes are started again, on a machine with other things to do."""


@pytest.fixture(scope="module")
def all_clocks(tmp_path_factory: pytest.TempPathFactory) -> list[JumpingClock]:
    folder = tmp_path_factory.mktemp("clocks")
    return [JumpingClock(folder / str(number)) for number in range(NODES)]


@pytest.fixture(scope="module")
def servers(all_clocks: list[JumpingClock]) -> Iterator[list[RedisServer]]:
    with five_nodes(all_clocks) as nodes:
        yield nodes


@pytest.fixture
def clocks(all_clocks: list[JumpingClock]) -> list[JumpingClock]:
    """Of the nodes; right at first."""
    for clock in all_clocks:
        clock.set(ahead=0.0)
    return all_clocks


@pytest.fixture
def url(servers: list[RedisServer], clocks: list[JumpingClock]) -> str:
    return as_new(servers)


@pytest.mark.parametrize("first", [0, 1], ids=["blocking holder", "asyncio holder"])
@staged
async def test_a_clock_that_jumps_lets_two_in_and_the_later_one_has_the_larger_token(
    servers: list[RedisServer], clocks: list[JumpingClock], url: str, first: int
) -> None:
    late = servers[3:]
    ample = url.replace(f"max_ttl={MAX_TTL:g}", f"max_ttl={AMPLE:g}")
    async with both_colours(ample, request_timeout=NODE_TIMEOUT) as actors:
        holder, rival = actors[first], actors[1 - first]
        for node in late:
            node.kill()
        lease = await holder.acquire("a", ttl=AMPLE, renew=False)
        for node in late:
            node.restart()
        clocks[0].set(ahead=10 * AMPLE)
        following = await rival.acquire("a", ttl=AMPLE)
        assert lease.held
        assert following.token > lease.token


def test_the_clock_of_a_node_jumps_to_and_fro(stage: Stage, clocks: list[JumpingClock]) -> None:
    """Every other time while that node is needed: two others are down."""
    crew = stage.crew(**LOAD)
    for number in stage.rounds(4):
        down = stage.chance.sample(list(stage.servers), 2) if number % 2 else []
        stage.broke()
        for node in down:
            node.kill()
        stage.go_on(grants=10)
        up = [place for place, node in enumerate(stage.servers) if node not in down]
        since = now()
        clocks[stage.chance.choice(up)].set(ahead=stage.chance.choice([-HOUR, -2 * TTL, 0.0, 2 * TTL, HOUR]))
        stage.jumped(since)
        for node in down:
            node.restart()
        stage.healed()
    stage.broke()
    since = now()
    for clock in clocks:
        clock.set(ahead=0.0)
    stage.jumped(since)
    stage.healed()
    stage.go_on(grants=15)
    stage.judge(crew, may_be_unreachable=True, recover_within=RECOVERED)


@pytest.fixture
def their_clock(tmp_path: Path) -> JumpingClock:
    """Of some of the clients."""
    return JumpingClock(tmp_path / "clock-of-clients")


@pytest.fixture
def other_nursery(their_clock: JumpingClock) -> Iterator[Worker]:
    wrapper = ["env", *(f"{name}={value}" for name, value in their_clock.environment.items())]
    with Worker(str(NURSERY), wrapper=wrapper) as nursery:
        yield nursery


def test_clients_whose_clocks_differ_and_jump_get_tokens_that_grow(
    stage: Stage, their_clock: JumpingClock, other_nursery: Worker
) -> None:
    """Nothing is excused: a lease is not dated by that clock."""
    crew = stage.crew(processes=1, **LOAD)
    others = stage.crew(processes=1, first=1, nursery=other_nursery, **LOAD)
    for ahead in [-HOUR, 0.01, HOUR, 0.0]:
        for _ in stage.rounds(1):
            their_clock.set(ahead=ahead)
            for process in ("process 0", "process 1"):
                stage.go_on(grants=5, process=process)
    stage.healed()
    stage.go_on(grants=10)
    others.end()
    stage.judge(crew, may_be_unreachable=True, recover_within=RECOVERED)
    tokens = [event.token for event in stage.events() if event.kind == "granted"]
    assert max(tokens) - min(tokens) > HOUR * 1_000_000 / 2
