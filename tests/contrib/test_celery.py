"""Tasks of Celery that hold a lock: real workers, real messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery.exceptions import Reject
from celery.result import AsyncResult

import gripfast
from contrib.celery_workers import LONG, Cluster, cluster
from gripfast.contrib.celery import Busy
from support.waiting import until

CROWD = 4


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers: the queues "one" and "two"."""
    with cluster(tmp_path_factory.mktemp("celery")) as made, made.workers("one", "two"):
        yield made


@pytest.fixture(scope="module", params=["threads", "gevent"])
def crowd(two: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The queue of a third worker, whose tasks share one process."""
    with two.workers(request.param, pool=request.param, concurrency=CROWD):
        yield request.param


def is_retried(result: AsyncResult[Any]) -> bool:
    return result.state == "RETRY"


def test_without_the_lock_two_workers_are_at_it_together(two: Cluster) -> None:
    """What the next tests rely on."""
    results = [two.send("plain", "x", f"plain-{queue}", queue=queue) for queue in ("one", "two")]
    assert two.pid_of("plain-one") != two.pid_of("plain-two")
    two.go("plain-one")
    two.go("plain-two")
    assert {int(result.get(timeout=LONG)) for result in results} == {two.pid_of("plain-one"), two.pid_of("plain-two")}


def test_one_worker_at_a_time_and_who_was_refused_comes_back(two: Cluster) -> None:
    first = two.send("locked", "x", "a1", queue="one")
    two.pid_of("a1")
    assert two.locks.inspect("job:x").label == first.id
    second = two.app.send_task("locked", kwargs={"name": "x", "number": "a2"}, queue="two")
    until(lambda: is_retried(second), within=LONG)
    assert isinstance(second.result, Busy)
    assert first.id in str(second.result)
    assert two.begun("a2") == []
    two.go("a1")
    first.get(timeout=LONG)
    two.pid_of("a2")
    two.go("a2")
    assert int(second.get(timeout=LONG)) == two.pid_of("a2")
    assert two.locks.inspect("job:x") is None


def test_other_arguments_are_another_lock(two: Cluster) -> None:
    results = [two.send("locked", name, name, queue=queue) for name, queue in (("b1", "one"), ("b2", "two"))]
    for name in ("b1", "b2"):
        two.pid_of(name)
    for name in ("b1", "b2"):
        two.go(name)
    assert len({result.get(timeout=LONG) for result in results}) == 2


def test_a_skipped_task_succeeds_with_none(two: Cluster) -> None:
    with two.locks.lock("job:c"):
        assert two.send("skipping", "c", "c", queue="one").get(timeout=LONG) is None
    assert two.begun("c") == []


def test_a_task_may_fail_if_the_lock_is_busy(two: Cluster) -> None:
    with two.locks.lock("job:d", label="somebody"):
        result = two.send("raising", "d", "d", queue="one")
        with pytest.raises(gripfast.LockTimeout, match=r"'job:d' not acquired.*somebody"):
            result.get(timeout=LONG)
    assert two.begun("d") == []


def test_a_rejected_task_is_not_run_again(two: Cluster) -> None:
    with two.locks.lock("job:e"):
        result = two.send("rejecting", "e", "e", queue="one")
        with pytest.raises(Reject, match="job:e"):
            result.get(timeout=LONG)
    assert two.begun("e") == []


def test_a_function_decides_what_becomes_of_a_task_that_finds_the_lock_busy(two: Cluster) -> None:
    with two.locks.lock("job:f", label="somebody"):
        told = two.send("asking", "f", "f", queue="one").get(timeout=LONG)
    assert told == {"held by": "somebody", "task": "asking"}


def test_a_revoked_task_leaves_no_lock(two: Cluster) -> None:
    first = two.send("locked", "g", "g1", queue="one")
    two.pid_of("g1")
    waits = two.send("locked", "h", "g2", queue="one")  # behind the first one
    two.app.control.revoke(waits.id, reply=True, timeout=LONG, limit=2)
    two.go("g1")
    first.get(timeout=LONG)
    until(lambda: waits.state == "REVOKED", within=LONG)
    assert two.locks.inspect("job:h") is None
    assert two.begun("g2") == []


def test_a_task_whose_lock_can_not_be_acquired_does_not_run(two: Cluster) -> None:
    """It is retried, because `autoretry_for` says so, and then fails."""
    result = two.send("autoretried", queue="one")
    with pytest.raises(gripfast.StoreUnavailable):
        result.get(timeout=LONG)


@pytest.mark.parametrize("task", ["checking", "careless"])
def test_a_task_that_has_lost_its_lock_fails(two: Cluster, task: str) -> None:
    result = two.send(task, task, task, queue="one")
    two.pid_of(task)
    assert two.locks.force_release(f"job:{task}", "deploy")
    until(lambda: two.locks.inspect(f"job:{task}") is None)
    two.go(task)
    with pytest.raises(gripfast.LeaseLost):
        result.get(timeout=LONG)


def test_each_run_has_its_own_lease_although_they_share_the_task_object(two: Cluster, crowd: str) -> None:
    numbers = [f"{crowd}-{number}" for number in range(CROWD)]
    results = [two.send("which", number, number, queue=crowd) for number in numbers]
    pids = {two.pid_of(number) for number in numbers}
    for number in reversed(numbers):
        two.go(number)
    told = [result.get(timeout=LONG) for result in results]
    assert len(pids) == 1
    assert told == [[f"job:{n}", f"job:{n}", result.id] for n, result in zip(numbers, results, strict=True)]


def test_a_process_is_not_ended_if_other_tasks_share_it(two: Cluster, crowd: str) -> None:
    result = two.send("ending", "i", "i", queue=crowd)
    with pytest.raises(gripfast.ConfigurationError, match="prefork"):
        result.get(timeout=LONG)
    assert two.begun("i") == []
