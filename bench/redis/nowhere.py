"""Exporters of OpenTelemetry that batch as usual, and send nothing. Imported only where its SDK is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult


class _NoMetrics(MetricExporter):
    def export(self, *_: Any, **__: Any) -> MetricExportResult:
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None: ...


class _NoSpans(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def metrics() -> PeriodicExportingMetricReader:
    return PeriodicExportingMetricReader(_NoMetrics(), export_interval_millis=1000)


def spans() -> BatchSpanProcessor:
    return BatchSpanProcessor(_NoSpans())
