"""Judges a deployment, for `gripfast doctor`: uses a scratch lock as a program would, then lets the engine's own
`doctor.py` look at the server. `stores/doctor.py` says what a finding is.

The scratch lock has a random name behind the client's own prefix, so that it needs the rights that other locks need.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from gripfast.api.client import Client
from gripfast.api.config import Config
from gripfast.core import rules
from gripfast.errors import ConfigurationError, GripfastError, LockTimeout, StoreUnavailable
from gripfast.machine import boottime
from gripfast.stores import StoreSpec, loaded, specs
from gripfast.stores.doctor import (
    LIMITED,
    NOT_EXAMINED,
    UNUSABLE,
    Examination,
    Finding,
    Latency,
    Terms,
    judge_clock,
    judge_latency,
    latency_of,
    merged,
)
from gripfast.stores.faults import LinkDown

L = TypeVar("L")

SCRATCH = "gripfast-doctor:"
"""How the names of scratch locks begin."""
PAIRS_MOST, PAIRS_LEAST, SECONDS_MOST = 100, 10, 2.0
"""How many acquisitions are timed: fewer if that takes too long."""
GLANCE = 0.05
"""Seconds for which a waiter waits for a lock that stays held."""


class Report(NamedTuple):
    where: str
    """Never with a password."""
    store: str
    summary: str
    usable: bool
    ttl: float
    latency: Latency | None
    clock: float | None
    """Seconds by which the server's clock is ahead of this machine's; None if that is not known."""
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> int:
        return sum(finding.kind == "problem" for finding in self.findings)


def examine(config: Config, quick: bool = False) -> Report:
    """`quick`: only whether the store can be reached and used."""
    with Client(config) as client:
        trial = _Trial(client, min(max(config.ttl, rules.TTL_DEFAULT), config.factory.max_ttl))
        found = [*trial.use()]
        usable = not found
        if usable and not quick:
            found += trial.use_rarer_things()
            found += trial.take_time(Terms(config.ttl, config.patience.request_timeout))
    examined = Examination("") if quick else _examined(config, usable)
    findings = sorted(merged([*found, *examined.findings]), key=lambda finding: finding.kind != "problem")
    return Report(
        config.factory.where,
        config.kind,
        examined.summary,
        usable,
        config.ttl,
        trial.latency,
        trial.clock,
        tuple(findings),
    )


def spec_of(config: Config) -> StoreSpec:
    return next(spec for spec in specs(config.kind) if spec.name == config.kind)


def _examined(config: Config, usable: bool) -> Examination:
    """By the engine's own checks. If its server can't be reached, the scratch lock has told so."""
    spec = spec_of(config)
    if not spec.doctor:
        return Examination("")
    doctor: Any = loaded(spec.doctor, spec.extra)
    try:
        examined: Examination = doctor.examine(config.factory, Terms(config.ttl, config.patience.request_timeout))
    except (LinkDown, StoreUnavailable) as error:
        reason = error.fault.error if isinstance(error, LinkDown) else error
        return Examination("", [NOT_EXAMINED(**told(config.factory.where, reason))] if usable else ())
    return examined


class _Trial:
    """The use of a scratch lock."""

    def __init__(self, client: Client, ttl: float) -> None:
        """`ttl`: enough for a slow store. Whether the client's own ttl is enough, the latency tells."""
        self.clock: float | None = None
        self.latency: Latency | None = None
        self._client = client
        self._ttl = ttl
        self._name = SCRATCH + os.urandom(8).hex()

    def use(self) -> Iterator[Finding]:
        """One lock through its whole life, until a step fails."""
        done = "acquired"
        try:
            began = time.time()
            lease = granted(self._client.lock(self._name, self._ttl, label="gripfast doctor").try_acquire())
            self.clock = self._difference(began, time.time())
            done = "waited for"
            self._wait()
            done = "renewed"
            lease.extend()
            done = "released"
            lease.release()
        except GripfastError as error:
            yield UNUSABLE(done=done, **told(self._client.where, error))

    def use_rarer_things(self) -> Iterator[Finding]:
        """What needs rights of its own."""
        can = self._client.capabilities
        uses: dict[str, tuple[bool, Callable[[], object]]] = {
            "client.list() and gripfast ls": (can.lists, lambda: next(self._client.list(SCRATCH), None)),
            "a semaphore": (can.semaphores, self._use_semaphore),
            "a read/write lock": (can.rwlocks, self._use_rwlock),
        }
        for what, (is_offered, use) in uses.items():
            try:
                if is_offered:
                    use()
            except GripfastError as error:
                yield LIMITED(what=what, **told(self._client.where, error))

    def _use_semaphore(self) -> None:
        lease = granted(self._client.semaphore(self._name, 1).try_acquire())
        self._client.inspect(self._name, "semaphore")
        lease.release()

    def _use_rwlock(self) -> None:
        lease = granted(self._client.rwlock(self._name).write().try_acquire())
        self._client.inspect(self._name, "rwlock")
        lease.release()

    def take_time(self, terms: Terms) -> Iterator[Finding]:
        try:
            self.latency = latency_of(self._pairs())
        except GripfastError as error:
            yield UNUSABLE(done="acquired each time", **told(self._client.where, error))
        else:
            yield from judge_latency(self.latency, terms)
        yield from judge_clock(self.clock)

    def _pairs(self) -> list[float]:
        lock, seconds, ends = self._client.lock(self._name), list[float](), boottime() + SECONDS_MOST
        while len(seconds) < PAIRS_LEAST or (len(seconds) < PAIRS_MOST and boottime() < ends):
            began = boottime()
            granted(lock.try_acquire()).release()
            seconds.append(boottime() - began)
        return seconds

    def _wait(self) -> None:
        """A waiter needs more than a holder: a channel, a connection of its own."""
        try:
            self._client.lock(self._name).acquire(wait=GLANCE)
        except LockTimeout:
            return
        raise ConfigurationError("a lock that is held was granted to another client: do not use this store for locks")

    def _difference(self, began: float, ended: float) -> float | None:
        """The server has dated the grant, by its own clock, between these two moments of this machine's."""
        info = self._client.inspect(self._name)
        if info is None or info.since is None:
            return None
        moment = info.since.timestamp()
        return max(moment - ended, 0.0) + min(moment - began, 0.0)


def granted(lease: L | None) -> L:
    if lease is None:
        raise ConfigurationError(
            "a lock that nobody has was refused; run gripfast doctor again, and look at gripfast ls"
        )
    return lease


def told(where: str, error: GripfastError) -> dict[str, str]:
    """What an error says, and what it advises: our errors have both, the advice last, and then perhaps the server's
    own words in brackets."""
    text = str(error).strip()
    if isinstance(error, StoreUnavailable) and len(error.nodes) > 1:
        return {"said": text, "advice": "Repair each server as the message says, until a majority of them answers"}
    text = text.replace(f"{where} ", "the store ", 1).removeprefix(f"{where}: ")
    plain = _without_brackets(text)
    end = len(plain.rstrip("· ")) if plain.endswith("·") else len(plain)
    at = plain.rfind("; ", 0, end) if "; " in plain else plain.find(": ", 0, end)
    if at < 0:
        return {"said": text, "advice": "Look at the server's log"}
    return {"said": text[:at] + text[end:], "advice": text[at + 2 : at + 3].upper() + text[at + 3 : end]}


def _without_brackets(text: str) -> str:
    """Of the same length."""
    while (shorter := re.sub(r"\([^()]*\)", lambda found: "·" * len(found[0]), text)) != text:
        text = shorter
    return text
