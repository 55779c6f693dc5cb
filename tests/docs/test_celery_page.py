"""What docs/celery.md shows works as printed: two workers by its commands, and the program that orders four reports. So
does what docs/observability.md says of Celery.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from celery import Celery
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from contrib.programs import program
from gripfast.contrib.celery import BUSY, LockedTask
from support.pages import Program, blocks, files, is_as_told, page, programs, run_program, run_typed
from support.redis_server import RedisServer
from support.waiting import until

PAGE = page("celery")
TASKS, ORDERS, SINGLETON, ONCE = programs(PAGE)
OBSERVED = page("observability").partition("\n## Celery\n")[2].partition("\n## ")[0]
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
    assert len(blocks(PAGE, "python")) == 4
    assert len(WORKERS) == 2


def test_two_workers_write_four_reports_one_after_the_other(folder: Path) -> None:
    printed = run_program(ORDERS.code, folder)
    assert is_as_told(printed, ORDERS.prints or ""), printed


@pytest.mark.parametrize("shown", [SINGLETON, ONCE], ids=["what runs already", "what was done"])
def test_it_is_skipped(shown: Program, tmp_path: Path) -> None:
    printed = run_program(shown.code, tmp_path)
    assert is_as_told(printed, shown.prints or ""), printed


def test_a_worker_whose_tasks_have_a_client_with_an_observer_counts_their_locks(tmp_path: Path) -> None:
    """As docs/observability.md has it: the file, and the commands that start the worker."""
    before, worker = blocks(OBSERVED, "sh")[0].splitlines()
    metrics = tmp_path / run_typed([f"cd {tmp_path}; {before}; echo $PROMETHEUS_MULTIPROC_DIR"], tmp_path)[0].strip()
    with RedisServer() as server:
        tasks = files(OBSERVED)["tasks.py"].replace("localhost:6379", f"127.0.0.1:{server.port}")
        (tmp_path / "tasks.py").write_text(tasks, encoding="utf-8")
        environment = {"PROMETHEUS_MULTIPROC_DIR": str(metrics)}
        words = ["-m", *shlex.split(worker)]
        with program(*words, log=tmp_path / "log", folder=tmp_path, environment=environment) as running:
            order = "from tasks import report; print([report.delay(user).get(timeout=45) > 0 for user in (7, 8, 8)])"
            assert run_program(order, tmp_path) == "[True, True, True]\n"
            until(lambda: granted(metrics) == 3, within=LONG)
            running.ask_to_end()
    assert granted(metrics) == 3
    assert not list(metrics.glob("gauge_live*"))


def granted(metrics: Path) -> float | None:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(metrics))
    labels = {"db_system_name": "redis", "gripfast_group": "report:{user_id}", "gripfast_outcome": "granted"}
    return registry.get_sample_value("gripfast_acquisitions_total", labels)


def test_every_way_to_be_busy_is_on_the_page() -> None:
    for word in BUSY:
        assert f'\n| `"{word}"` |' in PAGE


def test_the_defaults_are_those_of_the_code() -> None:
    assert (LockedTask.busy, LockedTask.wait, LockedTask.lost, LockedTask.client) == ("retry", 0, "raise", None)
    assert (LockedTask.default_retry_delay, LockedTask.max_retries) == (180, 3)
