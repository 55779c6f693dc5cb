"""Workers of Celery that are killed, tasks that lose their lock, tasks that are done once, and beat on one machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from billiard.exceptions import WorkerLostError

from contrib.celery_workers import LONG, Cluster, cluster
from contrib.programs import Program, program
from support.waiting import until


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("celery")) as made, made.workers("lasting"):
        yield made


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("task", ["locked", "once"])
def test_when_a_worker_is_killed_in_the_middle_another_one_does_the_work(made: Cluster, task: str) -> None:
    with made.workers(f"doomed-{task}") as [doomed]:
        made.send(task, task, f"{task}-1", queue=f"doomed-{task}")
        first = made.pid_of(f"{task}-1")
        second = made.send(task, task, f"{task}-2", queue="lasting")
        until(lambda: second.state == "RETRY", within=LONG)
        assert is_alive(first)
        assert made.begun(f"{task}-2") == []
        doomed.kill()
        made.pid_of(f"{task}-2")
        made.go(f"{task}-2")
        assert int(second.get(timeout=LONG)) == made.pid_of(f"{task}-2")


def test_the_process_of_a_task_that_has_lost_its_lock_is_ended_and_replaced(made: Cluster) -> None:
    lost = made.send("ending", "e", "e1", queue="lasting")
    first = made.pid_of("e1")
    assert made.locks.force_release("job:e", "deploy")
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        lost.get(timeout=LONG)
    assert not is_alive(first)
    after = made.send("ending", "e", "e2", queue="lasting")
    assert made.pid_of("e2") != first
    made.go("e2")
    after.get(timeout=LONG)


def test_a_task_that_is_revoked_while_it_runs_leaves_no_lock(made: Cluster) -> None:
    result = made.send("locked", "v", "v", queue="lasting")
    made.pid_of("v")
    assert made.locks.inspect("job:v").label == result.id
    made.app.control.revoke(result.id, terminate=True)
    until(lambda: made.locks.inspect("job:v") is None, within=LONG)
    until(lambda: result.state == "REVOKED", within=LONG)


def test_a_message_that_is_acknowledged_late_may_be_delivered_again_after_that(made: Cluster) -> None:
    lost = made.send("requeued", "r", "r", queue="lasting")
    first = made.pid_of("r")
    assert made.locks.force_release("job:r", "deploy")
    assert made.pid_of("r", times=2) != first
    made.go("r")
    assert int(lost.get(timeout=LONG)) == made.pid_of("r", times=2)


def test_what_was_done_is_skipped_and_what_failed_is_not(made: Cluster) -> None:
    made.go("o")
    failed = made.app.send_task("once", ["42", "o"], {"fails": True}, queue="lasting")
    with pytest.raises(ValueError, match="no mail server"):
        failed.get(timeout=LONG)
    made.go("o")
    assert made.send("once", "42", "o", queue="lasting").get(timeout=LONG)
    assert made.send("once", "42", "o", queue="lasting").get(timeout=LONG) is None
    assert len(made.begun("o")) == 2
    assert made.locks.forget("invoice:42")


def test_a_message_that_is_delivered_twice_is_run_once(made: Cluster) -> None:
    made.go("twice")
    for expected in (1, 1):
        made.send("by_id", "twice", queue="lasting", task_id="the-same").get(timeout=LONG)
        assert len(made.begun("twice")) == expected
        made.app.AsyncResult("the-same").forget()


def test_beat_runs_on_one_machine_and_moves_when_that_one_is_killed(made: Cluster, tmp_path: Path) -> None:
    words = ["-m", "gripfast", "lead", "beat", "--ttl", "10", "--value", "{name}", "--"]
    words += [
        "{python}",
        "-m",
        "celery",
        "-A",
        "celery_beat",
        "beat",
        "--loglevel",
        "INFO",
        "--pidfile=",
        "-s",
        "{file}",
    ]
    election = made.locks.election("beat")

    def machine(name: str) -> AbstractContextManager[Program]:
        folder = tmp_path / name
        folder.mkdir()
        filled = [word.format(name=name, python=sys.executable, file=folder / "schedule") for word in words]
        return program(*filled, log=folder / "log", environment={"GRIPFAST_URL": made.server.url})

    def leader() -> str:
        return getattr(election.leader(), "value", "")

    with machine("one") as one, machine("two") as two:
        first, second = (one, two) if until(leader, within=LONG) == "one" else (two, one)
        until(lambda: "Sending due task" in first.said, within=LONG)
        assert "beat: Starting" not in second.said
        first.kill()
        until(lambda: "beat: Starting" in second.said, within=LONG)
        last = first.said
        until(lambda: "Sending due task" in second.said, within=LONG)
        assert first.said == last
