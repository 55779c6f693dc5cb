"""The figures of the page for Prometheus, under /metrics: how much is held and waited for in the whole store, whoever
holds it. (`observers/prometheus.py` has the figures of one program's own locks.) It needs `gripfast[prometheus]`.

Kinds are labels and names are not: there may be any number of names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gripfast.api.rows import AnyKind, Row, Scan
from gripfast.api.watching import View
from gripfast.extras import how_to_install

KINDS: tuple[AnyKind, ...] = ("lock", "semaphore", "rwlock")
MISSING = f"Metrics need the package prometheus_client: {how_to_install('prometheus')}."
FIGURES: dict[str, tuple[str, Callable[[list[Row], float], float | None]]] = {
    "names": ("Names that are taken", lambda rows, now: len(rows)),
    "holders": ("Holders of these names", lambda rows, now: sum(len(row.holders) for row in rows)),
    "waiters": ("Waiters that the store sees", lambda rows, now: _waiters(rows)),
    "longest_hold_seconds": (
        "For how long the oldest of the holders has had its lock",
        lambda rows, now: max((now - row.since.timestamp() for row in rows if row.since), default=0.0),
    ),
}
"""By the end of the metric's name: what it means, and its value for the rows of one kind; None if nobody knows."""


def _waiters(rows: list[Row]) -> int | None:
    seen = [row.waiters for row in rows if row.waiters is not None]
    return sum(seen) if len(seen) == len(rows) else None


def exposition(view: View, viewers: int) -> bytes | None:
    """What Prometheus reads; None if its library is not installed."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.core import GaugeMetricFamily
    except ImportError:
        return None
    scan = None if view.error else view.scan
    plain = {
        "store_up": ("Whether the last scan succeeded", float(scan is not None)),
        "viewers": ("Open pages", viewers),
    }
    if scan:
        plain["store_scan_seconds"] = "How long the last scan took", scan.took

    class Collector:
        def collect(self) -> Iterator[GaugeMetricFamily]:
            for name, (about, value) in plain.items():
                yield GaugeMetricFamily(f"gripfast_{name}", about, value)
            for name, (about, of) in FIGURES.items() if scan else ():
                family = GaugeMetricFamily(f"gripfast_store_{name}", about, labels=["kind"])
                for kind, rows in _by_kind(scan).items():
                    if (figure := of(rows, time.time())) is not None:
                        family.add_metric([kind], figure)
                yield family

    registry = CollectorRegistry()
    registry.register(Collector())
    return generate_latest(registry)


def _by_kind(scan: Scan | None) -> dict[AnyKind, list[Row]]:
    return {kind: [row for row in scan.rows if row.kind == kind] for kind in KINDS} if scan else {}
