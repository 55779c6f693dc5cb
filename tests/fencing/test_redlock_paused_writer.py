"""A register behind a Redlock of five nodes, while writers are stopped past their ttl and nodes are killed.

Each time, one who has read and not yet written is stopped until others have gone on, and a node is restarted
meanwhile, every other time without its memory. The lock does nothing wrong: it is the stopped writer's own write that
comes late.
GRIPFAST_CHAOS=long stops more of them; `-s` shows the figures.
"""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from chaos.five import NODE_TIMEOUT, five_nodes, url_of
from chaos.stage import LONGER
from fencing.stopping import stop_one_at_work
from support.processes import Worker
from support.redis_server import RedisServer
from support.waiting import until

WRITER = str(Path(__file__).with_name("redlock_writer.py"))
WRITERS = 3
PAUSES = 2 * LONGER
REGISTER = "register"


class Tally(NamedTuple):
    acknowledged: int
    kept: int
    refused: int

    @property
    def lost(self) -> int:
        return self.acknowledged - self.kept


@pytest.fixture
def nodes() -> Iterator[list[RedisServer]]:
    with five_nodes() as nodes:
        yield nodes


@pytest.fixture
def store() -> Iterator[RedisServer]:
    """Of the register."""
    with RedisServer() as server:
        yield server


def run(nodes: list[RedisServer], store: RedisServer, folder: Path, how: str) -> Tally:
    url = f"{url_of(node.port for node in nodes)}&request_timeout={NODE_TIMEOUT:g}"
    chance = random.Random(how)
    with ExitStack() as stack:
        writers = [stack.enter_context(Worker(WRITER, url, store.url, REGISTER, how, folder)) for _ in range(WRITERS)]
        for number in range(PAUSES):
            stopped = stop_one_at_work(writers, folder)
            node = chance.choice(nodes)
            node.restart_empty() if number % 2 else node.restart()
            others_go_on(store)
            stopped.go_on()
            others_go_on(store)
        tally = ended(writers, store)
    print(f"{how}, {PAUSES} pauses: {tally}, lost: {tally.lost}")
    return tally


def others_go_on(store: RedisServer, updates: int = 5) -> None:
    """Whatever the value is: it changes so many times."""
    with store.client() as data:
        seen: list[bytes] = []

        def changed() -> bool:
            value = data.get(REGISTER) or b"0"
            if not seen or seen[-1] != value:
                seen.append(value)
            return len(seen) > updates

        until(changed, within=20.0)


def ended(writers: list[Worker], store: RedisServer) -> Tally:
    acknowledged = refused = 0
    for writer in writers:
        os.kill(writer.pid, signal.SIGTERM)
    for writer in writers:
        numbers = [int(word) for word in writer.expect("ended")]
        acknowledged, refused = acknowledged + numbers[0], refused + numbers[1]
        assert writer.ended() == 0, writer.errors
    with store.client() as data:
        return Tally(acknowledged, int(data.get(REGISTER)), refused)


def test_a_register_behind_the_tokens_keeps_every_update(
    nodes: list[RedisServer], store: RedisServer, tmp_path: Path
) -> None:
    tally = run(nodes, store, tmp_path, "fenced")
    assert tally.lost == 0
    assert tally.refused > 0


def test_without_them_the_same_run_loses_updates(nodes: list[RedisServer], store: RedisServer, tmp_path: Path) -> None:
    tally = run(nodes, store, tmp_path, "bare")
    assert tally.lost > 0
    assert tally.refused == 0
