"""What both libraries of metrics were told, in one form: by the names that Prometheus has."""

from __future__ import annotations

from typing import Any, NamedTuple

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, Metric

from gripfast.observers.figures import METRICS, prometheus_label, prometheus_name
from gripfast.observers.otel import OpenTelemetryObserver
from gripfast.observers.prometheus import PrometheusObserver


class Told(NamedTuple):
    """Of a histogram."""

    values: int
    sum: float
    buckets: tuple[int, ...]
    """How many values were at most as large as each bound."""


Figures = dict[tuple[str, ...], Any]
"""The metric and the values of its labels → a number, or `Told`. What is 0 is left out."""

NAMES = {metric.name: metric for metric in METRICS}


class OpenTelemetry:
    """The SDK, with all that it exports in memory."""

    def __init__(self) -> None:
        self.reader, self.spans, self.logs = InMemoryMetricReader(), InMemorySpanExporter(), InMemoryLogRecordExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        loggers = LoggerProvider(shutdown_on_exit=False)
        loggers.add_log_record_processor(SimpleLogRecordProcessor(self.logs))
        meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.observer = OpenTelemetryObserver(meters, self.tracers, loggers)

    def figures(self) -> Figures:
        data = self.reader.get_metrics_data()
        found = [each for r in data.resource_metrics for s in r.scope_metrics for each in s.metrics] if data else []
        return {
            _key(each.name, point.attributes): _told_by_otel(point)
            for each in found
            for point in each.data.data_points
            if isinstance(point, HistogramDataPoint) or point.value
        }

    def finished(self) -> list[ReadableSpan]:
        return list(self.spans.get_finished_spans())


def _key(name: str, attributes: Any) -> tuple[str, ...]:
    metric = NAMES[name]
    assert set(attributes) <= set(metric.attributes)
    return prometheus_name(metric), *(str(attributes.get(each, "")) for each in metric.attributes)


def _told_by_otel(point: Any) -> Any:
    if not isinstance(point, HistogramDataPoint):
        return point.value
    at_most = [sum(point.bucket_counts[: place + 1]) for place in range(len(point.explicit_bounds))]
    return Told(point.count, point.sum, tuple(at_most))


class Prometheus:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.observer = PrometheusObserver(self.registry)

    def figures(self) -> Figures:
        return figures_of(self.registry)


def figures_of(registry: CollectorRegistry) -> Figures:
    """Of Gripfast's metrics, whatever else is there."""
    known = {prometheus_name(metric): metric for metric in METRICS}
    found: Figures = {}
    for family in registry.collect():
        if family.name in known:
            labels = [prometheus_label(each) for each in known[family.name].attributes]
            for key in {tuple(sample.labels[each] for each in labels) for sample in family.samples}:
                value = _told_by_prometheus(family, dict(zip(labels, key, strict=True)))
                if value:
                    found[family.name, *key] = value
    return found


def _told_by_prometheus(family: Metric, labels: dict[str, str]) -> Any:
    mine = [each for each in family.samples if each.labels.items() >= labels.items()]
    if family.type != "histogram":
        (value,) = [each.value for each in mine if not each.name.endswith("_created")]
        return value
    value_of = {each.name.removeprefix(family.name): each.value for each in mine if "le" not in each.labels}
    bounded = [(float(each.labels["le"]), int(each.value)) for each in mine if "le" in each.labels]
    at_most = tuple(count for bound, count in sorted(bounded) if bound < float("inf"))
    count = value_of.get("_count", max(count for _, count in bounded))
    return Told(int(count), value_of["_sum"], at_most)
