"""Options that were accepted and did something else, or nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import gripfast
from gripfast.errors import ConfigurationError, LockTimeout, StoreUnavailable
from regressions.deadline_servers import HOST
from support.ports import closed_port
from support.redis_server import shared_server

TARGETS: dict[str, Any] = {
    "memory": "memory://options",
    "sqlite": "sqlite:////tmp/gripfast-options.db",
    "redis": "redis://h",
    "redlock": "redlock://a,b,c",
    "postgres": "postgresql://h/d",
    "mysql": "mysql://h/d",
    "zookeeper": "zookeeper://h",
    "etcd": "etcd://h",
}
CONNECTS = pytest.mark.parametrize("connect", [gripfast.connect, gripfast.connect_async])
Connect = Callable[..., object]


@CONNECTS
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_timeout_is_no_option_and_the_error_says_which_are(target: str, connect: Connect) -> None:
    with pytest.raises(ConfigurationError, match=r"timeout; did you mean request_timeout .* connect_patience"):
        connect(target, timeout=1)


@CONNECTS
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("seconds", [0, 1e-9, 1e10, 1e300, float("nan"), float("inf"), 10**400, True, "5"])
def test_a_request_timeout_that_means_nothing_is_refused(target: str, connect: Connect, seconds: object) -> None:
    with pytest.raises(ConfigurationError, match="request_timeout must be"):
        connect(target, request_timeout=seconds)


@pytest.mark.parametrize("seconds", [-1, 1e10, 1e300, float("inf")])
def test_a_connect_patience_that_means_nothing_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="connect_patience must be 0 to"):
        gripfast.connect("memory://", connect_patience=seconds)


@pytest.mark.parametrize("seconds", [0.001, 3600])
def test_the_ends_of_what_is_allowed_work(seconds: float) -> None:
    with gripfast.connect("memory://", request_timeout=seconds, connect_patience=0) as client, client.lock("job"):
        pass


@pytest.mark.parametrize("name", ["socket_timeout", "socket_connect_timeout"])
def test_the_time_outs_of_the_driver_are_checked_like_our_own(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be"):
        gripfast.connect(f"redis://h?{name}=1e10")


# What is told --------------------------------------------------------------------------------------------------------


def redlock_error(aio: bool, nodes: list[str]) -> StoreUnavailable:
    async def attempt() -> None:
        async with gripfast.connect_async(nodes, request_timeout=0.5) as client:
            await client.lock("job").try_acquire()

    with pytest.raises(StoreUnavailable) as caught:
        if aio:
            asyncio.run(attempt())
        else:
            gripfast.connect(nodes, request_timeout=0.5).lock("job").try_acquire()
    return caught.value


@pytest.mark.parametrize("aio", [False, True], ids=["blocking", "asyncio"])
def test_no_node_of_redlock_is_said_to_have_answered_that_did_not(aio: bool) -> None:
    error = redlock_error(aio, [f"redis://{HOST}:{closed_port()}" for _ in range(3)])
    assert str(error).startswith("0 of 3 nodes gave a usable answer, and 2 are needed: ")
    assert "answered" not in error.nodes.values()


def test_a_lock_of_somebody_else_that_never_expires_is_told_as_such() -> None:
    server = shared_server()
    with server.client() as client, gripfast.connect(server.url) as ours:
        client.set("lock:options-for-ever", "somebody")
        try:
            with pytest.raises(LockTimeout, match="does not expire by itself") as caught:
                ours.lock("options-for-ever").acquire(wait=0)
        finally:
            client.delete("lock:options-for-ever")
    assert "inf" not in str(caught.value)
