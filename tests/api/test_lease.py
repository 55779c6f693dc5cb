"""What a handle on a lease promises, beyond what every store is held to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.machine import boottime
from support.waiting import until


@pytest.fixture
def client() -> Iterator[holdfast.Client]:
    with holdfast.connect("memory://") as client:
        yield client


def test_an_inner_handle_that_was_dropped_does_not_keep_the_lease(client: holdfast.Client) -> None:
    lock = client.lock("job", reentrant=True)
    outer = lock.acquire()
    lock.acquire()
    outer.release()
    assert client.inspect("job") is None


def test_a_lease_keeps_its_client_alive_and_working() -> None:
    lease = holdfast.connect("memory://alone").lock("job", ttl=0.5).acquire()
    started = boottime()
    until(lambda: boottime() > started + 1.2)  # more than two ttl
    assert lease.held
    lease.release()
    with holdfast.connect("memory://alone") as other:
        assert other.inspect("job") is None


def test_a_released_lease_says_so(client: holdfast.Client) -> None:
    lease = client.lock("job").acquire()
    lease.release()
    with pytest.raises(holdfast.LeaseLost, match="released"):
        lease.ensure_held()
    assert "released" in repr(lease)
    assert not lease.lost.is_set()
