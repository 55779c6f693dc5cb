"""A register in PostgreSQL, behind leases in PostgreSQL, while writers are stopped past their ttl.

Each time, one who has read and not yet written is stopped until others have gone on. The lock does nothing wrong: it
is the stopped writer's own write that comes late. GRIPFAST_CHAOS=long stops more of them; `-s` shows the figures.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from chaos.stage import LONG, LONGER
from fencing.sql_databases import fenced_database
from fencing.stopping import stop_one_at_work
from support.processes import Worker
from support.sql_servers import postgres_server
from support.waiting import until

WRITER = str(Path(__file__).with_name("sql_writer.py"))
WRITERS = 3
PAUSES = 60 if LONG else 2
REGISTER = "register"


class Tally(NamedTuple):
    acknowledged: int
    kept: int
    refused: int
    unknown: int
    """Writes whose commit nobody heard of: they may be among those that were kept."""

    @property
    def lost(self) -> int:
        return self.acknowledged - self.kept


@pytest.fixture
def data_url() -> Iterator[str]:
    """Of the register."""
    with fenced_database("postgresql") as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE register (value bigint)")
            connection.execute("INSERT INTO register VALUES (0)")
        yield url


def run(data_url: str, folder: Path, how: str) -> Tally:
    locks_url = postgres_server().lock_space()
    with ExitStack() as stack:
        data = stack.enter_context(psycopg.connect(data_url, autocommit=True))
        writers = [
            stack.enter_context(Worker(WRITER, locks_url, data_url, REGISTER, how, folder)) for _ in range(WRITERS)
        ]
        for _ in range(PAUSES):
            stopped = stop_one_at_work(writers, folder)
            others_go_on(data)
            stopped.go_on()
            others_go_on(data)
        tally = ended(writers, data)
    print(f"{how}, {PAUSES} pauses: {tally}, lost: {tally.lost}")
    return tally


def value_of(data: "psycopg.Connection") -> int:
    ((value,),) = data.execute("SELECT value FROM register").fetchall()
    return int(value)


def others_go_on(data: "psycopg.Connection", updates: int = 3) -> None:
    """Whatever the value is: it changes so many times."""
    seen: list[int] = []

    def changed() -> bool:
        value = value_of(data)
        if not seen or seen[-1] != value:
            seen.append(value)
        return len(seen) > updates

    until(changed, within=20.0)


def ended(writers: list[Worker], data: "psycopg.Connection") -> Tally:
    for writer in writers:
        os.kill(writer.pid, signal.SIGTERM)
    told = []
    for writer in writers:
        told.append([int(word) for word in writer.expect("ended")])
        assert writer.ended() == 0, writer.errors
    acknowledged, refused, unknown = map(sum, zip(*told, strict=True))
    return Tally(acknowledged, value_of(data), refused, unknown)


@pytest.mark.timeout(180 + 20 * LONGER)
def test_a_register_behind_the_tokens_keeps_every_update(data_url: str, tmp_path: Path) -> None:
    tally = run(data_url, tmp_path, "fenced")
    assert tally.acknowledged <= tally.kept <= tally.acknowledged + tally.unknown
    assert tally.refused > 0


@pytest.mark.timeout(180 + 20 * LONGER)
def test_without_them_the_same_run_loses_updates(data_url: str, tmp_path: Path) -> None:
    tally = run(data_url, tmp_path, "bare")
    assert tally.lost > 0
    assert tally.refused == 0
