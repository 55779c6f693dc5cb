"""Eight processes that want one lock of Redis all the time, on all cores."""

from __future__ import annotations

from bench.hand_off import ACQUIRED, HAND_OFFS, PROCESSES, processes
from bench.locks import Make
from bench.promise import Promise, at_least_best, at_most
from bench.redis.peers import GRIPFAST, PEERS, REDIS_PY
from bench.redis.server import counters, redis_server
from bench.scenario import CONTENDED, Contestant, Place, Round, Scenario

SECTION = 0.001
AT_ONCE = "gripfast 0 ms"
"""In the scenario with a section: what handing over costs on this machine, in the same rounds."""


def url(place: Place) -> str:
    return place.url


def contestant(make: Make, section: float = 0.0, name: str = "") -> Contestant:
    return processes(name or make.name, make, url, section=section, counters=counters)


def ideal_ms(samples: Round) -> float:
    """What a turn must take: the section as it was measured, and one hand-over."""
    return samples[GRIPFAST.name]["section ms"] + 1e3 / samples[AT_ONCE][ACQUIRED]


REDIS_HAND_OFF = Scenario(
    name=f"redis {PROCESSES} processes",
    about=f"{PROCESSES} processes that pass one lock of Redis around, kept for 0 ms, beside other libraries",
    contestants=tuple(contestant(make) for make in (GRIPFAST, *PEERS)),
    figure=ACQUIRED,
    against=REDIS_PY.name,
    promises=(
        at_least_best(GRIPFAST.name, 1.5, HAND_OFFS, of=[make.name for make in PEERS]),
        at_most(GRIPFAST.name, 0.1, "wait p99 ms", against=REDIS_PY.name),
        at_most(GRIPFAST.name, 3, "workers apart %"),
    ),
    charted=(HAND_OFFS, "wait p99 ms"),
    rounds=5,
    pinned=False,
    server=redis_server,
    slower=CONTENDED,
)

REDIS_SECTION = Scenario(
    name=f"redis {PROCESSES} processes, 1 ms",
    about="the same with the lock kept for 1 ms, beside other libraries and beside what the 0 ms rate makes possible",
    contestants=(
        contestant(GRIPFAST, name=AT_ONCE),
        *(contestant(make, SECTION) for make in (GRIPFAST, *PEERS)),
    ),
    figure=ACQUIRED,
    against=REDIS_PY.name,
    promises=(
        Promise(
            "gripfast: acquired/s at least 0.85 of what section and hand-over allow",
            lambda samples: samples[GRIPFAST.name][ACQUIRED] * ideal_ms(samples) / 1e3,
            least=0.85,
        ),
        Promise(
            f"gripfast: wait max ms at most 4 × a queue of {PROCESSES}",
            lambda samples: samples[GRIPFAST.name]["wait max ms"] / (PROCESSES * ideal_ms(samples)),
            most=4,
            always=True,
        ),
    ),
    charted=("wait p99 ms", "wait max ms"),
    rounds=5,
    pinned=False,
    server=redis_server,
    slower=CONTENDED,
)
