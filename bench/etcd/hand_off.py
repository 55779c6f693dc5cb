"""Eight processes that want one lock of etcd all the time, on all cores."""

from __future__ import annotations

from bench.etcd.peers import GRIPFAST, TOOZ
from bench.etcd.server import REQUESTS, counters, etcd_server
from bench.hand_off import ACQUIRED, HAND_OFFS, PROCESSES, processes
from bench.promise import at_least
from bench.redis.hand_off import url
from bench.scenario import CONTENDED, Scenario

ETCD_HAND_OFF = Scenario(
    name=f"etcd {PROCESSES} processes",
    about=f"{PROCESSES} processes that pass one lock of etcd around, kept for 0 ms, beside tooz",
    contestants=tuple(processes(make.name, make, url, counters=counters) for make in (GRIPFAST, TOOZ)),
    figure=HAND_OFFS,
    against=TOOZ.name,
    promises=(at_least(GRIPFAST.name, 1, HAND_OFFS, against=TOOZ.name),),
    charted=(ACQUIRED, "wait p99 ms", REQUESTS),
    rounds=5,
    pinned=False,
    server=etcd_server,
    slower=CONTENDED,
)
