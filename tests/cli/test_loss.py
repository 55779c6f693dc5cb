"""A lock that can't be renewed: the command gets TERM, then KILL, and is gone before the lock is anyone else's."""

import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

import gripfast
from cli.commandline import Call, Log, end, is_alive, started
from support.waiting import until

TTL = 2.0
GRACE = 0.7
DRIFT = 0.01 * TTL + 0.002
BRIEF = "3"
"""Seconds: that a lock was broken shows after a third of it. Longer than a busy machine keeps a process waiting."""


@contextmanager
def unwritable(url: str) -> Iterator[None]:
    """Somebody else's transaction keeps every writer out."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def expiry(client: gripfast.Client) -> float:
    """The moment at which the engine would give the lock to the next one, or a little before."""
    asked = time.monotonic()
    info = client.inspect("nightly")
    assert info is not None
    return asked + info.expires_in


def death(pid: int) -> float:
    """The moment, seen a little late, at which the process was gone."""
    return until(lambda: not is_alive(pid) and time.monotonic(), within=15)


class Loss(NamedTuple):
    """Seconds before the lock would be anyone else's."""

    signals: list[str]
    warned: float
    gone: float

    def is_warned_in_time(self) -> bool:
        return self.signals == ["SIGTERM"] and abs(self.warned - DRIFT - GRACE) < 0.2


def loss(url: str, client: gripfast.Client, log: Log, *ends: str) -> Loss:
    """Of a command that obeys these signals, because the lock can't be renewed."""
    with started("run", "nightly", "--ttl", str(TTL), "--grace", str(GRACE), "--", *log.puppet(*ends)) as running:
        pid = log.pid()
        with unwritable(url):
            expires_at = expiry(client)
            gone_at = death(pid)
        status, _, err = running.ended()
    assert status == 76
    assert "lost the lock 'nightly'" in err
    assert "renewed" in err
    assert "Traceback" not in err
    warned_at = log.moment_of("SIGTERM") if log.signals() else gone_at
    return Loss(log.signals(), expires_at - warned_at, expires_at - gone_at)


def one_of_five(lose: Callable[[Log], Loss], folder: Path, is_in_time: Callable[[Loss], bool]) -> None:
    """A busy machine may let gripfast, the command or this test run too late for a tenth of a second, now and then."""
    seen: list[Loss] = []
    for number in range(5):
        seen.append(lose(Log(folder / f"{number}.log")))
        if is_in_time(seen[-1]):
            return
    raise AssertionError(seen)


def test_a_stubborn_command_gets_term_and_is_killed_in_time(url: str, client: gripfast.Client, tmp_path: Path) -> None:
    def is_in_time(loss: Loss) -> bool:
        return loss.is_warned_in_time() and 0 < loss.gone < DRIFT + 0.2

    one_of_five(partial(loss, url, client), tmp_path, is_in_time)


def test_a_command_that_obeys_term_has_the_whole_grace_to_do_so(
    url: str, client: gripfast.Client, tmp_path: Path
) -> None:
    def is_in_time(loss: Loss) -> bool:
        return loss.is_warned_in_time() and loss.gone > GRACE - 0.3

    one_of_five(lambda log: loss(url, client, log, "SIGTERM"), tmp_path, is_in_time)


def test_a_paused_command_is_woken_to_hear_the_warning(url: str, log: Log) -> None:
    with started("run", "nightly", "--ttl", str(TTL), "--grace", str(GRACE), "--", *log.puppet("SIGTERM")) as running:
        log.pid()
        running.send(signal.SIGTSTP)
        with unwritable(url):
            until(lambda: log.has("SIGTERM"))
        assert running.ended()[0] == 76


def test_a_warned_command_lives_on_if_the_lock_can_be_renewed_after_all(
    url: str, client: gripfast.Client, log: Log
) -> None:
    with started("run", "nightly", "--ttl", "6", "--grace", "3", "--", *log.puppet("SIGUSR1")) as running:
        log.pid()
        with unwritable(url):
            until(lambda: log.has("SIGTERM"))
            expires_at = expiry(client)
        until(lambda: expiry(client) > expires_at + 0.5)
        running.send(signal.SIGUSR1)
        assert running.ended()[0] == 76
    assert log.signals() == ["SIGTERM", "SIGUSR1"]


