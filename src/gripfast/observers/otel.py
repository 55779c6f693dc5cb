"""Metrics, spans and log records for OpenTelemetry: `connect(url, observers=[OpenTelemetryObserver()])`.

It needs OpenTelemetry's API alone. Each provider that your application has set up (for meters, tracers, loggers) gets
its part: metrics, spans, log records. Without a provider nothing is recorded.

- A span covers each wait, from the claim to its end. It belongs to the trace of the caller, and has a link to the trace
  of the holder that it waited for. What is granted at once has no span.
- A lost lease is a log record, in the trace of its holder.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from gripfast.core.events import Event
from gripfast.extras import how_to_install
from gripfast.observers.figures import (
    ERROR,
    GROUP,
    METRICS,
    OUTCOME,
    SYSTEM,
    Metric,
    MetricsObserver,
    Sink,
    attributes_of,
    outcome_of,
)

try:
    from opentelemetry import metrics, trace
    from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber, get_logger
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
    from opentelemetry.trace import Link, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError(f"metrics and traces need the package opentelemetry-api: {how_to_install('otel')}") from error

__all__ = ["OpenTelemetryObserver"]

SCOPE = "gripfast"
LOST = "gripfast.lease.lost"

_propagator = TraceContextTextMapPropagator()


class OpenTelemetryObserver(MetricsObserver):
    """Writes to the providers that it is given, or to the global ones."""

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        logger_provider: LoggerProvider | None = None,
    ) -> None:
        self._sink = _sink_of(meter_provider)
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._logger = get_logger(SCOPE, logger_provider=logger_provider)

    def traceparent(self) -> str | None:
        span = trace.get_current_span().get_span_context()
        if not (span.is_valid and span.trace_flags.sampled):
            return None
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"

    def granted(self, event: Event) -> None:
        super().granted(event)
        self._span(event)

    def refused(self, event: Event) -> None:
        super().refused(event)
        self._span(event)

    def unreachable(self, event: Event) -> None:
        super().unreachable(event)
        if event.request == "claim":
            self._span(event)

    def lost(self, event: Event) -> None:
        super().lost(event)
        record = LogRecord(
            timestamp=_ns(event.wall),
            context=_context(event.trace),
            severity_number=SeverityNumber.WARN,
            severity_text="WARN",
            body=f"lost {event.name!r} after {event.held:.3f} s ({event.reason})",
            attributes={**self._about(event), ERROR: event.reason or "", "gripfast.hold.duration": event.held},
            event_name=LOST,
        )
        self._logger.emit(record)

    def _span(self, event: Event) -> None:
        """Of the wait that ends with this event. There is none if the claim did not wait."""
        if not event.queued:
            return
        span = self._tracer.start_span(
            f"wait for {event.group or 'lock'}",
            _context(event.trace),
            attributes={**self._about(event), OUTCOME: outcome_of(event)},
            links=_links(event.holder_trace),
            start_time=_ns(event.wall - event.waited),
        )
        if event.kind != "granted":
            span.set_attribute(ERROR, type(event.error).__name__ if event.error is not None else outcome_of(event))
            span.set_status(Status(StatusCode.ERROR, str(event.error or "")))
        span.end(_ns(event.wall))

    def _about(self, event: Event) -> dict[str, Any]:
        system, group = self._sink.common(event)
        return {SYSTEM: system, **({GROUP: group} if group else {})}


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


@functools.lru_cache(maxsize=256)  # the events of a claim have the same one, and to read it takes half a record's time
def _context(traceparent: str | None) -> Context:
    """Empty if it is none: what the observers' own thread does is in no trace. Nobody can change it."""
    return Context() if traceparent is None else _propagator.extract({"traceparent": traceparent}, Context())


def _links(traceparent: str | None) -> list[Link]:
    holder = trace.get_current_span(_context(traceparent)).get_span_context()
    return [Link(holder)] if holder.is_valid else []


# -- metrics -----------------------------------------------------------------------------------------------------------


class _Instruments(Sink):
    """Histograms are recorded. All else is counted here, and observed when a reader collects: recording costs more."""

    def __init__(self, provider: MeterProvider | None) -> None:
        super().__init__()
        meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._histograms: dict[Metric, Histogram] = {}
        self._counts: dict[Metric, dict[tuple[str, ...], int]] = {}
        self._attributes: dict[tuple[Metric, tuple[str, ...]], dict[str, Any]] = {}
        for metric in METRICS:
            if metric.kind == "histogram":
                self._histograms[metric] = meter.create_histogram(
                    metric.name, metric.unit, metric.about, explicit_bucket_boundaries_advisory=metric.buckets
                )
                continue
            self._counts[metric] = {}
            what = metric.name, [self._observer_of(metric)], metric.unit, metric.about
            if metric.kind == "counter":
                meter.create_observable_counter(*what)
            else:
                meter.create_observable_up_down_counter(*what)

    def observe(self, metric: Metric, value: float, labels: tuple[str, ...], event: Event) -> None:
        context = None if event.trace is None else _context(event.trace)  # for exemplars
        self._histograms[metric].record(value, self._attributes_of(metric, labels), context)

    def add(self, metric: Metric, amount: int, labels: tuple[str, ...]) -> None:
        counts = self._counts[metric]
        counts[labels] = counts.get(labels, 0) + amount

    def forked(self) -> None:
        for metric, counts in self._counts.items():
            if metric.kind == "up_down":
                counts.update(dict.fromkeys(counts, 0))

    def _attributes_of(self, metric: Metric, labels: tuple[str, ...]) -> dict[str, Any]:
        found = self._attributes.get((metric, labels))
        if found is None:
            found = self._attributes[metric, labels] = attributes_of(metric, labels)
        return found

    def _observer_of(self, metric: Metric) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observed(_: CallbackOptions) -> Iterator[Observation]:
            for labels, count in self._counts[metric].copy().items():
                yield Observation(count, attributes_of(metric, labels))

        return observed


_SINKS: weakref.WeakKeyDictionary[object, Sink] = weakref.WeakKeyDictionary()


class _Global:
    """Stands for the global provider, which may be set later."""


_GLOBAL = _Global()


def _sink_of(provider: MeterProvider | None) -> Sink:
    """One for each provider: a second instrument of the same name would count for nothing."""
    key: object = _GLOBAL if provider is None else provider
    if key not in _SINKS:
        _SINKS[key] = _Instruments(provider)
    return _SINKS[key]
