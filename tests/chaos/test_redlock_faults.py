"""Five real nodes, some of which are killed, stopped, cut off or made to forget, and clients to whom the same happens.

As long as a majority is there everyone is served. Nothing is excused but that a lease may be lost with the memory of a
node; and nobody gets in beside somebody else even then.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import gripfast
from chaos.five import LOAD, MAX_TTL, NODE_TIMEOUT, RECOVERED, TTL, as_new, five_nodes, some, url_of
from chaos.stage import Stage
from gripfast_lab.sim.attempts import attempts_of
from gripfast_lab.sim.history import ONLY_TOKENS
from gripfast_lab.verify.journal import now
from support.both_colours import Outcome, both_colours, each, outcome, staged
from support.proxy import Proxy
from support.redis_server import HOST, RedisServer
from support.waiting import auntil, until

pytestmark = pytest.mark.in_turn(2)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RedisServer]]:
    with five_nodes() as nodes:
        yield nodes


@pytest.fixture
def url(servers: list[RedisServer]) -> str:
    return as_new(servers)


# The nodes ----------------------------------------------------------------------------------------------------------


def test_nodes_are_killed_and_come_back_with_their_memory(stage: Stage) -> None:
    crew = stage.crew(**LOAD)
    for _ in stage.rounds(2):
        stage.go_on(grants=15)
        down = some(stage)
        stage.broke()
        for node in down:
            node.kill()
        stage.go_on(grants=15)
        for node in down:
            node.restart()
        stage.healed()
    stage.go_on(grants=15)
    stage.judge(crew, may_be_unreachable=True, recover_within=RECOVERED)
    assert share_that_was_told(stage) < 0.1


def share_that_was_told(stage: Stage) -> float:
    """That there was no majority, though there was: a few may be, when nodes go and the machine is busy."""
    kinds = [event.kind for event in stage.events()]
    return kinds.count("unreachable") / kinds.count("asked")


def test_nodes_are_stopped_and_go_on(stage: Stage) -> None:
    """What they were asked meanwhile they do when they go on, long after anybody waits for it."""
    crew = stage.crew(**LOAD)
    for number in stage.rounds(2):
        stage.go_on(grants=15)
        stopped = some(stage)
        stage.broke()
        for node in stopped:
            node.pause()
        stage.wait_out((TTL * 0.4, TTL * 1.2)[number % 2])
        stage.go_on(grants=15)
        for node in stopped:
            node.resume()
        stage.healed()
    stage.go_on(grants=15)
    stage.judge(crew, may_be_unreachable=True, recover_within=RECOVERED)
    assert share_that_was_told(stage) < 0.1


def test_nodes_come_back_empty(stage: Stage) -> None:
    """When they are needed: those who hold, hold just three, and one of the three forgets."""
    crew = stage.crew(**LOAD)
    for _ in stage.rounds(1):
        stage.go_on(grants=10)
        *down, forgetful = stage.chance.sample(list(stage.servers), 3)
        stage.broke()
        for node in down:
            node.kill()
        stage.go_on(grants=10)
        since = now()
        forgetful.restart_empty()
        stage.forgot(since, ONLY_TOKENS)
        for node in down:
            node.restart()
        stage.wait_out(MAX_TTL + 1.0)  # all vote again, and those who looked for it know that
        stage.healed()
        stage.go_on(grants=10)
    stage.judge(crew, may_be_unreachable=True, recover_within=RECOVERED)


@pytest.mark.parametrize("first", [0, 1], ids=["blocking holder", "asyncio holder"])
@staged
async def test_a_node_that_forgot_votes_for_nobody_else_while_a_lease_may_live(
    servers: list[RedisServer], url: str, first: int
) -> None:
    forgetful, _, _, *late = servers
    async with both_colours(url, request_timeout=NODE_TIMEOUT) as actors:
        holder, rival = actors[first], actors[1 - first]
        for node in late:
            node.kill()
        lease = await holder.acquire("a", ttl=TTL, renew=False)
        for node in late:
            node.restart()
        forgetful.restart_empty()
        following = await rival.acquire("a", ttl=TTL)
        assert lease.remaining() == 0.0
        assert following.token > lease.token
        await rival.release(following)
        for node in late:
            node.kill()
        await auntil(lambda: is_served(rival))  # by three, of which that one is one


async def is_served(actor: Any) -> bool:
    return (await outcome(actor.try_acquire("b", ttl=TTL))).result is not None


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_without_a_majority_nobody_gets_in_and_everyone_is_told(stage: Stage, how: str) -> None:
    crew = stage.crew(**LOAD)
    for _ in stage.rounds(1):
        stage.go_on(grants=10)
        down = stage.chance.sample(list(stage.servers), 3)
        stage.broke()
        for node in down:
            node.kill() if how == "killed" else node.pause()
        since = now()
        for told in asyncio.run(asked_in_vain(stage.url)):
            assert_tells_of_each(told, stage, down)
        until(lambda since=since: told_since(stage, since) > 5)
        ends = now()
        for node in down:
            node.restart() if how == "killed" else node.resume()
        stage.healed()
        stage.go_on(grants=10)
        assert [each for each in attempts_of(stage.events()) if each.asked.at > since and each.starts < ends] == []
    stage.judge(crew, may_be_unreachable=True, recover_within=RECOVERED)


async def asked_in_vain(url: str) -> list[Outcome]:
    async with both_colours(url, request_timeout=NODE_TIMEOUT) as actors:
        return await each(actors, lambda actor: outcome(actor.try_acquire("another", ttl=TTL)))


def assert_tells_of_each(told: Outcome, stage: Stage, down: list[RedisServer]) -> None:
    assert isinstance(told.error, gripfast.StoreUnavailable), told
    assert len(told.error.nodes) == len(stage.servers)
    for node in down:
        (state,) = [state for name, state in told.error.nodes.items() if f":{node.port}" in name]
        assert state != "answered"
        assert f":{node.port}" in str(told.error)


def told_since(stage: Stage, moment: float) -> int:
    return len([event for event in stage.events() if event.kind == "unreachable" and event.at > moment])


# The clients --------------------------------------------------------------------------------------------------------


def test_processes_are_stopped_and_killed_while_nodes_restart(stage: Stage) -> None:
    crew = stage.crew(**LOAD)
    for number in stage.rounds(1):
        victim = stage.crew(processes=1, first=2 + number, **LOAD)
        stage.go_on(grants=stage.chance.randrange(5, 20))
        stage.broke()
        paused = stage.chance.choice(["process 0", "process 1"])
        crew.stop(paused)
        for node in some(stage):
            node.restart()
        victim.kill(f"process {2 + number}")
        stage.wait_out(TTL * 1.1)
        crew.go_on(paused)
        stage.healed()
        stage.go_on(grants=10)
    stage.judge(crew, may_be_unreachable=True, recover_within=RECOVERED)


@pytest.fixture
def proxies(servers: list[RedisServer]) -> Iterator[list[Proxy]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Proxy((HOST, node.port))) for node in servers]


def test_one_client_is_cut_off_from_some_nodes_and_another_is_not(stage: Stage, proxies: list[Proxy]) -> None:
    """From two it goes on; from three it is told that there is no majority, while the other is served."""
    crew = stage.crew(processes=1, **LOAD)
    cut_off = stage.crew(processes=1, first=1, url=url_of(proxy.port for proxy in proxies), **LOAD)
    for _ in stage.rounds(1):
        for lost in (2, 3):
            stage.go_on(grants=10)
            gone = stage.chance.sample(proxies, lost)
            stage.broke()
            for proxy in gone:
                proxy.black_hole()
            if lost == 2:
                stage.go_on(grants=5, process="process 1")
            else:
                since = now()
                until(lambda since=since: told_since(stage, since))
                stage.go_on(grants=10, process="process 0")
            for proxy in gone:
                proxy.let_go()
            stage.healed()
    stage.go_on(grants=10, process="process 1")
    cut_off.end()
    stage.judge(crew, may_be_unreachable=True, recover_within=RECOVERED)


def test_those_who_hear_the_votes_late_hold_for_no_longer(stage: Stage, proxies: list[Proxy]) -> None:
    """They hold to the last moment that they believe in, and others are there to get in when the nodes think so."""
    for proxy in proxies:
        proxy.delay(replies=0.1)
    ttl = 0.4
    load = {**LOAD, "names": ("a",), "keepers": 0, "renews": 0.0, "waits": (5.0,), "ttls": (ttl,), "tasks": 1}
    far = url_of(proxy.port for proxy in proxies)
    slow = {**load, "request_timeout": 2.0}  # to connect takes several round trips
    late = stage.crew(processes=1, url=far, **slow, hold=(ttl, ttl), threads=1)
    crew = stage.crew(processes=1, first=1, **load)
    stage.healed()
    for _ in stage.rounds(1):
        stage.go_on(grants=3, process="process 0", within=20.0)
    for proxy in proxies:
        proxy.delay()
    late.end()
    stage.judge(crew, recover_within=RECOVERED)
    assert any(event.kind == "lost" for event in stage.events())
