"""Which metrics there are, and what each event adds to them: the same for every library of metrics.

Labels are the group of a lock and the kind of its store, never a name: there may be any number of names. If there are
too many groups (somebody formats ids into them), all further ones are counted together.

A metric that goes up and down (held, waiting) counts what this process has. A forked child has none of it, so it begins
with 0. No other thread is in the middle of an update when a process forks, because the fork waits for it: otherwise the
child would inherit a mutex of the library that nobody unlocks.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any, Literal

from gripfast.core.events import Event, Observer
from gripfast.errors import Reason
from gripfast.interrupts.living import Living

GROUPS_MOST = 200
"""So many groups are told apart."""

OTHER = "(other groups)"

SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
)
PARTS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, eq=False, slots=True)
class Metric:
    """Named as OpenTelemetry's conventions have it; Prometheus's names are made of these (`prometheus_name`)."""

    name: str
    kind: Literal["histogram", "counter", "up_down"]
    unit: str
    about: str
    more: tuple[str, ...] = ()
    """Attributes besides `COMMON`."""
    buckets: tuple[float, ...] = ()

    @property
    def attributes(self) -> tuple[str, ...]:
        return COMMON + self.more


SYSTEM, GROUP, OUTCOME, REQUEST, ERROR = (
    "db.system.name",
    "gripfast.group",
    "gripfast.outcome",
    "gripfast.request",
    "error.type",
)
COMMON = (SYSTEM, GROUP)

WAIT = Metric("gripfast.wait.duration", "histogram", "s", "From the claim to its end", (OUTCOME,), SECONDS)
HOLD = Metric("gripfast.hold.duration", "histogram", "s", "From the grant to the release or loss", (), SECONDS)
MARGIN = Metric(
    "gripfast.renewal.margin", "histogram", "s", "Time left when a renewal was confirmed", (), SECONDS
)  # fmt: skip
MARGIN_RATIO = Metric(
    "gripfast.renewal.margin_ratio", "histogram", "1", "The same as a part of the ttl; about 0.67 is usual", (), PARTS
)
ACQUISITIONS = Metric("gripfast.acquisitions", "counter", "{claim}", "Claims that have ended", (OUTCOME,))
LOSSES = Metric("gripfast.losses", "counter", "{lease}", "Leases that were lost", (ERROR,))
UNREACHABLE = Metric("gripfast.unreachable", "counter", "{request}", "Requests that failed", (REQUEST, ERROR))
HELD = Metric("gripfast.held", "up_down", "{lease}", "Leases that are held now")
WAITING = Metric("gripfast.waiting", "up_down", "{claim}", "Claims that wait for an answer now")

LOST_FOR: tuple[Reason, ...] = ("expired", "taken", "broken", "session", "max_hold")

METRICS = (WAIT, HOLD, MARGIN, MARGIN_RATIO, ACQUISITIONS, LOSSES, UNREACHABLE, HELD, WAITING)


def prometheus_name(metric: Metric) -> str:
    """As exporters of OpenTelemetry translate it. Prometheus itself adds `_total` to a counter."""
    return metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")


def prometheus_label(attribute: str) -> str:
    return attribute.replace(".", "_")


def system_of(event: Event) -> str:
    """`db.system.name`: the software, however its servers are arranged."""
    return "redis" if event.engine in ("cluster", "redlock", "sentinel") else event.engine


def outcome_of(event: Event) -> str:
    """How a claim ended: `granted`; `refused` at once, or after a `timeout`; `cancelled`, `closed`, `error`,
    `unreachable`."""
    if event.kind != "refused":
        return event.kind
    if event.reason == "taken":
        return "timeout" if event.queued else "refused"
    return event.reason or "error"


class Sink:
    """The metrics of one registry or provider: all observers that write there share it."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        """Whoever adds or observes has it."""
        self._common: dict[tuple[str, str | None], tuple[str, str]] = {}
        self._begun: set[tuple[str, str]] = set()
        _SINKS.add(self)

    def common(self, event: Event) -> tuple[str, str]:
        """The values of `COMMON`. Once there are too many groups, a new one has no name of its own, now and later."""
        key = event.engine, event.group
        found = self._common.get(key)
        if found is None:
            if len(self._common) < GROUPS_MOST:
                found = self._common[key] = system_of(event), event.group or ""
            else:
                found = system_of(event), OTHER
            self._begin(found)
        return found

    def _begin(self, common: tuple[str, str]) -> None:
        """Losses are told from 0 on: if a series began with the first of them, no rate would show it."""
        if common not in self._begun:
            self._begun.add(common)
            for reason in LOST_FOR:
                self.add(LOSSES, 0, (*common, reason))

    def observe(self, metric: Metric, value: float, labels: tuple[str, ...], event: Event) -> None:
        """Into a histogram."""
        raise NotImplementedError

    def add(self, metric: Metric, amount: int, labels: tuple[str, ...]) -> None:
        raise NotImplementedError

    def forked(self) -> None:
        """In the child: nothing is held, and nobody waits."""
        raise NotImplementedError


class MetricsObserver(Observer):
    """From events to figures."""

    _sink: Sink

    def claimed(self, event: Event) -> None:
        with self._sink.mutex:
            self._sink.add(WAITING, 1, self._sink.common(event))

    def granted(self, event: Event) -> None:
        with self._sink.mutex:
            self._sink.add(HELD, 1, self._answered(event))

    def refused(self, event: Event) -> None:
        with self._sink.mutex:
            self._answered(event)

    def renewed(self, event: Event) -> None:
        with self._sink.mutex:
            common = self._sink.common(event)
            self._sink.observe(MARGIN, event.margin, common, event)
            self._sink.observe(MARGIN_RATIO, event.margin / event.ttl, common, event)

    def lost(self, event: Event) -> None:
        with self._sink.mutex:
            self._sink.add(LOSSES, 1, (*self._ended(event), event.reason or ""))

    def released(self, event: Event) -> None:
        with self._sink.mutex:
            self._ended(event)

    def unreachable(self, event: Event) -> None:
        with self._sink.mutex:
            common = self._answered(event) if event.request == "claim" else self._sink.common(event)
            error = type(event.error).__name__ if event.error is not None else "StoreUnavailable"
            self._sink.add(UNREACHABLE, 1, (*common, event.request or "", error))

    def _answered(self, event: Event) -> tuple[str, str]:
        """The claim has ended."""
        sink, common = self._sink, self._sink.common(event)
        labels = (*common, outcome_of(event))
        sink.observe(WAIT, event.waited, labels, event)
        sink.add(ACQUISITIONS, 1, labels)
        sink.add(WAITING, -1, common)
        return common

    def _ended(self, event: Event) -> tuple[str, str]:
        """The lease has ended."""
        common = self._sink.common(event)
        self._sink.observe(HOLD, event.held, common, event)
        self._sink.add(HELD, -1, common)
        return common


# -- forks -------------------------------------------------------------------------------------------------------------

_SINKS: Living[Sink] = Living()
_paused: list[Sink] = []
"""For the thread that forks: no two do so at the same time, because this list is guarded by `_forking`."""
_forking = threading.Lock()


def _before_fork() -> None:
    _forking.acquire()
    for sink in list(_SINKS):
        sink.mutex.acquire()
        _paused.append(sink)


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().mutex.release()
    _forking.release()


def _after_fork_in_child() -> None:
    for sink in _paused:
        sink.forked()
    _after_fork_in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def attributes_of(metric: Metric, labels: tuple[str, ...]) -> dict[str, Any]:
    """Without those that are empty: a lock without a group."""
    return {name: value for name, value in zip(metric.attributes, labels, strict=True) if value}