@pytest.fixture
def losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, float]]:
    """What the metrics of commands have counted, by reason."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    monkeypatch.setenv("GRIPFAST_OBSERVERS", "prometheus")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))

    def read() -> dict[str, float]:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(folder))
        samples = [each for metric in registry.collect() for each in metric.samples]
        counted = [each for each in samples if each.name == "gripfast_losses_total" and each.value]
        return {each.labels["error_type"]: each.value for each in counted}

    return read


@pytest.mark.parametrize("ends_at", [(), ("SIGTERM",)], ids=["killed", "obeys"])
def test_a_command_that_was_stopped_in_time_counts_as_one_loss(
    ends_at: tuple[str, ...], losses: Callable[[], dict[str, float]], url: str, log: Log
) -> None:
    """It was ended before its deadline, so nobody had noticed a loss: observers were told of a release."""
    with started("run", "nightly", "--ttl", str(TTL), "--grace", str(GRACE), "--", *log.puppet(*ends_at)) as running:
        pid = log.pid()
        with unwritable(url):
            death(pid)
        status, _, err = running.ended()
    assert status == 76
    assert "renewed" in err
    assert losses() == {"expired": 1}


def test_a_command_that_was_stopped_counts_as_lost_though_the_lock_is_renewed_after_all(
    losses: Callable[[], dict[str, float]], url: str, client: gripfast.Client, log: Log
) -> None:
    """What gripfast says, its exit code and what observers are told agree. The lock is free at once."""
    with started("run", "nightly", "--ttl", "8", "--grace", "4", "--", *log.puppet("SIGUSR1")) as running:
        log.pid()
        with unwritable(url):
            until(lambda: log.has("SIGTERM"), within=15.0)
            expires_at = expiry(client)
        until(lambda: expiry(client) > expires_at + 0.5)
        running.send(signal.SIGUSR1)
        assert running.ended()[0] == 76
    assert losses() == {"expired": 1}
    assert client.inspect("nightly") is None


def test_a_broken_lock_counts_as_one_loss(
    losses: Callable[[], dict[str, float]], client: gripfast.Client, log: Log
) -> None:
    with started("run", "nightly", "--ttl", BRIEF, "--", *log.puppet()) as running:
        log.pid()
        assert client.force_release("nightly")
        assert running.ended()[0] == 76
    assert losses() == {"broken": 1}


def test_a_broken_lock_ends_the_command(client: gripfast.Client, log: Log) -> None:
    with started("run", "nightly", "--ttl", BRIEF, "--", *log.puppet()) as running:
        pid = log.pid()
        assert client.force_release("nightly")
        until(lambda: not is_alive(pid))
        status, _, err = running.ended()
    assert status == 76
    assert "nightly" in err


def test_the_command_ends_with_the_reason_that_the_operator_gave(client: gripfast.Client, log: Log, call: Call) -> None:
    with started("run", "nightly", "--ttl", BRIEF, "--", *log.puppet()) as running:
        log.pid()
        assert call("break", "nightly", "--yes", "--reason", "deploy of v2\n\x1b[31m").returncode == 0
        status, _, err = running.ended()
    assert status == 76
    assert r"it was released by force: 'deploy of v2\n\x1b[31m'" in err


def test_a_lock_that_was_broken_behind_the_back_of_a_command_is_told(client: gripfast.Client, log: Log) -> None:
    with started("run", "nightly", "--ttl", "60", "--", *log.puppet("SIGUSR1")) as running:
        log.pid()
        assert client.force_release("nightly")
        running.send(signal.SIGUSR1)
        status, _, err = running.ended()
    assert status == 76
    assert "40" in err


def test_nothing_that_the_command_started_survives_the_loss(client: gripfast.Client, log: Log, tmp_path: Path) -> None:
    inner = Log(tmp_path / "inner.log")
    script = f"{' '.join(inner.puppet())} & {' '.join(log.puppet())}; :"
    with started("run", "nightly", "--ttl", BRIEF, "--", "sh", "-c", script) as running:
        pids = log.pid(), inner.pid()
        client.force_release("nightly")
        assert running.ended()[0] == 76
        assert [is_alive(pid) for pid in pids] == [False, False]


def test_an_orphan_does_not_survive_the_loss_either(client: gripfast.Client, log: Log, tmp_path: Path) -> None:
    inner = Log(tmp_path / "inner.log")
    script = f"({' '.join(inner.puppet())} &) ; exec {' '.join(log.puppet())}"
    with started("run", "nightly", "--ttl", BRIEF, "--", "sh", "-c", script) as running:
        pids = log.pid(), inner.pid()
        client.force_release("nightly")
        assert running.ended()[0] == 76
        assert [is_alive(pid) for pid in pids] == [False, False]


@pytest.mark.usefixtures("url")
def test_what_a_command_leaves_behind_when_it_ends_by_itself_is_left_alone(log: Log) -> None:
    script = f"({' '.join(log.puppet())} >&- 2>&- &)"
    with started("run", "nightly", "--", "sh", "-c", script) as running:
        ended = running.ended()
    pid = log.pid()
    was_alive = is_alive(pid)
    end(pid)
    assert was_alive
    assert ended == (0, "", "")


@pytest.mark.usefixtures("url")
def test_a_short_ttl_shortens_the_default_grace(log: Log) -> None:
    with started("run", "nightly", "--ttl", "4", "--", *log.puppet("SIGUSR1")) as running:
        log.pid()
        running.send(signal.SIGUSR1)
        assert running.ended() == (40, "", "")
    assert log.signals() == ["SIGUSR1"]
