"""`gripfast doctor` at real nodes of Redlock that are set up wrongly, each in one way, and at sound ones."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from gripfast.stores.doctor import Terms
from gripfast.stores.redis.doctor import Facts
from gripfast.stores.redlock.doctor import Cluster, judge
from stores.doctor_stage import found, problems, report_on
from support.jumping_clock import JumpingClock
from support.redis_server import HOST, RedisServer
from support.redlock_nodes import redlock_url
from support.waiting import until

SYNCED = ("--appendonly", "yes", "--appendfsync", "always")
PATIENT = {"request_timeout": 1}


def nodes(stack: ExitStack, *arguments: Sequence[str]) -> list[RedisServer]:
    return [stack.enter_context(RedisServer(*each)) for each in arguments]


@pytest.mark.parametrize("arguments", [(), SYNCED])
def test_three_sound_nodes_have_no_problem(arguments: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        url = redlock_url(nodes(stack, *[arguments] * 3), **PATIENT)
        assert problems(url) == []
        report = report_on(url)
    assert report.summary.startswith("3 nodes, a majority is 2; Redis ")
    names = {finding.name for finding in report.findings}
    assert ("redlock-not-durable" in names) == (arguments == ())
    assert "redlock-one-machine" in names


def test_an_even_number_and_different_settings_are_found() -> None:
    with ExitStack() as stack:
        findings = found(redlock_url(nodes(stack, (), (), SYNCED, ("--maxmemory", "1gb")), **PATIENT))
    assert findings["redlock-even"].what == "there are 4 nodes, and 1 of them may fail, as with 3"
    assert "on disk (appendfsync always, nothing)" in findings["redlock-different"].what
    assert "maxmemory (0, 1073741824)" in findings["redlock-different"].what


def test_a_node_that_forgets_its_last_writes_is_found() -> None:
    with ExitStack() as stack:
        three = nodes(stack, (), ("--appendonly", "yes"), ("--save", "3600 1"))
        findings = report_on(redlock_url(three, **PATIENT)).findings
    finding = [each for each in findings if each.name == "redlock-last-writes"]
    assert [(each.kind, each.where) for each in finding] == [
        ("problem", f"redis://{HOST}:{node.port}/0") for node in three[1:]
    ]
    assert "appendfsync everysec" in finding[0].what
    assert "save 3600 1" in finding[1].what


def test_nodes_that_are_one_server_are_found() -> None:
    with ExitStack() as stack:
        twice, once = nodes(stack, ("--bind", "127.0.0.1 127.0.0.2"), ())
        url = f"redlock://127.0.0.1:{twice.port},127.0.0.2:{twice.port},127.0.0.1:{once.port}?request_timeout=1"
        finding = found(url)["redlock-one-server"]
    assert finding.kind == "problem"
    assert f"127.0.0.1:{twice.port}" in finding.what
    assert f"127.0.0.2:{twice.port}" in finding.what
    assert str(once.port) not in finding.what


def test_a_node_that_is_down_is_found_and_what_is_left_is_told() -> None:
    with ExitStack() as stack:
        three = nodes(stack, (), (), ())
        url = redlock_url(three, **PATIENT)
        assert problems(url) == []  # all have to answer once: then they have voted, and are not new
        three[0].kill()
        report = report_on(url)
        assert report.usable
        finding = {each.name: each for each in report.findings}["redlock-node-down"]
        assert (finding.kind, finding.where) == ("problem", f"redis://{HOST}:{three[0].port}/0")
        assert finding.why == "If 1 more fails, no lock can be acquired."
        three[1].kill()
        findings = found(url)
    assert "No lock can be acquired" in findings["redlock-node-down"].why
    assert "2 are needed" in findings["unusable"].what


def test_a_node_with_a_wrong_setting_of_its_own_is_named() -> None:
    with ExitStack() as stack:
        three = nodes(stack, (), ("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-random"), ())
        finding = found(redlock_url(three, **PATIENT))["redis-evicts"]
    assert finding.where == f"redis://{HOST}:{three[1].port}/0"


def test_a_node_with_a_replica_is_found() -> None:
    with ExitStack() as stack:
        three = nodes(stack, (), (), ())
        stack.enter_context(RedisServer("--replicaof", f"{HOST} {three[0].port}"))
        url = redlock_url(three, **PATIENT)
        until(lambda: "redlock-replicas" in found(url))


@pytest.mark.parametrize("ahead, name", [(60.0, "redlock-clocks"), (-200_000.0, "redlock-clock-far")])
def test_a_clock_of_a_node_that_differs_is_found(tmp_path: Path, ahead: float, name: str) -> None:
    clock = JumpingClock(tmp_path / "clock")
    clock.set(ahead=ahead)
    with ExitStack() as stack:
        other = stack.enter_context(RedisServer(environment=clock.environment))
        assert name in found(redlock_url([other, *nodes(stack, (), ())], **PATIENT))


def test_nodes_on_machines_of_their_own_are_not_blamed() -> None:
    facts = [Facts(f"redis://{host}:6379/0", host, True, Terms(30.0, 0.05), clock=0.0) for host in ("a", "b", "c")]
    assert [*judge(Cluster(facts, {}))] == []
