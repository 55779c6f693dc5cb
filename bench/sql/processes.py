"""Eight processes that want one lock of an SQL server all the time, on all cores."""

from __future__ import annotations

from bench.gripfast_pair import Address
from bench.hand_off import ACQUIRED, HAND_OFFS, PROCESSES, processes
from bench.locks import Make, gripfast_locks
from bench.redis.hand_off import url
from bench.scenario import CONTENDED, Contestant, Scenario
from bench.sql.engines import MARIA, MODES, POSTGRES, Engine, address, ours
from bench.sql.peers import DLOCK
from bench.sql.wire import COUNTED, counters

SECONDS = 2.0


def passing(name: str, make: Make, at: Address) -> Contestant:
    return processes(name, make, at, counters=counters, seconds=SECONDS)


def crowd(engine: Engine) -> Scenario:
    dlock = next(make for make in engine.peers if make.name == DLOCK)
    return Scenario(
        name=f"sql {PROCESSES} processes, {engine.name}",
        about=f"{PROCESSES} processes that pass one lock of {engine.name} around, kept for 0 ms, by mode",
        contestants=(
            *(passing(ours(mode), Make(mode, gripfast_locks, engine.needs), address(mode)) for mode in MODES),
            passing(DLOCK, dlock, url),
        ),
        figure=ACQUIRED,
        against=DLOCK,
        charted=(HAND_OFFS, "wait p99 ms", COUNTED),
        rounds=3,
        # The processes have had the lock once when they say that they are ready.
        warm_up=False,
        pinned=False,
        server=engine.counting,
        slower=CONTENDED,
    )


SQL_PROCESSES_POSTGRES = crowd(POSTGRES)
SQL_PROCESSES_MARIA = crowd(MARIA)
