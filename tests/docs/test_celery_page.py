"""What docs/celery.md shows works as printed: two workers by its commands, and the program that orders four reports."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from celery import Celery

from contrib.programs import program
from gripfast.contrib.celery import BUSY, LockedTask
from support.pages import blocks, is_as_told, page, programs, run_program
from support.redis_server import RedisServer
from support.waiting import until

PAGE = page("celery")
TASKS, ORDERS, ONCE = programs(PAGE)
WORKERS = [line for block in blocks(PAGE, "sh") for line in block.splitlines() if " worker " in line]
LONG = 60


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """With `tasks.py`, and the workers of the page."""
    with RedisServer() as server, ExitStack() as stack:
        tasks = TASKS.code.replace("localhost:6379", f"127.0.0.1:{server.port}")
        (tmp_path / "tasks.py").write_text(tasks, encoding="utf-8")
        commands = [shlex.split(line) for line in WORKERS]
        workers = [
            stack.enter_context(program("-m", *words, log=tmp_path / f"{number}.log", folder=tmp_path))
            for number, words in enumerate(commands)
        ]
        with Celery("producer", broker=server.url) as producer:
            until(lambda: len(producer.control.ping(timeout=2)) == len(workers), within=LONG)
        yield tmp_path
        for worker in workers:
            worker.ask_to_end()


def test_the_page_has_these_programs() -> None:
    assert len(blocks(PAGE, "python")) == 3
    assert len(WORKERS) == 2


def test_two_workers_write_four_reports_one_after_the_other(folder: Path) -> None:
    printed = run_program(ORDERS.code, folder)
    assert is_as_told(printed, ORDERS.prints or ""), printed


def test_what_was_done_is_skipped(tmp_path: Path) -> None:
    printed = run_program(ONCE.code, tmp_path)
    assert is_as_told(printed, ONCE.prints or ""), printed


def test_every_way_to_be_busy_is_on_the_page() -> None:
    for word in BUSY:
        assert f'\n| `"{word}"` |' in PAGE


def test_the_defaults_are_those_of_the_code() -> None:
    assert (LockedTask.busy, LockedTask.wait, LockedTask.lost, LockedTask.client) == ("retry", 0, "raise", None)
    assert (LockedTask.default_retry_delay, LockedTask.max_retries) == (180, 3)
