"""The observers of a command: `--otel`, and the names in $GRIPFAST_OBSERVERS.

A name is that of an entry point whose value makes an observer when it is called without arguments:

[project.entry-points."gripfast.observers"]
statsd = "my_package:StatsdObserver"

Our own are found without looking for entry points, which would cost every call some milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from gripfast.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "gripfast.observers"
OWN = {
    "logging": "gripfast:LoggingObserver",
    "otel": "gripfast.observers.otel:OpenTelemetryObserver",
    "prometheus": "gripfast.observers.prometheus:PrometheusObserver",
}


def observers(names: Iterable[str]) -> list[object]:
    return [_made(name) for name in names]


def _made(name: str) -> object:
    make = _own(name) if name in OWN else _of_another_package(name)
    if name in _PREPARED:
        _PREPARED[name]()
    return make()


def _own(name: str) -> Callable[[], object]:
    module, _, attribute = OWN[name].partition(":")
    try:
        make: Callable[[], object] = getattr(import_module(module), attribute)
    except ImportError as error:
        raise ConfigurationError(f"can't use the observer {name}: {error}") from error
    return make


def _of_another_package(name: str) -> Callable[[], object]:
    from importlib.metadata import entry_points

    points = entry_points(group=GROUP)
    for point in points.select(name=name):
        return lambda: _loaded_and_made(name, point)
    known = ", ".join(sorted({*OWN, *points.names}))
    raise ConfigurationError(f"there is no observer {name!r}: $GRIPFAST_OBSERVERS may name {known}")


def _loaded_and_made(name: str, point: EntryPoint) -> object:
    try:
        return point.load()()
    except Exception as error:
        why = f"{point.value} raised {type(error).__name__}: {error}. Reinstall or remove its package"
        raise ConfigurationError(f"can't use the observer {name}: {why}") from error


# -- what our own need in a command, which ends soon and which nobody scrapes ------------------------------------------


def _prepare_logging() -> None:
    """Its lines are printed, as are warnings."""
    import logging

    logging.getLogger("gripfast.events").setLevel(logging.INFO)


def _prepare_otel() -> None:
    """Whoever runs the command with opentelemetry-instrument has a provider. Otherwise the SDK is set up in the same
    way, from the same variables. It sends what is left when the process ends."""
    from opentelemetry import metrics

    if type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.sdk"):
        return
    try:
        sdk = import_module("opentelemetry.sdk._configuration")
    except ImportError as error:
        raise ConfigurationError(
            "nothing would be sent, because OpenTelemetry's SDK is not installed: run pip install opentelemetry-sdk "
            "opentelemetry-exporter-otlp, and set OTEL_METRICS_EXPORTER=otlp and OTEL_TRACES_EXPORTER=otlp"
        ) from error
    try:
        sdk._OTelSDKConfigurator().configure()  # the one that every distribution derives from
    except Exception as error:
        why = f"{type(error).__name__}: {error}. Check the variables OTEL_…"
        raise ConfigurationError(f"OpenTelemetry's SDK can't be set up, {why}") from error


def _prepare_prometheus() -> None:
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        raise ConfigurationError(
            "nobody can scrape the metrics of a command: set $PROMETHEUS_MULTIPROC_DIR to the folder of the process "
            "that serves them, or use otel, which sends them"
        )
    import atexit

    from prometheus_client.multiprocess import mark_process_dead

    atexit.register(mark_process_dead, os.getpid())


_PREPARED = {"logging": _prepare_logging, "otel": _prepare_otel, "prometheus": _prepare_prometheus}
