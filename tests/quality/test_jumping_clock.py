"""The clock that tests set: whoever lives by it sees it jump, and nobody else does."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.jumping_clock import JumpingClock
from support.redis_server import RedisServer

HOUR = 3600.0
SHOW = "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))"


@pytest.fixture
def clock(tmp_path: Path) -> JumpingClock:
    return JumpingClock(tmp_path / "clock")


def time_of(server: RedisServer) -> float:
    with server.client() as client:
        seconds, micros = client.time()
    return float(seconds + micros / 1_000_000)


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_the_clock_of_a_server_jumps_while_it_runs(clock: JumpingClock, ahead: float) -> None:
    with RedisServer(environment=clock.environment) as server:
        assert time_of(server) == pytest.approx(time.time(), abs=60.0)
        with server.client() as client:
            client.set("key", "value", px=60_000)
            clock.set(ahead=ahead)
            assert time_of(server) == pytest.approx(time.time() + ahead, abs=60.0)
            assert (client.get("key") is None) == (ahead > 0.0)
        server.restart()
        assert time_of(server) == pytest.approx(time.time() + ahead, abs=60.0)


def test_a_process_sees_another_time_of_day_and_no_other_age_of_the_machine(clock: JumpingClock) -> None:
    clock.set(ahead=-HOUR)
    shown = subprocess.run([sys.executable, "-c", SHOW], env=clock.environment, capture_output=True, text=True)
    wall, boot = map(float, shown.stdout.split())
    assert wall == pytest.approx(time.time() - HOUR, abs=60.0)
    assert boot == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=60.0)
