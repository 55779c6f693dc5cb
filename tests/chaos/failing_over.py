"""Failovers of a primary that Sentinels watch, under load, with writes that its replicas never get.

Without a delayed link to the replicas nothing is lost, and a test would show nothing. So in each round the replicas lag
(`Watched.lagging`), and beside the load there are three who make sure that there is something to lose:

- a *holder* claims a lock while the replicas lag, and keeps it;
- a *latecomer* is connected to the old primary, and claims another lock when a new one has been promoted;
- a *rival*, whose connections are new, claims both after the failover.

What each of them believes is in the history, with all that the load believes. At level 0 the rival gets what the other
two have: that is the figure of overlaps. At the other levels the history is judged like every other.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import gripfast
from chaos.cutting import COLOURS, Colour
from chaos.stage import LONG, Crew, Stage
from gripfast_lab.sim.checks import Violation, violations
from gripfast_lab.sim.history import ONLY_TOKENS, Event
from gripfast_lab.verify.journal import now
from gripfast_lab.verify.notes import Notes
from support.redis_server import RedisServer
from support.sentinel_servers import Watched
from support.waiting import until

TTL = 4.0
"""Longer than a failover takes: a lease must outlive the primary that granted it."""
DOWN_AFTER = 0.7
GOES_ON = 15.0 if LONG else 4.0
"""Seconds for which a primary may go on that was replaced: Sentinels in a hurry, as here in short runs, demote it in
about two."""
IMPATIENT = 0.5
"""Seconds of a request while replicas lag: after about two, Sentinels in a hurry have noticed whom these follow."""
SERVED_AGAIN = 4.0
"""Seconds, beside ttl and grace, until locks are granted: clients pause between two tries, and machines are busy."""
LAG = 0.3
IN_GRACE = "grants no lock for another"
LOAD: dict[str, Any] = {
    "ttls": (TTL,), "waits": (0.0, 0.02, 0.2, 2.0), "hold": (0.0, 0.3), "threads": 1, "tasks": 2, "keepers": 1,
    "names": ("a", "b", "c"),
}  # fmt: skip


class Level(NamedTuple):
    name: str
    options: dict[str, object]
    grace: float = 0.0
    """Seconds for which nothing is granted after a failover."""


_GRACE: dict[str, object] = {"failover_grace": GOES_ON, "max_ttl": TTL}
LEVELS = {
    "none": Level("none", {"failover_grace": "off"}),
    "grace": Level("grace", _GRACE, TTL + GOES_ON),
    "acknowledged": Level("acknowledged", {**_GRACE, "replicas": 2}, TTL + GOES_ON),
}


class Cast:
    """Those three, in one colour. Everyone's connections are opened when it is told to get ready."""

    def __init__(self, colour: str, stage: "FailoverStage") -> None:
        self._colour = colour
        self._stage = stage
        self._name = ""
        self._leases: list[tuple[Colour, Any]] = []
        self._actors: dict[str, Colour] = {}

    def get_ready(self, number: int) -> None:
        """Before the fault."""
        self._name = f"round {number}, {self._colour}"
        for role in ("holder", "latecomer"):
            self._enter(role)
            with suppress(gripfast.StoreUnavailable):
                self._claim(role, "to get ready", wait=1.0, keeps=False)

    def claim_early(self) -> None:
        """Where replicas have to acknowledge it, that is in vain."""
        self._claim("holder", "early")

    def claim_late(self) -> None:
        self._claim("latecomer", "late")

    def claim_again(self) -> None:
        self._enter("rival")
        for what in ("early", "late"):
            self._claim("rival", what, keeps=False)

    def leave(self) -> None:
        for actor, lease in self._leases:
            with suppress(gripfast.GripfastError):
                actor.release(lease)
        for actor in self._actors.values():
            actor.close()
        self._leases.clear()
        self._actors.clear()

    def _enter(self, role: str) -> None:
        notes = Notes(f"{role}, {self._colour}/", self._stage.note)
        patience = IMPATIENT if role == "holder" else self._stage.request_timeout
        url = f"{self._stage.url}&request_timeout={patience:g}"
        self._actors[role] = COLOURS[self._colour](url, notes, patience, TTL)

    def _claim(self, role: str, what: str, wait: float = 0.5, keeps: bool = True) -> None:
        actor = self._actors[role]
        lease = None
        with suppress(gripfast.LockTimeout, gripfast.StoreUnavailable):
            lease = actor.acquire(f"{self._name}: {what}", wait, TTL)
        if lease is not None and keeps:
            self._leases.append((actor, lease))
        elif lease is not None:
            with suppress(gripfast.GripfastError):
                actor.release(lease)


