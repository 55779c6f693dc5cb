"""A register behind locks on etcd, while writers are stopped past their ttl, and members are killed and stopped.

Each time, one who has read and not yet written is stopped until others have gone on. The lock does nothing wrong: it is
the stopped writer's own write that comes late. GRIPFAST_CHAOS=long stops more of them; `-s` shows the figures.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos.stage import LONG, LONGER
from fencing.stopping import stop_one_at_work
from fencing.test_redlock_paused_writer import REGISTER, WRITER, WRITERS, Tally, ended, others_go_on
from support.etcd_servers import Trio
from support.processes import Worker
from support.redis_server import RedisServer

PAUSES = 2 * LONGER

pytestmark = pytest.mark.timeout(1200 if LONG else 180)


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    with Trio() as trio:
        yield trio


@pytest.fixture
def register() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def run(trio: Trio, register: RedisServer, folder: Path, how: str) -> Tally:
    chance, url = random.Random(how), f"{trio.lock_space()}&request_timeout=2"
    with ExitStack() as stack:
        given = (url, register.url, REGISTER, how, folder)
        writers = [stack.enter_context(Worker(WRITER, *given)) for _ in range(WRITERS)]
        for number in range(PAUSES):
            stopped = stop_one_at_work(writers, folder)
            member = chance.choice(trio.servers) if number % 2 else trio.leader()
            member.kill()
            others_go_on(register)
            stopped.go_on()
            member.restart()
            trio.all_serve()
            others_go_on(register)
        tally = ended(writers, register)
    print(f"{how}, {PAUSES} pauses: {tally}, lost: {tally.lost}")
    return tally


def test_a_register_behind_the_tokens_keeps_every_update(trio: Trio, register: RedisServer, tmp_path: Path) -> None:
    tally = run(trio, register, tmp_path, "fenced")
    assert tally.lost == 0
    assert tally.refused > 0


def test_without_them_the_same_run_loses_updates(trio: Trio, register: RedisServer, tmp_path: Path) -> None:
    tally = run(trio, register, tmp_path, "bare")
    assert tally.lost > 0
    assert tally.refused == 0
