"""`gripfast lead`: the command runs on one machine at a time, and moves when that one dies."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import gripfast
from cli.commandline import Call, Log, is_alive, run_gripfast, started, waiters
from support.waiting import until

pytestmark = pytest.mark.usefixtures("url")


def pids(log: Log) -> list[int]:
    return [int(line[1]) for line in log.lines() if line[0] == "ready"]


@pytest.mark.parametrize("status", [0, 3])
def test_the_command_runs_and_its_status_is_passed_on(status: int) -> None:
    ended = run_gripfast("lead", "beat", "--", "sh", "-c", f"echo $GRIPFAST_NAME; exit {status}")
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "beat\n", "")


def test_the_value_is_what_others_read(client: gripfast.Client, log: Log) -> None:
    with started("lead", "beat", "--value", "host:8000", "--", *log.puppet("SIGTERM")) as running:
        log.pid()
        leader = client.election("beat").leader()
        assert leader is not None
        assert (leader.value, leader.pid) == ("host:8000", running.pid)
        running.send(signal.SIGTERM)
        assert running.ended()[:2] == (40, "")
    assert client.election("beat").leader() is None


def test_when_the_leader_is_killed_another_one_runs_the_command(client: gripfast.Client, tmp_path: Path) -> None:
    logs = [Log(tmp_path / name) for name in ("one", "two")]
    with started("lead", "beat", "--", *logs[0].puppet()) as first:
        pid = logs[0].pid()
        with started("lead", "beat", "-q", "--", *logs[1].puppet("SIGTERM")) as second:
            until(lambda: waiters(client, "beat") == 1)
            assert pids(logs[1]) == []
            first.send(signal.SIGKILL)
            assert logs[1].pid()
            assert not is_alive(pid)
            second.send(signal.SIGTERM)
            assert second.ended() == (40, "", "")


def test_after_a_loss_the_command_is_stopped_and_started_anew(client: gripfast.Client, log: Log) -> None:
    with started("lead", "beat", "--ttl", "0.9", "--", *log.puppet("SIGUSR1")) as running:
        first = log.pid()
        assert client.force_release("beat", "deploy")
        until(lambda: len(pids(log)) == 2, within=15)
        assert not is_alive(first)
        running.send(signal.SIGUSR1)
        status, _, err = running.ended()
    assert status == 40
    assert "lost the lock 'beat': it was released by force: 'deploy'" in err
    assert "campaigns again" in err


def test_while_somebody_else_leads_it_waits_and_says_who_does(client: gripfast.Client, log: Log) -> None:
    with client.election("beat", "another").lead(), started("lead", "beat", "--", *log.puppet()) as running:
        until(lambda: waiters(client, "beat") == 1)
        running.send(signal.SIGTERM)
        status, _, _ = running.ended()
    assert status == 128 + signal.SIGTERM
    assert pids(log) == []


def test_a_lost_lock_ends_it_if_a_signal_has_asked_to_end(client: gripfast.Client, log: Log) -> None:
    with started("lead", "beat", "--ttl", "0.9", "--", *log.puppet()) as running:
        log.pid()
        running.send(signal.SIGTERM)
        until(lambda: log.has("SIGTERM"))
        client.force_release("beat")
        status, _, err = running.ended()
    assert status == 76
    assert "campaigns again" not in err
    assert len(pids(log)) == 1


def test_a_store_that_can_not_be_used_for_a_while_does_not_end_it(url: str, log: Log) -> None:
    with started("lead", "beat", "--ttl", "1", "--", *log.puppet("SIGUSR1")) as running:
        first = log.pid()
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)) as other:
            other.execute("BEGIN IMMEDIATE")
            until(lambda: not is_alive(first), within=15)
            other.execute("ROLLBACK")
        until(lambda: len(pids(log)) == 2, within=15)
        running.send(signal.SIGUSR1)
        assert running.ended()[0] == 40


def test_a_command_that_is_not_there_ends_it() -> None:
    ended = run_gripfast("lead", "beat", "--", "./no-such-command")
    assert ended.returncode == 127


def test_no_command_is_a_wrong_usage(call: Call) -> None:
    assert call("lead", "beat").returncode == 64
    assert "gripfast lead NAME -- " in call("lead", "beat").stderr
    assert call("lead", "beat", "--ttl", "2", "--grace", "2", "--", "true").returncode == 64


@pytest.mark.parametrize("words", [["--quiet"], ["-q"]])
def test_a_quiet_run_says_nothing_about_who_holds_the_lock(client: gripfast.Client, words: list[str]) -> None:
    with client.lock("beat"):
        loud = run_gripfast("run", "beat", "--wait", "0.5", "--", "true")
        quiet = run_gripfast("run", "beat", "--wait", "0.5", *words, "--", "true")
    assert "waiting for 'beat'" in loud.stderr
    assert (loud.returncode, quiet.returncode, quiet.stderr) == (75, 75, "")


def test_a_quiet_run_still_tells_errors(client: gripfast.Client, log: Log) -> None:
    with started("run", "beat", "--ttl", "0.9", "--quiet", "--", *log.puppet()) as running:
        log.pid()
        client.force_release("beat")
        status, _, err = running.ended()
    assert status == 76
    assert "lost the lock 'beat'" in err
