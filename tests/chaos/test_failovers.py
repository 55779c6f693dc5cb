"""Real failovers under load: what each level lets happen, and what it does not.

GRIPFAST_CHAOS=long makes 200 of each kind, by SHARDS set-ups: with `-n`, they run side by side, since most of the time
is waiting.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.failing_over import DOWN_AFTER, FAULTS, LEVELS, FailoverStage, Level
from chaos.stage import LONG
from support.processes import Worker
from support.sentinel_servers import Watched

SHARDS = 8 if LONG else 1
FAILOVERS = 200 // SHARDS if LONG else 1

pytestmark = pytest.mark.timeout(120 + 90 * FAILOVERS)


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    """In short runs the Sentinels are in a hurry; otherwise they are as they usually are."""
    with Watched(down_after=DOWN_AFTER, at_leisure=LONG) as watched:
        yield watched


@pytest.fixture
def level() -> Level:
    return LEVELS["none"]


@pytest.fixture
def stage(nursery: Worker, watched: Watched, tmp_path: Path, seed: str, level: Level) -> Iterator[FailoverStage]:
    watched.settle()
    watched.command(watched.primary, "FLUSHALL")
    url = watched.opened(**level.options) if level.grace else watched.url_with(**level.options)
    given = (nursery, watched.servers, url, tmp_path, seed)
    stage = FailoverStage(*given, watched=watched, level=level)
    yield stage
    stage.close()


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("fault", FAULTS)
def test_without_a_level_two_hold_the_lock(stage: FailoverStage, fault: str, shard: int) -> None:
    """So the other tests would notice it."""
    crew = stage.play()
    for _ in range(FAILOVERS):
        stage.round(FAULTS[fault])
    crew.end()
    print(f"{fault}, level none: {len(stage.overlaps())} overlaps in {stage.failovers} failovers")
    assert stage.overlaps()


HOLDS = [("kill", "grace"), *((fault, "acknowledged") for fault in FAULTS)]
"""Grace alone is for a primary that is gone; with acknowledgements it may as well go on."""


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("fault, level", [(fault, LEVELS[level]) for fault, level in HOLDS], ids=map(", ".join, HOLDS))
def test_nobody_gets_in_beside_another(stage: FailoverStage, fault: str, shard: int) -> None:
    crew = stage.play()
    for _ in range(FAILOVERS):
        stage.round(FAULTS[fault])
    print(f"{fault}, level {stage.level.name}: {len(stage.overlaps())} overlaps in {stage.failovers} failovers")
    stage.judge_all(crew)
