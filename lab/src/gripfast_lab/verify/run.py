"""One run, from the first look at the store to the last: what it did, and what is wrong with it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from gripfast.api.client import Client
from gripfast.api.config import Config
from gripfast.core import rules
from gripfast.errors import ConfigurationError, StoreUnavailable
from gripfast.machine import boottime as now
from gripfast_lab.sim.checks import Violation, violations
from gripfast_lab.sim.history import Event
from gripfast_lab.verify.crew import PATIENCE, Crew
from gripfast_lab.verify.figures import Figures, Told, figures, unobserved
from gripfast_lab.verify.journal import Fenced
from gripfast_lab.verify.picture import gravest_first
from gripfast_lab.verify.spaces import KINDS, Space, reaching, space_of
from gripfast_lab.verify.worker import KEEPS, LOCKS, RWLOCK, SEMAPHORE, WAITS, Order

GLANCE = 0.1
CLEARS = 3
TIMES = ("at", "until", "patience")


class Settings(NamedTuple):
    url: str
    seconds: float
    workers: int
    ttl: float
    seed: str
    force: bool = False
    bug: str = ""


class Outcome(NamedTuple):
    ttl: float
    """What the store gave."""
    seconds: float
    history: list[Event]
    found: list[Violation]
    """The gravest first."""
    figures: Figures
    faults: Mapping[str, int]


Progress = Callable[[float, Crew], object]
"""Told again and again: how much of the time is over, from 0 to 1."""


def ran(config: Config, settings: Settings, progress: Progress) -> Outcome:
    """`config`: with the prefix of the run."""
    if not config.factory.capabilities.processes:
        raise ConfigurationError(
            f"{config.factory.where} keeps its locks in one process, so other processes can't use them: verify a store "
            "that processes share, such as sqlite:///locks.db or redis://localhost:6379"
        )
    with _alone(config, settings.force), tempfile.TemporaryDirectory(prefix="gripfast-verify-") as folder:
        ttl = _ttl_given(config, settings.ttl)
        can = config.factory.capabilities
        kinds = [kind for kind, has in ((SEMAPHORE, can.semaphores), (RWLOCK, can.rwlocks)) if has]
        timeout = config.patience.request_timeout
        order = Order(settings.url, config.prefix, ttl, timeout, settings.seed, folder, "", tuple(kinds), settings.bug)
        began, within = now(), recovers_within(ttl, timeout)
        with closing(Crew(order)) as crew:
            crew.start(settings.workers)
            _play(crew, settings, ttl, within, progress)
            left = _left(config, within)
            history = _since(began, [*crew.reader.events(), *_writes(Path(folder)), *left])
            told = _told(Path(folder))
        found = _judged(history, told, within)
        return Outcome(ttl, now() - began, history, found, figures(history, told), dict(crew.faults))


@contextmanager
def _alone(config: Config, force: bool) -> Iterator[None]:
    """Inside, what is below the prefix belongs to this run. Afterwards nothing is there."""
    space = space_of(config)
    with reaching():
        found = space.found()
    if found and not force:
        raise ConfigurationError(
            f"there is something below the prefix {config.prefix!r} already ({found[0]!r} and {len(found) - 1} more): "
            "choose another --prefix, or remove it with --force, if nobody uses it"
        )
    try:
        if found:
            _clear(space)
        yield
    finally:
        _clear(space)


def _clear(space: Space) -> None:
    """Again, if a request of somebody who was killed has arrived since."""
    with reaching():
        for _ in range(CLEARS):
            space.clear()
            if not (found := space.found()):
                return
    where = space.config.factory.where
    raise StoreUnavailable(
        f"{where} has kept {found[0]!r} and {len(found) - 1} more: let this user delete there, and run gripfast verify "
        "again with --force"
    )


def _ttl_given(config: Config, ttl: float) -> float:
    """What the store makes of a ttl: sessions have bounds."""
    with Client(config) as client:
        with client.lock(LOCKS[0], min(ttl, config.factory.max_ttl), label="gripfast verify").acquire(60.0) as lease:
            return lease.ttl


def recovers_within(ttl: float, request_timeout: float) -> float:
    """Seconds from the end of the trouble until each lock has been acquired again, at most. What the dead have left is
    forgotten: a position in the queue, and then a lease, if one of them got it last. A request that hangs is given up.
    And a worker that waits for another lock, and holds it, comes round."""
    return rules.forgotten_at(0.0, ttl) + ttl + request_timeout + (max(WAITS) + KEEPS) * ttl


def _play(crew: Crew, settings: Settings, ttl: float, within: float, progress: Progress) -> None:
    _until(lambda: crew.reader.grants() > 0 or crew.has_lost(), PATIENCE + ttl)
    began = now()

    def rest(until: float) -> None:
        while (left := until - now()) > 0.0:
            progress(min(1.0, (now() - began) / settings.seconds), crew)
            time.sleep(min(left, GLANCE))

    crew.trouble(began + settings.seconds, rest)
    healed = now()
    _until(lambda: crew.reader.all_held_since(healed), within + GLANCE)
    crew.end()


def _until(condition: Callable[[], object], within: float) -> bool:
    ends = now() + within
    while not (is_so := condition()) and now() < ends:
        time.sleep(GLANCE / 5)
    return bool(is_so)


# -- what is known of it -----------------------------------------------------------------------------------------------


def _left(config: Config, within: float) -> list[Event]:
    """What is still held when everyone is gone, and those who were killed have had their time."""
    with Client(config) as client:
        can = client.capabilities
        has = {"lock": can.lists, SEMAPHORE: can.semaphores, RWLOCK: can.rwlocks}

        def held() -> list[str]:
            return [info.name for kind in KINDS if has[kind] for info in client.list(kind=kind)]

        if _until(lambda: not held(), within):
            return []
        return [Event(now(), config.factory.where, name, "left", note="held by nobody who lives") for name in held()]


def _writes(folder: Path) -> Iterator[Event]:
    for name in LOCKS:
        with closing(Fenced.of(folder, name)) as register:
            yield from register.writes()


def _told(folder: Path) -> list[Told]:
    file = folder / "observed"
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [Told(*json.loads(line)) for line in lines]


def _since(began: float, events: list[Event]) -> list[Event]:
    """With times that begin at 0."""
    return [event._replace(**{time: at - began for time in TIMES if (at := getattr(event, time))}) for event in events]


def _judged(history: list[Event], told: list[Told], within: float) -> list[Violation]:
    found = violations(history, may_be_unreachable=True, recover_within=within)
    found = [each for each in found if each.rule != "unreachable"]  # a figure: a server may be slow at any time
    return gravest_first([*found, *unobserved(history, told)])
