"""`gripfast verify`: good on every store, broken by planted bugs and by a server that forgets, and nothing left behind.

GRIPFAST_CHAOS=long takes every store, for a minute each."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import gripfast
from chaos.stage import LONG
from cli.commandline import GRIPFAST, Call, Outcome, is_stopped, started
from cli.terminal import CTRL_C, on_terminal
from gripfast.api.config import configure
from gripfast.cli import codes
from gripfast_lab.sim.mutants import MUTANTS
from gripfast_lab.verify.command import NAMESPACE
from gripfast_lab.verify.spaces import space_of
from support.redis_server import RedisServer
from support.stores import STORES
from support.waiting import until

pytestmark = pytest.mark.timeout(300 if LONG else 120)

SHORT = ("--seconds", "3", "--workers", "3", "--ttl", "1")
LENGTH = ("--seconds", "60", "--workers", "8", "--ttl", "1") if LONG else SHORT
SHARED = {store.name: store for store in STORES if store.name != "memory"}
in_turn = pytest.mark.in_turn(1 if LONG else 8)


def left_below(url: str) -> list[str]:
    config = configure(url, {})
    return space_of(configure(url, {"prefix": config.prefix + NAMESPACE})).found()


def read(ended: Outcome) -> dict[str, Any]:
    assert ended.stdout, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


@in_turn
@pytest.mark.parametrize("store", SHARED)
def test_a_sound_store_is_good(store: str, call: Call, tmp_path: Path) -> None:
    with SHARED[store].fresh(tmp_path) as url:
        ended = call("verify", url, "--json", *LENGTH)
        report = read(ended)
        assert report["violations"] == [], json.dumps(report)
        assert ended.returncode == 0
        assert report["entries"] > 5
        assert report["paused"] + report["killed"] > 0
        assert report["waits"]["p50"] <= report["waits"]["p99"] <= report["waits"]["max"]
        assert report["tokens_grow"]
        assert left_below(url) == []


def test_locks_of_one_process_are_refused_with_the_reason(call: Call) -> None:
    ended = call("verify", "memory://a")
    assert ended.returncode == codes.USAGE
    assert "keeps its locks in one process" in ended.stderr


def test_a_store_that_can_not_be_reached_is_told_as_elsewhere(call: Call) -> None:
    with RedisServer() as server:
        url = server.url
    ended = call("verify", url, *SHORT)
    assert ended.returncode == codes.UNAVAILABLE
    assert "--url" in ended.stderr


# What must be noticed -------------------------------------------------------------------------------------------------

PLANTED = {
    "in without the lock": {"overlap", "exceeded"},
    "deadline not checked": {"late", "boasted", "overlap"},
    "renewal without effect": {"overlap", "robbed", "exceeded"},
    "token grows by renewal": {"token"},
    "permits are not counted": {"exceeded"},
}
"""Bugs of the simulation, and the rules of which one must be broken."""


def test_the_bugs_to_be_noticed_are_known() -> None:
    """The next test takes turns, so it would notice a new name late."""
    assert set(PLANTED) <= {mutant.name for mutant in MUTANTS}


@pytest.mark.in_turn(1 if LONG else len(PLANTED))
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_noticed_and_drawn(bug: str, call: Call, tmp_path: Path) -> None:
    picture = tmp_path / "broken.svg"
    length = ("--seconds", "8", "--workers", "5", "--ttl", "0.7", "--plant", bug, "--svg", str(picture))
    with SHARED["redis"].fresh(tmp_path) as url:
        ended = call("verify", url, "--json", *length)
    report = read(ended)
    assert ended.returncode == 1
    assert {each["rule"] for each in report["violations"]} & PLANTED[bug], report
    assert "requests" in report["picture"] or "granted" in report["picture"]
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_a_redis_that_is_flushed_meanwhile_is_noticed_and_drawn(call: Call) -> None:
    with RedisServer() as server, server.client() as redis:
        is_over = threading.Event()

        def flush() -> None:
            while not is_over.wait(0.2):
                redis.flushall()

        flushing = threading.Thread(target=flush)
        flushing.start()
        try:
            ended = call("verify", server.url, "--seconds", "4", "--workers", "5", "--ttl", "1")
        finally:
            is_over.set()
            flushing.join()
    assert ended.returncode == 1, ended
    assert "BROKEN" in ended.stdout
    assert "█ holds" in ended.stdout or "# holds" in ended.stdout


# What is there already, and what is left ------------------------------------------------------------------------------


def test_a_prefix_that_has_keys_is_refused_unless_told(call: Call, tmp_path: Path) -> None:
    with SHARED["redis"].fresh(tmp_path) as url, gripfast.connect(url, prefix=f"{tmp_path.name}:") as client:
        lease = client.lock("a").acquire(wait=0)
        ended = call("verify", url, "--prefix", f"{tmp_path.name}:", *SHORT)
        assert ended.returncode == codes.USAGE
        assert "--force" in ended.stderr
        assert lease.held
        assert client.inspect("a") is not None
        ended = call("verify", url, "--prefix", f"{tmp_path.name}:", "--force", "--seconds", "0.1", "--workers", "2")
        assert ended.returncode == 0, ended
        assert client.inspect("a") is None


def workers_of(pid: int) -> set[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return {int(child) for child in children.split()}


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    """The terminal shows how far it is, on one line."""
    file = tmp_path / "locks.db"
    with on_terminal(*GRIPFAST, "verify", f"sqlite:///{file}", "--workers", "2") as terminal:
        terminal.shows(" of 60 s, ", within=30.0)
        workers = workers_of(terminal.pid)
        assert len(workers) >= 2
        terminal.type(CTRL_C)
        assert terminal.status() == 128 + signal.SIGINT
        assert "\n" not in terminal.screen(), terminal.screen()
    assert not any(map(is_alive, workers))
    assert [path.name for path in tmp_path.iterdir()] == []


def test_workers_end_if_their_crew_is_killed_even_those_that_are_paused(tmp_path: Path) -> None:
    with started("verify", f"sqlite:///{tmp_path}/locks.db", "--workers", "3", "--ttl", "9") as running:
        until(lambda: len(workers_of(running.pid)) >= 3, within=30.0)
        workers = workers_of(running.pid)
        os.kill(min(workers), signal.SIGSTOP)
        until(lambda: is_stopped(min(workers)), within=15.0)  # by then the system knows whom to wake
        running.send(signal.SIGKILL)
        running.ended()
        until(lambda: not any(map(is_alive, workers)), within=20.0)


def test_sigterm_leaves_nothing_behind(tmp_path: Path) -> None:
    with started("verify", f"sqlite:///{tmp_path}/locks.db", "--workers", "2") as running:
        until(lambda: len(workers_of(running.pid)) >= 2, within=30.0)
        running.send(signal.SIGTERM)
        assert running.ended() == (128 + signal.SIGTERM, "", "")
    assert [path.name for path in tmp_path.iterdir()] == []
