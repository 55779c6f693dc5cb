"""What a handle on a lease promises, beyond what every store is held to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
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
    lease = holdfast.connect("memory://alone").lock("job", ttl=0.2).acquire()
    token = lease.token
    with holdfast.connect("memory://alone") as other:
        first = other.inspect("job")
        assert first is not None
        until(lambda: (info := other.inspect("job")) is not None and info.expires_in > first.expires_in)
        assert lease.held
        assert lease.token == token
        lease.release()
        assert other.inspect("job") is None


def test_a_released_lease_says_so(client: holdfast.Client) -> None:
    lease = client.lock("job").acquire()
    lease.release()
    with pytest.raises(holdfast.LeaseLost, match="released"):
        lease.ensure_held()
    assert "released" in repr(lease)
    assert not lease.lost.is_set()
