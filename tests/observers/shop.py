"""An application as people write it: a WSGI page for gunicorn, and the same work as a Celery task.

Its locks are in the Redis of $GRIPFAST_URL, its metrics in $PROMETHEUS_MULTIPROC_DIR.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from celery import Celery
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

import gripfast
from gripfast.observers.prometheus import PrometheusObserver

client = gripfast.connect(observers=[PrometheusObserver()])


def work(path: str) -> str:
    """Which process did it."""
    if path == "/hold":
        _kept.append(client.lock(f"kept by {os.getpid()}", group="kept").acquire())
    elif path == "/lose":
        client.lock(f"lost by {os.getpid()}", group="risky", max_hold=0.01).acquire().lost.wait(10)
    elif path == "/refused":
        assert client.lock("busy", group="reports").try_acquire() is None
    else:
        with client.lock("report", group="reports").acquire(wait=30):
            pass
    return str(os.getpid())


_kept: list[Any] = []


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [metrics() if environ["PATH_INFO"] == "/metrics" else work(environ["PATH_INFO"]).encode()]


def metrics() -> bytes:
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return generate_latest(registry)


tasks = Celery("shop", broker=os.environ["GRIPFAST_URL"], backend=os.environ["GRIPFAST_URL"])
do = tasks.task(name="do")(work)
