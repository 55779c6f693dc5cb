"""Metrics for Prometheus: `connect(url, observers=[PrometheusObserver()])`.

They are in the default registry of `prometheus_client`, or in the one that you name, and are served with everything
else that is there. They are right in multiprocess mode, too (`$PROMETHEUS_MULTIPROC_DIR`): the gauges add up over the
processes that live.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from gripfast.core.events import Event
from gripfast.extras import how_to_install
from gripfast.observers.figures import METRICS, Metric, MetricsObserver, Sink, prometheus_label, prometheus_name

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ImportError as error:
    raise ImportError(
        f"metrics for Prometheus need the package prometheus_client: {how_to_install('prometheus')}"
    ) from error

__all__ = ["PrometheusObserver"]


class PrometheusObserver(MetricsObserver):
    """Counts for Prometheus, in this registry or in the default one. Several observers may share a registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or REGISTRY
        if registry not in _SINKS:
            _SINKS[registry] = _Registered(registry)
        self._sink = _SINKS[registry]


class _Registered(Sink):
    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._metrics = {metric: _made(metric, registry) for metric in METRICS}
        self._children: dict[tuple[Metric, tuple[str, ...]], Any] = {}

    def observe(self, metric: Metric, value: float, labels: tuple[str, ...], event: Event) -> None:
        self._child(metric, labels).observe(value)

    def add(self, metric: Metric, amount: int, labels: tuple[str, ...]) -> None:
        self._child(metric, labels).inc(amount)

    def forked(self) -> None:
        """In multiprocess mode the child gets files of its own, which are empty."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            for (metric, _), child in self._children.items():
                if metric.kind == "up_down":
                    child.set(0)

    def _child(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        child = self._children.get((metric, labels))
        if child is None:
            child = self._children[metric, labels] = self._metrics[metric].labels(*labels)
        return child


def _made(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name, labels = prometheus_name(metric), [prometheus_label(each) for each in metric.attributes]
    if metric.kind == "histogram":
        return Histogram(name, metric.about, labels, registry=registry, buckets=metric.buckets)
    if metric.kind == "counter":
        return Counter(name, metric.about, labels, registry=registry)
    return Gauge(name, metric.about, labels, registry=registry, multiprocess_mode="livesum")


_SINKS: weakref.WeakKeyDictionary[CollectorRegistry, Sink] = weakref.WeakKeyDictionary()
