"""A process on ZooKeeper that is killed while it writes. `processes/test_permits.py` kills and stops many."""

from collections.abc import Iterator

import pytest

import gripfast
from support.processes import Worker
from support.zookeeper_servers import ZooKeeperServer

TTL = 1.2
SESSION = TTL / 0.75


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def test_the_lock_of_a_killed_writer_is_free_when_its_session_is_over(server: ZooKeeperServer) -> None:
    url = server.lock_space()
    with gripfast.connect(url) as client:
        rwlock = client.rwlock("index", ttl=TTL)
        with Worker("zookeeper_writer.py", url, TTL) as writer:
            writer.expect("held")
            assert rwlock.read().try_acquire() is None
            writer.kill()
            with rwlock.read().acquire(wait=4 * SESSION) as one, client.rwlock("index").read() as two:
                assert one.held
                assert two.held
