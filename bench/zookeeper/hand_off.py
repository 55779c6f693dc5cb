"""Eight processes that want one lock of ZooKeeper all the time, on all cores."""

from __future__ import annotations

from bench.hand_off import ACQUIRED, HAND_OFFS, PROCESSES, processes
from bench.promise import at_least
from bench.redis.hand_off import url
from bench.scenario import CONTENDED, Scenario
from bench.zookeeper.peers import GRIPFAST, KAZOO
from bench.zookeeper.server import REQUESTS, counters, zookeeper_server

ZOOKEEPER_HAND_OFF = Scenario(
    name=f"zookeeper {PROCESSES} processes",
    about=f"{PROCESSES} processes that pass one lock of ZooKeeper around, kept for 0 ms, beside kazoo's own lock",
    contestants=tuple(processes(make.name, make, url, counters=counters) for make in (GRIPFAST, KAZOO)),
    figure=HAND_OFFS,
    against=KAZOO.name,
    promises=(at_least(GRIPFAST.name, 0.8, HAND_OFFS, against=KAZOO.name),),
    charted=(ACQUIRED, "wait p99 ms", REQUESTS),
    rounds=5,
    pinned=False,
    server=zookeeper_server,
    slower=CONTENDED,
)
