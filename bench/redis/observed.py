"""What observers cost: the pair of a free lock on Redis with metrics and without.

Client and server have cores of their own, as in production: on one core, the wake-ups of the observers' thread would be
counted as the server's time. On a busy machine only the processor time tells something: it is shown beside.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gripfast
from bench.promise import at_most
from bench.redis.server import redis_server
from bench.scenario import Contestant, Place, Sample, Scenario
from bench.timing import MICROSECONDS, per_operation

PAIRS = (2_000, 10)
"""So many that it hardly counts that the events of the last 20 ms are delivered in the round of the next contestant."""
CPU = "cpu µs"
PLAIN = "gripfast without observers"
OTEL = "gripfast with OpenTelemetry"
PROMETHEUS = "gripfast with Prometheus"

Observers = Callable[[], list[Any]]


def otel() -> list[Any]:
    """The SDK, with exports in batches that nobody receives: what is sent depends on the exporter."""
    sdk, export = importlib.import_module("opentelemetry.sdk.metrics"), importlib.import_module("bench.redis.nowhere")
    tracing = importlib.import_module("opentelemetry.sdk.trace")
    tracers = tracing.TracerProvider()
    tracers.add_span_processor(export.spans())
    observer = importlib.import_module("gripfast.observers.otel").OpenTelemetryObserver
    return [observer(sdk.MeterProvider([export.metrics()]), tracers)]


def prometheus() -> list[Any]:
    registry = importlib.import_module("prometheus_client").CollectorRegistry()
    return [importlib.import_module("gripfast.observers.prometheus").PrometheusObserver(registry)]


def observed(name: str, observers: Observers, needs: tuple[str, ...]) -> Contestant:
    @contextmanager
    def opened(place: Place) -> Iterator[Callable[[], Sample]]:
        with gripfast.connect(place.url, observers=observers()) as client:
            lock = client.lock("bench", group="bench")
            yield lambda: with_cpu(lambda: per_operation(lambda: lock.acquire().release(), place.size(*PAIRS)), place)

    return Contestant(name, opened, needs)


def with_cpu(measure: Callable[[], Mapping[str, float]], place: Place) -> Sample:
    """Of this process, all of its threads."""
    before = time.process_time()
    sample = measure()
    return {**sample, CPU: (time.process_time() - before) / place.size(*PAIRS) * 1e6}


@contextmanager
def on_its_own_core(folder: Path) -> Iterator[str]:
    """The server on the last core that this process may use, and the process on the others."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-1:])
    try:
        with redis_server(folder) as url:
            os.sched_setaffinity(0, cores[:-1] or cores)
            yield url
    finally:
        os.sched_setaffinity(0, cores)


REDIS_OBSERVERS = Scenario(
    name="redis observers",
    about="acquiring and releasing a free lock on Redis, with metrics and without",
    contestants=(
        observed(PLAIN, list, ("redis",)),
        observed(PROMETHEUS, prometheus, ("redis", "prometheus_client")),
        observed(OTEL, otel, ("redis", "opentelemetry-sdk")),
    ),
    figure=MICROSECONDS,
    against=PLAIN,
    promises=(
        at_most(OTEL, 1.3, MICROSECONDS, against=PLAIN),
        at_most(PROMETHEUS, 1.2, MICROSECONDS, against=PLAIN),
    ),
    pinned=False,
    server=on_its_own_core,
    slower=1.10,
)
