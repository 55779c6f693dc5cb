"""A server's clock that is set back makes leases longer, as the pages say."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import gripfast
from support.colours import renewal_of
from support.jumping_clock import JumpingClock
from support.redis_server import RedisServer
from support.waiting import until

HOUR = 3600.0
DIE = """
import gripfast, os, signal, sys
lease = gripfast.connect(sys.argv[1]).lock("job", ttl=20).acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def clock(tmp_path: Path) -> JumpingClock:
    return JumpingClock(tmp_path / "clock")


@pytest.fixture
def server(clock: JumpingClock) -> Iterator[RedisServer]:
    with RedisServer(environment=clock.environment) as server:
        yield server


def expires_in(client: gripfast.Client) -> float:
    info = client.inspect("job")
    assert info is not None
    return info.expires_in


def die_with(url: str) -> None:
    """A process that is killed while it has the lock."""
    killed = subprocess.run([sys.executable, "-c", DIE, url])
    assert killed.returncode == -signal.SIGKILL


def test_the_lease_of_a_dead_holder_lasts_longer_until_it_is_broken(server: RedisServer, clock: JumpingClock) -> None:
    with gripfast.connect(server.url) as client:
        die_with(server.url)
        clock.set(ahead=-HOUR)
        assert expires_in(client) > HOUR / 2
        assert client.lock("job").try_acquire() is None
        assert client.force_release("job")
        client.lock("job").acquire(wait=5).release()


def test_a_renewal_does_not_shorten_it_and_a_release_ends_it(server: RedisServer, clock: JumpingClock) -> None:
    with gripfast.connect(server.url) as client:
        lease = client.lock("job", ttl=3).acquire()
        clock.set(ahead=-HOUR)
        until(renewal_of(lease))
        assert expires_in(client) > HOUR / 2
        lease.release()
        assert client.inspect("job") is None


NUMBERED_BY_THE_ENGINE = ("zookeeper:", "etcd:")


def test_a_token_is_near_the_wall_clock_unless_the_engine_has_numbers_of_its_own(url: str) -> None:
    """So it still grows after the engine has lost its memory."""
    with gripfast.connect(url) as client, client.lock("job") as lease:
        is_near = lease.token / 1e6 == pytest.approx(time.time(), abs=60)
        assert is_near is not url.startswith(NUMBERED_BY_THE_ENGINE)
