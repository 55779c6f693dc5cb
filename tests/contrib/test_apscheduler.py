"""Schedulers in two real processes: each fire time runs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import gripfast
from contrib.programs import Program, program
from support.redis_server import RedisServer
from support.waiting import until

LONG = 60.0
FIRES = 4


class Schedulers:
    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.server = server
        self.data: Any = server.client()
        self._folder = folder

    @contextmanager
    def two(self, mode: str, script: str = "aps_scheduler.py") -> Iterator[list[Program]]:
        environment = {"GRIPFAST_URL": self.server.url, "MODE": mode}
        with (
            program(script, log=self._folder / "one.log", environment=environment) as one,
            program(script, log=self._folder / "two.log", environment=environment) as two,
        ):
            until(lambda: self.data.llen("started") == 2, within=LONG)
            self.forget()
            yield [one, two]
            one.ask_to_end()

    def forget(self) -> None:
        """What was written down while only one of them was there."""
        self.data.delete("executed", "elsewhere", "run", "error")

    def wait_for(self, kind: str, count: int) -> None:
        until(lambda: self.data.llen(kind) >= count, within=LONG)

    def lines(self, kind: str) -> list[str]:
        return [line.decode() for line in self.data.lrange(kind, 0, -1)]


@pytest.fixture
def schedulers(tmp_path: Path) -> Iterator[Schedulers]:
    with RedisServer() as server:
        made = Schedulers(server, tmp_path)
        yield made
        made.data.close()


def times_run(schedulers: Schedulers) -> set[int]:
    """How often the fire times were run."""
    return set(Counter(schedulers.lines("executed")).values())


def test_without_the_executor_each_process_runs_each_fire_time(schedulers: Schedulers) -> None:
    """What the next tests rely on."""
    with schedulers.two("plain"):
        until(lambda: 2 in times_run(schedulers), within=LONG)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("mode", ["threads", "asyncio"])
def test_each_fire_time_runs_in_one_process(schedulers: Schedulers, mode: str) -> None:
    with schedulers.two(mode):
        schedulers.wait_for("executed", FIRES)
        schedulers.wait_for("elsewhere", FIRES)
    assert times_run(schedulers) == {1}
    assert schedulers.lines("error") == []


def test_flask_is_configured_by_its_settings(schedulers: Schedulers) -> None:
    with schedulers.two("", "aps_flask.py"):
        schedulers.wait_for("executed", FIRES)
    assert times_run(schedulers) == {1}


def test_when_a_process_is_killed_in_the_middle_the_other_one_runs_that_fire_time(schedulers: Schedulers) -> None:
    with schedulers.two("slow") as programs, gripfast.connect(schedulers.server.url) as client:
        running = until(lambda: held(client), within=LONG)[0]
        moment = running.name.partition("@")[2]
        [doomed] = [each for each in programs if each.pid == running.pid]
        doomed.kill()
        assert schedulers.lines("executed") == []
        schedulers.data.rpush("go", "go")
        until(lambda: moment in [utc(line) for line in schedulers.lines("executed")], within=LONG)
    assert times_run(schedulers) == {1}


def held(client: gripfast.Client) -> list[gripfast.LockInfo]:
    """The runs that another process waits for."""
    return [info for info in client.list() if info.kept is None and info.waiters]


def utc(line: str) -> str:
    return datetime.fromisoformat(line).astimezone(UTC).isoformat()


def test_alone_means_not_while_an_earlier_run_still_runs(schedulers: Schedulers) -> None:
    with schedulers.two("alone") as programs:
        until(lambda: all("an earlier run has not ended" in each.said for each in programs), within=LONG)
        assert schedulers.data.get("runs") == b"1"
        schedulers.data.rpush("go", "go")
        schedulers.wait_for("executed", 2)
    assert times_run(schedulers) == {1}
