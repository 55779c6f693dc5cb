"""What a handle on a lease promises, beyond what every store is held to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gripfast
from gripfast.machine import boottime
from support.waiting import until


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


def test_an_inner_handle_that_was_dropped_does_not_keep_the_lease(client: gripfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    outer = lock.acquire()
    lock.acquire()
    outer.release()
    assert client.inspect("job") is None


def test_a_lease_keeps_its_client_alive_and_working() -> None:
    lease = gripfast.connect("memory://alone").lock("job", ttl=0.5).acquire()
    started = boottime()
    until(lambda: boottime() > started + 1.2)  # more than two ttl
    assert lease.held
    lease.release()
    with gripfast.connect("memory://alone") as other:
        assert other.inspect("job") is None


def test_a_released_lease_says_so(client: gripfast.Client) -> None:
    lease = client.lock("job").acquire()
    lease.release()
    with pytest.raises(gripfast.LeaseLost, match="released"):
        lease.ensure_held()
    assert "released" in repr(lease)
    assert not lease.lost.is_set()
