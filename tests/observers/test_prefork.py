"""Real servers that fork: gunicorn with four workers, and Celery's prefork pool. Their metrics are those of all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

import gripfast
from observers.reading import Figures, Told, figures_of
from support.ports import reserved_port
from support.redis_server import RedisServer
from support.waiting import until

HERE = Path(__file__).parent
WORKERS = 4


class Scraped:
    """What a page says, as a registry."""

    def __init__(self, text: str) -> None:
        self._text = text

    def collect(self) -> Any:
        return text_string_to_metric_families(self._text)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def environment(server: RedisServer, tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "metrics"
    folder.mkdir()
    return {**os.environ, "GRIPFAST_URL": server.url, "PROMETHEUS_MULTIPROC_DIR": str(folder)}


@contextmanager
def running(words: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        command = [sys.executable, "-m", *words]
        process = subprocess.Popen(command, cwd=HERE, env=environment, stdout=out, stderr=out, process_group=0)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def by_hand(kept: int, others: int, lost: int, refused: int) -> dict[tuple[str, ...], float]:
    """The counts of such a day. Durations are whatever they were."""
    return {
        ("gripfast_acquisitions", "redis", "kept", "granted"): kept,
        ("gripfast_acquisitions", "redis", "reports", "granted"): others,
        ("gripfast_acquisitions", "redis", "reports", "refused"): refused,
        ("gripfast_acquisitions", "redis", "risky", "granted"): lost,
        ("gripfast_losses", "redis", "risky", "max_hold"): lost,
        ("gripfast_held", "redis", "kept"): kept,
        ("gripfast_hold_duration_seconds", "redis", "reports"): others,
        ("gripfast_hold_duration_seconds", "redis", "risky"): lost,
        ("gripfast_wait_duration_seconds", "redis", "kept", "granted"): kept,
        ("gripfast_wait_duration_seconds", "redis", "reports", "granted"): others,
        ("gripfast_wait_duration_seconds", "redis", "reports", "refused"): refused,
        ("gripfast_wait_duration_seconds", "redis", "risky", "granted"): lost,
    }


def counts(figures: Figures) -> dict[tuple[str, ...], float]:
    """Without renewals, which come when they come."""
    return {
        key: value.values if isinstance(value, Told) else value
        for key, value in figures.items()
        if not key[0].startswith("gripfast_renewal")
    }


def come_to(expected: dict[tuple[str, ...], float], scrape: Callable[[], Figures]) -> None:
    """The observers are told a moment later."""
    try:
        until(lambda: counts(scrape()) == expected, within=20)
    except AssertionError:
        assert counts(scrape()) == expected


def test_the_page_of_any_gunicorn_worker_tells_of_all_four(environment: dict[str, str], tmp_path: Path) -> None:
    port = reserved_port()
    words = ["gunicorn", "--workers", str(WORKERS), "--preload", "--bind", f"127.0.0.1:{port}"]
    words += ["--config", "gunicorn_settings.py", "shop:app"]

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as page:
            return str(page.read(), "utf-8")

    def scrape() -> Figures:
        return figures_of(Scraped(get("/metrics")))  # type: ignore[arg-type]

    log = tmp_path / "gunicorn.log"
    with running(words, environment, log), gripfast.connect(environment["GRIPFAST_URL"]) as other, other.lock("busy"):
        until(lambda: answers(get), within=30)
        done = at_work(lambda: get("/report"))
        kept = get("/hold")
        for path in ("/lose", "/refused", "/refused"):
            get(path)
        come_to(by_hand(1, done, 1, 2), scrape)
        os.kill(int(kept), signal.SIGKILL)  # what it held is held no more; what it counted stays counted
        expected = by_hand(1, done, 1, 2)
        del expected["gripfast_held", "redis", "kept"]
        come_to(expected, scrape)


def answers(get: Callable[[str], str]) -> bool:
    try:
        return bool(get("/metrics") or True)
    except OSError:
        return False


def at_work(work: Callable[[], str]) -> int:
    """Go on until every worker has worked; how often that was."""
    pids: list[str] = []
    with ThreadPoolExecutor(8) as pool:
        while len(set(pids)) < WORKERS:
            assert len(pids) < 2000
            pids += pool.map(lambda _: work(), range(16))
    return len(pids)


def test_the_folder_of_a_prefork_pool_of_celery_tells_of_all_children(
    environment: dict[str, str], tmp_path: Path
) -> None:
    words = ["celery", "--app", "shop:tasks", "worker", "--pool", "prefork", "--concurrency", str(WORKERS)]
    words += ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]

    def scrape() -> Figures:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, environment["PROMETHEUS_MULTIPROC_DIR"])
        return figures_of(registry)

    url = environment["GRIPFAST_URL"]
    with running(words, environment, tmp_path / "celery.log"), gripfast.connect(url) as other, other.lock("busy"):
        with Celery("shop", broker=url, backend=url) as tasks:

            def do(path: str) -> str:
                return str(tasks.send_task("do", [path]).get(timeout=60))

            done = at_work(lambda: do("/report"))
            do("/hold")
            for path in ("/lose", "/refused", "/refused"):
                do(path)
            come_to(by_hand(1, done, 1, 2), scrape)
