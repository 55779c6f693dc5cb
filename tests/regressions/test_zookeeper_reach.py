"""Ensembles that can't be reached, and what can't be asked of one: said at once, and as what it is."""

import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError, SessionExpiredError

import gripfast
from gripfast import ConfigurationError, OutcomeUnknown, StoreUnavailable
from gripfast.stores.zookeeper import protocol
from support.both_colours import CLAIMS, LOOKS, both_colours, each, outcome, outcomes, staged
from support.proxy import Proxy
from support.server_process import HOST
from support.waiting import auntil
from support.zookeeper_servers import ZooKeeperServer, new_root, url_of, zookeeper_server


@pytest.fixture(scope="module")
def server() -> ZooKeeperServer:
    return zookeeper_server()


@pytest.fixture
def proxy(server: ZooKeeperServer) -> Iterator[Proxy]:
    with Proxy((HOST, server.port)) as proxy:
        yield proxy


def through(proxy: Proxy, **options: object) -> str:
    return url_of([f"{HOST}:{proxy.port}"], root=new_root(), **options)


def kept(actor: Any) -> int:
    """Attempts that are remembered because something of them may be at the ensemble."""
    return len(actor.client._runtime.env.ledger)


# Servers that are down ------------------------------------------------------------------------------------------------


@staged
async def test_servers_that_refuse_are_unavailable_and_nobody_wonders_what_they_did(proxy: Proxy) -> None:
    """It was "outcome unknown" of a request that had never left, and each attempt was remembered for its ttl."""
    proxy.refuse()
    async with both_colours(through(proxy), request_timeout=1.5, connect_patience=1.0) as actors:
        for told in await each(actors, lambda actor: outcomes(actor, {**CLAIMS, **LOOKS})):
            for call, one in told.items():
                assert type(one.error) is StoreUnavailable, (call, one)
                assert one.error.nodes == {f"{HOST}:{proxy.port}": "Connection refused"}
        assert [kept(actor) for actor in actors] == [0, 0]


@staged
async def test_who_does_not_wait_does_not_wait_for_servers_that_refuse(proxy: Proxy) -> None:
    """It waited for all its request_timeout: a refused connection is an answer."""
    proxy.refuse()
    async with both_colours(through(proxy), request_timeout=60) as actors:
        for actor in actors:
            for _ in range(3):  # also while kazoo pauses before it tries again
                told = await outcome(actor.try_acquire("job"))
                assert isinstance(told.error, StoreUnavailable)
            assert isinstance((await outcome(actor.inspect("job"))).error, StoreUnavailable)


@staged
async def test_who_waits_gets_the_lock_when_the_servers_are_back(proxy: Proxy) -> None:
    proxy.refuse()
    async with both_colours(through(proxy)) as actors:
        assert all([(await outcome(actor.try_acquire("job"))).error for actor in actors])
        waiting = [actor.acquire(actor.colour, wait=20) for actor in actors]
        proxy.accept()
        assert all([(await grant).held for grant in waiting])


@staged
async def test_who_does_not_wait_gets_the_lock_once_the_servers_are_back(proxy: Proxy) -> None:
    proxy.refuse()
    async with both_colours(through(proxy)) as actors:
        assert all([(await outcome(actor.try_acquire(actor.colour))).error for actor in actors])
        proxy.accept()
        assert all([(await actor.try_acquire(actor.colour)).held for actor in actors])


# Requests that end at their deadline ----------------------------------------------------------------------------------


@staged
async def test_a_resolver_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    usual = socket.getaddrinfo

    def resolve(host: str, *args: Any, **kwargs: Any) -> Any:
        if host == "zk.invalid":
            answers.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "later")
        return usual(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    try:
        async with both_colours("zookeeper://zk.invalid", request_timeout=0.3) as actors:
            for told in await each(actors, lambda actor: outcome(actor.try_acquire("job"))):
                assert type(told.error) is StoreUnavailable
                assert told.seconds < 3.0
            answers.set()
    finally:
        answers.set()


def test_periodic_signals_do_not_lengthen_a_request(proxy: Proxy) -> None:
    with gripfast.connect(through(proxy), request_timeout=1.0) as client:
        client.lock("job").acquire().release()
        proxy.hold("replies")
        before = signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            with pytest.raises(OutcomeUnknown):
                client.lock("job").acquire(wait=0.1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
            proxy.let_go()


# Paths ----------------------------------------------------------------------------------------------------------------

WRONG = [
    "",
    "/",
    "q",
    "/q/",
    "/q//w",
    "/q/../w",
    "/q/.",
    "/..",
    "/a\x00b",
    "/a\x1fb",
    "/a\x7f",
    "/😀",
    "/" + 1200 * "x",
    7,
]


@pytest.mark.parametrize("root", WRONG)
def test_a_root_that_zookeeper_would_refuse_is_refused_by_connect(root: object) -> None:
    """A raw error came from the first request, and another one ended the watchdog."""
    with pytest.raises(ConfigurationError, match="root"):
        gripfast.connect("zookeeper://localhost", root=root)


@pytest.mark.parametrize("path", ["/a/../b", "/a//b", "/./a"])
def test_a_chroot_that_zookeeper_would_refuse_is_refused_by_connect(path: str) -> None:
    with pytest.raises(ConfigurationError, match="path of the URL"):
        gripfast.connect(f"zookeeper://localhost{path}")


@staged
async def test_a_chroot_of_several_steps_need_not_be_there(server: ZooKeeperServer) -> None:
    """All patience was spent on it, and the outcome was called unknown."""
    with server.client() as observer:
        chroots = [f"{new_root()}/b/c" for _ in range(2)]
        async with both_colours(f"{server.url}{chroots[0]}", request_timeout=2) as actors:
            for actor in actors:
                assert await actor.inspect("job") is None
                lease = await actor.acquire("job")
                assert observer.get_children(f"{chroots[0]}/gripfast/job")
                await actor.release(lease)
        theirs = KazooClient(hosts=f"{server.address}{chroots[1]}")
        with gripfast.connect(theirs) as client, client.lock("job"):
            assert observer.get_children(f"{chroots[1]}/gripfast/job")


def test_what_a_server_has_answered_is_not_unknown() -> None:
    assert type(protocol.fault("here", NoNodeError())) is StoreUnavailable


@pytest.mark.parametrize(("error", "what"), [(ConnectionLoss(), "connection broke"), (SessionExpiredError(), "ended")])
def test_an_answer_that_never_came_is_said_in_words_and_what_to_do(error: Exception, what: str) -> None:
    fault = protocol.fault("here", error)
    assert type(fault) is OutcomeUnknown
    assert what in str(fault)
    assert str(fault).endswith("try again")


# Labels ---------------------------------------------------------------------------------------------------------------


@staged
async def test_a_label_that_no_server_would_take_is_refused_before_it_is_sent(proxy: Proxy) -> None:
    """The server closed the connection, with every attempt."""
    async with both_colours(through(proxy), request_timeout=2) as actors:
        for actor in actors:
            lease = await actor.acquire("job")
            sessions = proxy.open_connections
            told = await outcome(
                actor.does(lambda actor=actor: actor.client.lock("other", label="x" * 1_200_000).try_acquire())
            )
            assert isinstance(told.error, ConfigurationError)
            assert lease.held
            assert proxy.open_connections == sessions
            assert kept(actor) == 1
            await actor.release(lease)
        await auntil(lambda: all(kept(actor) == 0 for actor in actors))