class FailoverStage(Stage):
    request_timeout = 2.0

    def __init__(self, *given: Any, watched: Watched, level: Level) -> None:
        super().__init__(*given)
        self.watched = watched
        self.level = level
        self.note = self._journal.note
        self.failovers = 0

    def play(self) -> Crew:
        return self.crew(request_timeout=self.request_timeout, **LOAD)

    def round(self, fault: "Fault") -> None:
        """One failover, from the moment at which all is well to the next one."""
        self.watched.settle()
        self.go_on(grants=5, within=self.recovery)
        cast = [Cast(colour, self) for colour in COLOURS]
        self._each(cast, lambda one: one.get_ready(self.failovers))
        self.broke()
        since = now()
        with ExitStack() as after:
            after.callback(self._each, cast, Cast.leave)
            with self.watched.lagging():
                self._each(cast, Cast.claim_early)
                self.wait_out(LAG)
                old = self.watched.primary
                ends = fault(self.watched, old)
                after.enter_context(ends)
                self.watched.until_replaced(old)
            self.forgot(since, ONLY_TOKENS)
            self._end_silence(old)
            self._each(cast, Cast.claim_late)
            self._each(cast, Cast.claim_again)
        self.failovers += 1
        self.go_on(grants=5, within=self.recovery)
        self.watched.settle()
        self.healed()

    @property
    def recovery(self) -> float:
        """No lock stays taken for longer."""
        return TTL + self.level.grace + SERVED_AGAIN

    def events(self) -> list[Event]:
        """Who can't wait for the end of a grace is told so at once, and that is right: as if it had given up."""
        return [each._replace(kind="cancelled") if IN_GRACE in each.note else each for each in super().events()]

    def overlaps(self) -> list[Violation]:
        return [found for found in violations(self.events(), may_be_unreachable=True) if found.rule == "overlap"]

    def judge_all(self, crew: Crew) -> None:
        """All locks of all rounds can be acquired, and the history is as it should be."""
        auditor = COLOURS["blocking"](self.url, Notes("auditor", self.note), self.request_timeout, TTL)
        for name in sorted({event.name for event in self.events() if event.name.startswith("round")}):
            auditor.release(auditor.acquire(name, self.recovery, TTL))
        auditor.close()
        self.judge(crew, ttl=self.recovery, may_be_unreachable=True, recover_within=self.recovery)

    @staticmethod
    def _end_silence(old: RedisServer) -> None:
        """One that was stopped goes on, while those who are connected to it still are."""
        if old.running:
            old.resume()

    @staticmethod
    def _each(cast: list[Cast], act: Callable[[Cast], None]) -> None:
        """At the same time."""
        with ThreadPoolExecutor(len(cast)) as pool:
            list(pool.map(act, cast))

    def _names(self) -> list[str]:
        """Of the load, which has registers."""
        return [name for name in super()._names() if not name.startswith("round")]


# Faults ---------------------------------------------------------------------------------------------------------------

Fault = Callable[[Watched, RedisServer], Any]
"""Begins at once; what it returns ends it."""


@contextmanager
def _restarted(server: RedisServer) -> Iterator[None]:
    yield
    server.restart()


def kill(watched: Watched, primary: RedisServer) -> Any:
    primary.kill()
    return _restarted(primary)


def stop(watched: Watched, primary: RedisServer) -> Any:
    """Past the failover: then it goes on, and takes itself for the primary."""
    primary.pause()
    return ExitStack()


def command(watched: Watched, primary: RedisServer) -> Any:
    """The old one goes on until the Sentinels have noticed that it does. The next round may fail back."""
    until(watched.is_accepted, within=30.0)
    return ExitStack()


FAULTS: dict[str, Fault] = {"kill": kill, "stop": stop, "command": command}
