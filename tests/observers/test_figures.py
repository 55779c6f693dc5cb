"""What each event adds to the metrics, and how many series there can be."""

from __future__ import annotations

import os
import threading
from typing import Any, get_args

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

import gripfast
from gripfast import Event
from gripfast.observers.figures import GROUPS_MOST, OTHER
from gripfast.observers.otel import OpenTelemetryObserver
from gripfast.observers.prometheus import PrometheusObserver
from gripfast.testing.conformance.test_forks import forks, in_a_child
from observers.reading import OpenTelemetry, Prometheus
from support.waiting import until

LIBRARIES = [OpenTelemetry, Prometheus]


def event(kind: Any, **more: Any) -> Event:
    known: dict[str, Any] = {"name": "n", "group": "g", "owner": "o", "store": "s", "engine": "redis", "ttl": 30.0}
    return Event(**{**known, "kind": kind, "at": 0.0, "wall": 0.0, **more})


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("reason", get_args(gripfast.Reason))
def test_a_loss_is_counted_for_its_reason(library: Any, reason: str) -> None:
    told = library()
    for each in (event("claimed"), event("granted"), event("lost", reason=reason, held=2.0)):
        getattr(told.observer, each.kind)(each)
    figures = told.figures()
    assert figures["gripfast_losses", "redis", "g", reason] == 1
    assert ("gripfast_held", "redis", "g") not in figures
    assert figures["gripfast_hold_duration_seconds", "redis", "g"].sum == 2.0


@pytest.mark.parametrize(
    ("engine", "system"), [("sentinel", "redis"), ("cluster", "redis"), ("redlock", "redis"), ("valkey", "valkey")]
)
def test_a_system_is_the_software_however_its_servers_are_arranged(engine: str, system: str) -> None:
    told = Prometheus()
    told.observer.claimed(event("claimed", engine=engine))
    assert set(told.figures()) == {("gripfast_waiting", system, "g")}


def test_losses_are_told_before_there_are_any() -> None:
    """A series that begins with 1 has no rate: nobody would be alarmed at the first loss."""
    otel, prometheus = OpenTelemetry(), Prometheus()
    for observer in (otel.observer, prometheus.observer):
        observer.claimed(event("claimed"))
    (metric,) = [each for each in prometheus.registry.collect() if each.name == "gripfast_losses"]
    told = [each for each in metric.samples if each.name.endswith("_total")]
    assert {each.labels["error_type"] for each in told} == {"expired", "taken", "broken", "session", "max_hold"}
    assert {each.value for each in told} == {0.0}
    data = otel.reader.get_metrics_data()
    (losses,) = [each for each in data.resource_metrics[0].scope_metrics[0].metrics if each.name == "gripfast.losses"]
    assert [point.value for point in losses.data.data_points] == [0] * len(told)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({"reason": "taken"}, "refused"),
        ({"reason": "taken", "queued": True}, "timeout"),
        ({"reason": "cancelled", "queued": True}, "cancelled"),
        ({"reason": "closed"}, "closed"),
        ({"reason": "error", "error": gripfast.ConfigurationError("x")}, "error"),
    ],
)
def test_a_refusal_is_counted_for_its_outcome(library: Any, more: Any, outcome: str) -> None:
    told = library()
    told.observer.claimed(event("claimed"))
    told.observer.refused(event("refused", waited=0.5, **more))
    figures = told.figures()
    assert figures["gripfast_acquisitions", "redis", "g", outcome] == 1
    assert figures["gripfast_wait_duration_seconds", "redis", "g", outcome].sum == 0.5
    assert ("gripfast_waiting", "redis", "g") not in figures


def test_ten_thousand_names_are_one_series() -> None:
    otel, prometheus = OpenTelemetry(), Prometheus()
    with gripfast.connect("memory://", observers=[otel.observer, prometheus.observer]) as client:
        for number in range(10_000):
            client.lock(f"user:{number}", group="users").acquire().release()
            if number % 2_000 == 0:  # what comes too quickly is left out
                until(lambda: otel.figures().get(("gripfast_held", "memory", "users"), 0) == 0)
    series = set(prometheus.figures())
    assert series == set(otel.figures())
    assert len(series) == 3
    assert not [key for key in series if "user:" in str(key)]
    assert sum(1 for family in prometheus.registry.collect() for _ in family.samples) < 60


@pytest.mark.parametrize("library", LIBRARIES)
def test_groups_without_end_are_counted_together(library: Any) -> None:
    told = library()
    for number in range(10_000):
        told.observer.claimed(event("claimed", group=f"group of {number}"))
        told.observer.granted(event("granted", group=f"group of {number}"))
    held = {key[2]: value for key, value in told.figures().items() if key[0] == "gripfast_held"}
    assert len(held) == GROUPS_MOST + 1
    assert held[OTHER] == 10_000 - GROUPS_MOST
    told.observer.released(event("released", group="group of 9999"))
    assert told.figures()["gripfast_held", "redis", OTHER] == held[OTHER] - 1


def test_observers_of_one_registry_or_provider_count_together() -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    otel, prometheus = OpenTelemetry(), Prometheus()
    otel.reader, prometheus.registry = reader, registry
    for observer in [PrometheusObserver(registry) for _ in range(2)] + [OpenTelemetryObserver(provider) for _ in "ab"]:
        observer.claimed(event("claimed"))
    assert otel.figures() == prometheus.figures() == {("gripfast_waiting", "redis", "g"): 2}


@forks
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_forked_child_holds_nothing(library: Any) -> None:
    """Its counters go on from the parent's, as all of these libraries do."""
    told = library()
    with gripfast.connect("memory://", observers=[told.observer]) as client, client.lock("job", group="g"):
        until(lambda: told.figures().get(("gripfast_held", "memory", "g")) == 1)

        def look() -> list[str]:
            before = sorted("/".join(key) for key in told.figures() if key[0] == "gripfast_held")
            told.observer.claimed(event("claimed"))
            told.observer.granted(event("granted"))
            after = told.figures()
            return [*before, str(after["gripfast_held", "redis", "g"])]

        assert in_a_child(look) in (["1"], ["1.0"])
        assert told.figures()["gripfast_held", "memory", "g"] == 1


@forks
@pytest.mark.parametrize("library", LIBRARIES)
def test_no_child_inherits_a_locked_mutex(library: Any) -> None:
    """A thread counts all the time while others fork."""
    told, over = library(), threading.Event()

    def count() -> None:
        while not over.is_set():
            told.observer.claimed(event("claimed"))
            told.observer.refused(event("refused", reason="taken"))

    thread = threading.Thread(target=count)
    thread.start()
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                told.observer.claimed(event("claimed"))
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        over.set()
        thread.join()


def test_without_the_sdk_nothing_happens() -> None:
    with gripfast.connect("memory://", observers=[OpenTelemetryObserver()]) as client, client.lock("job"):
        assert client.lock("job").try_acquire() is None
