"""Real workers of `celery_app`, each on a queue of its own, so that a test knows which worker a task goes to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from celery import Celery
from celery.result import AsyncResult

import gripfast
from contrib.programs import Program, program
from support.redis_server import RedisServer
from support.waiting import until

LONG = 60.0
"""Seconds that a worker may take: far above what it needs, so that only a hang reaches it."""


class Cluster:
    """A broker and its workers, seen from a producer that has none of their code: it sends tasks by name."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.server = server
        self.data: redis.Redis[bytes] = server.client()  # type: ignore[type-arg, unused-ignore]
        self.locks = gripfast.connect(server.url)
        self.app = Celery("producer", broker=server.url, backend=server.url)
        self._folder = folder

    @contextmanager
    def workers(self, *queues: str, pool: str = "prefork", concurrency: int = 1) -> Iterator[list[Program]]:
        """One for each of these queues."""
        with ExitStack() as stack:
            running = [stack.enter_context(self._worker(queue, pool, concurrency)) for queue in queues]
            until(lambda: all("ready." in worker.said for worker in running), within=LONG)
            yield running
            for worker in running:
                worker.ask_to_end()

    def _worker(self, queue: str, pool: str, concurrency: int) -> AbstractContextManager[Program]:
        words = ["-m", "celery", "-A", "celery_app", "worker", "-Q", queue, "-n", f"{queue}@here", "--pool", pool]
        words += ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO"]
        words += ["--concurrency", str(concurrency)]
        return program(*words, log=self._folder / f"{queue}.log", environment={"GRIPFAST_URL": self.server.url})

    def send(self, task: str, *args: object, queue: str, **options: Any) -> AsyncResult[Any]:
        return self.app.send_task(task, args, queue=queue, **options)

    def begun(self, number: str) -> list[int]:
        """The processes that have begun the task of this number, in order."""
        lines = [line.decode().split() for line in self.data.lrange("begun", 0, -1)]
        return [int(pid) for each, pid in lines if each == number]

    def pid_of(self, number: str, times: int = 1) -> int:
        """The process that runs it, as soon as one does."""
        return until(lambda: self.begun(number)[times - 1 :], within=LONG)[0]

    def go(self, number: str) -> None:
        self.data.rpush(f"go:{number}", "go")

    def close(self) -> None:
        self.app.close()
        self.locks.close()
        self.data.close()


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    with RedisServer() as server:
        made = Cluster(server, folder)
        try:
            yield made
        finally:
            made.close()
