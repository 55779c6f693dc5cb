"""What happens to a server that goes on running: scripts flushed, connections killed, everyone told to wait."""

import re

import pytest

import gripfast
from chaos.stage import Stage
from gripfast_lab.verify.journal import now

TTL = 1.0
"""The largest of the load."""
SERVED_AGAIN = 1.5
"""Seconds, beside a ttl, until the lock is in use: someone may just have begun the longest pause between two tries."""


def test_scripts_are_flushed_again_and_again(stage: Stage) -> None:
    crew = stage.crew()
    with stage.server.client() as client:
        for _ in stage.rounds(60):
            client.script_flush()
            stage.go_on(grants=3)
    stage.healed()
    stage.go_on(grants=30)
    stage.judge(crew, recover_within=TTL + SERVED_AGAIN)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", ["normal", "pubsub"])
def test_connections_are_killed_again_and_again(stage: Stage, kind: str) -> None:
    crew = stage.crew()
    killed = 0
    with stage.server.client() as client:
        for _ in stage.rounds(40):
            killed += client.client_kill_filter(_type=kind)
            stage.go_on(grants=stage.chance.randrange(1, 8))
    assert killed > 20 if kind == "normal" else killed > 0
    stage.healed()
    stage.go_on(grants=30)
    stage.judge(crew, may_be_unreachable=True, recover_within=TTL + SERVED_AGAIN)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("seconds", "everything"),
    [(0.15, True), (1.2, True), (1.2, False)],
    ids=["shorter than the ttl", "longer than the ttl", "longer than the ttl, writes only"],
)
def test_the_server_makes_its_clients_wait(stage: Stage, seconds: float, everything: bool) -> None:
    crew = stage.crew(request_timeout=0.1)
    stage.go_on(grants=20)
    with stage.server.client() as client:
        for _ in stage.rounds(1):
            stage.broke()
            client.client_pause(int(seconds * 1000), all=everything)
            stage.wait_out(seconds)
            stage.healed()
            stage.go_on(grants=20)
    stage.judge(crew, may_be_unreachable=True, recover_within=TTL + SERVED_AGAIN)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("seconds", "request_timeout"),
    [(0.3, 0.1), (1.2, 0.1), (1.2, 5.0)],
    ids=["shorter than the ttl", "longer than the ttl", "longer than the ttl, but nobody is impatient"],
)
def test_the_process_of_the_server_is_stopped(stage: Stage, seconds: float, request_timeout: float) -> None:
    crew = stage.crew(request_timeout=request_timeout)
    for _ in stage.rounds(1):
        stage.go_on(grants=20)
        stage.broke()
        stage.server.pause()
        stage.wait_out(seconds)
        stage.server.resume()
        stage.healed()
    stage.go_on(grants=20)
    stage.judge(crew, may_be_unreachable=request_timeout < seconds, recover_within=TTL + SERVED_AGAIN)


@pytest.mark.parametrize("arguments", [("--appendonly", "yes", "--appendfsync", "always")], ids=["AOF"])
def test_the_server_is_killed_and_comes_back_with_its_memory(stage: Stage) -> None:
    crew = stage.crew()
    for _ in stage.rounds(2):
        stage.go_on(grants=30)
        stage.broke()
        stage.server.restart()
        stage.healed()
    stage.go_on(grants=30)
    stage.judge(crew, may_be_unreachable=True, recover_within=TTL + SERVED_AGAIN)


def test_the_server_is_killed_and_comes_back_empty(stage: Stage) -> None:
    """Declared: leases granted before and after may overlap, and the older ones be lost. Tokens grow by the clock."""
    crew = stage.crew()
    for _ in stage.rounds(2):
        stage.go_on(grants=30)
        stage.broke()
        since = now()
        stage.server.kill()
        stage.forgot(since)
        stage.server.restart()
        stage.healed()
    stage.go_on(grants=30)
    stage.judge(crew, may_be_unreachable=True, recover_within=TTL + SERVED_AGAIN)


def test_the_clock_of_the_server_was_set_back(stage: Stage) -> None:
    """As it looks from its memory: the last tokens are an hour ahead of the clock. They go on from there."""
    with gripfast.connect(stage.server.url) as client:
        for name in ("a", "b", "kept"):
            client.lock(name).acquire().release()
    ahead = an_hour_ahead(stage)
    crew = stage.crew()
    stage.healed()
    stage.go_on(grants=60)
    stage.judge(crew, recover_within=2.5)
    assert min(event.token for event in stage.events() if event.kind == "granted") > ahead


def an_hour_ahead(stage: Stage) -> int:
    """Put all tokens there; the smallest."""
    ahead = []
    with stage.server.client() as client:
        for key in list(client.scan_iter(match="*gripfast:token*")):
            number = re.match(rb"\d+", client.get(key))
            assert number is not None
            ahead.append(int(number[0]) + 3600 * 1_000_000)
            client.set(key, b"%d" % ahead[-1] + client.get(key)[number.end() :], keepttl=True)
    assert len(ahead) == 3
    return min(ahead)
