"""Slots of a Cluster move back and forth under load: nobody gets in beside somebody else, no lease is lost, tokens
grow, and a slot that has arrived grants locks again soon.

In short: the slots of the locks in use, and some others. GRIPFAST_CHAOS=long: every slot of the Cluster; `-s` shows the
figures.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.resharding import ALL, Resharding, pauses_after, slots_of
from chaos.stage import LONG, Stage
from support.cluster_servers import Cluster
from support.redis_server import RedisServer

GRANTS_AGAIN = 2.0
NAMES = tuple(f"job {number}" for number in range(8))
LOAD: dict[str, Any] = {
    "names": NAMES,
    "ttls": (6.0, 10.0),
    "waits": (0.0, 0.02, 0.2, 2.0, 2.0),
    "renews": 1.0,
    "request_timeout": 5.0,
    "keepers": 2,
}
IN_USE = slots_of([*NAMES, "kept"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster("--cluster-allow-replica-migration", "no", replicas=0, node_timeout_ms=15000) as cluster:
        yield cluster


@pytest.fixture
def servers(cluster: Cluster) -> list[RedisServer]:
    return cluster.servers


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.url()


@pytest.fixture
def resharding(cluster: Cluster) -> Iterator[Resharding]:
    resharding = Resharding(cluster)
    yield resharding
    resharding.close()


@pytest.mark.timeout(3600 if LONG else 180)
def test_slots_move_back_and_forth_under_load(stage: Stage, resharding: Resharding) -> None:
    """There and back is three rounds; between them everyone goes on."""
    slots = ALL if LONG else sorted({*IN_USE, *stage.chance.sample(ALL, 100)})
    crew = stage.crew(**LOAD)
    stage.go_on(grants=30, within=30)
    for _ in range(3):
        resharding.round(slots)
        stage.go_on(grants=30, within=30)
    stage.healed()
    stage.judge(crew, ttl=10.0, recover_within=12.0)
    kinds = Counter(event.kind for event in stage.events())
    pauses = pauses_after([move for move in resharding.moves if move.slot in IN_USE], stage.events())
    print(f"{len(resharding.moves)} slots moved under {kinds['granted']} grants; a slot granted again after")
    print(f"{max(pauses):.3f} s at most, {sorted(pauses)[len(pauses) // 2]:.3f} s in the middle; {dict(kinds)}")
    assert len(pauses) == 3 * len(IN_USE)
    assert not kinds["lost"], [event for event in stage.events() if event.kind == "lost"]
    assert max(pauses) < GRANTS_AGAIN


def test_the_slots_in_use_never_rest(stage: Stage, resharding: Resharding) -> None:
    """They move all the time: requests are sent on again and again, and waiters have to follow."""
    crew = stage.crew(**LOAD)
    stage.go_on(grants=30, within=30)
    for _ in range(60 if LONG else 12):
        resharding.round(IN_USE)
    stage.healed()
    stage.go_on(grants=30, within=30)
    stage.judge(crew, ttl=10.0, recover_within=12.0)
    kinds = Counter(event.kind for event in stage.events())
    print(f"{len(resharding.moves)} moves of slots in use under {kinds['granted']} grants; {dict(kinds)}")
    assert not kinds["lost"], [event for event in stage.events() if event.kind == "lost"]
