"""Lines at their edges: those who come before there is a connection or a name, and nodes that come back or were not
known of when their session changed."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient

import gripfast
from gripfast.stores.zookeeper import driver, session
from gripfast.stores.zookeeper.deleted import REMEMBERED, DeletedNodes
from gripfast.stores.zookeeper.protocol import in_order
from support.both_colours import staged
from support.proxy import Proxy
from support.server_process import HOST
from support.waiting import auntil, until
from support.zookeeper_servers import ZooKeeperServer, connected, new_root, url_of, zookeeper_server

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # kazoo leaves sockets to the collector


@pytest.fixture(scope="module")
def server() -> ZooKeeperServer:
    return zookeeper_server()


@pytest.fixture
def proxy(server: ZooKeeperServer) -> Iterator[Proxy]:
    with Proxy((HOST, server.port)) as proxy:
        yield proxy


@pytest.fixture
def observer(server: ZooKeeperServer) -> Iterator[KazooClient]:
    with server.client() as observer:
        yield observer


def through(proxy: Proxy, **settings: object) -> KazooClient:
    """Not started yet: Gripfast does that, and stops it."""
    return KazooClient(hosts=f"{HOST}:{proxy.port}", timeout=20, **settings)


class Room:
    """A lock, and who was in it."""

    def __init__(self, client: gripfast.AsyncClient) -> None:
        self._lock = client.lock("job")
        self.entered: list[int] = []

    def sends(self, *numbers: int) -> "list[asyncio.Task[None]]":
        return [asyncio.create_task(self._enter(number)) for number in numbers]

    async def _enter(self, number: int) -> None:
        async with self._lock.acquire(wait=20):
            self.entered.append(number)


# Those who come early -------------------------------------------------------------------------------------------------


@staged
async def test_who_comes_with_the_connection_is_behind_those_who_waited_for_it(proxy: Proxy) -> None:
    """They had been told, and not gone on yet: whoever found it connected passed them."""
    proxy.hold("replies")
    kazoo = through(proxy)
    async with gripfast.connect_async(kazoo, root=new_root()) as client:
        room = Room(client)
        early = room.sends(0, 1, 2)
        await auntil(lambda: proxy.held("replies"))
        proxy.let_go()
        kazoo.exists_async("/").get(timeout=10)  # the loop stands still: nobody goes on before the others have come
        await asyncio.gather(*early, *room.sends(3, 4, 5))
    assert room.entered == [0, 1, 2, 3, 4, 5]


@staged
async def test_who_comes_while_a_name_is_made_is_behind_the_one_who_makes_it(
    proxy: Proxy, observer: KazooClient
) -> None:
    """That one had yet to hear that the name was there."""
    root = new_root()
    async with gripfast.connect_async(url_of([f"{HOST}:{proxy.port}"], root=root)) as client:
        await (await client.lock("other").acquire()).release()
        proxy.delay(replies=0.1)
        room = Room(client)
        first = room.sends(0)
        await auntil(lambda: observer.exists(f"{root}/job"))
        await asyncio.gather(*first, *room.sends(1))
    assert room.entered == [0, 1]


def test_a_server_that_accepts_and_says_nothing_does_not_hold_up_for_as_long_as_a_session_lives(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that is being started: of what it accepts too early it never thinks again."""
    for limit in ("CONNECTING_LEAST", "CONNECTING_MOST"):
        monkeypatch.setattr(driver, limit, 0.3)
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()
        hosts = f"{HOST}:{silent.getsockname()[1]},{server.address}"
        client = driver.new_client(hosts, 60.0, {"randomize_hosts": False})
        client.start(timeout=10)
        client.stop()
        client.close()


# Nodes that come back -------------------------------------------------------------------------------------------------


def test_a_node_that_is_there_again_after_it_was_deleted_keeps_nobody_out(
    server: ZooKeeperServer, proxy: Proxy, observer: KazooClient
) -> None:
    """Its session lives, and nobody in it knew of the node: the lock was free, and nobody could have it."""
    root, kazoo = new_root(), through(proxy)
    with gripfast.connect(kazoo, root=root) as client, gripfast.connect(server.url_with(root=root)) as other:
        with client.lock("job"):
            (node,) = observer.get_children(f"{root}/job")
        mine = kazoo.client_id
        proxy.refuse()
        proxy.cut()
        bring_back(server, mine, f"{root}/job/{node}")
        assert observer.exists(f"{root}/job/{node}").ephemeralOwner == mine[0]
        assert other.lock("job").try_acquire() is None
        proxy.accept()
        with other.lock("job").acquire(wait=10):
            assert kazoo.client_id[0] == mine[0]


def bring_back(server: ZooKeeperServer, client_id: "tuple[int, bytes]", path: str) -> None:
    """As an ensemble does that has forgotten a delete. Its session is entered for that, and not ended."""
    with Proxy((HOST, server.port)) as proxy:
        again = through(proxy, client_id=client_id)
        again.start(timeout=10)
        again.create(path, ephemeral=True)
        proxy.refuse()
        proxy.cut()
        until(lambda: not again.connected)
        again.stop()
        again.close()


QUEUE = in_order(["b__lock__0000000007", "a__lock__0000000003"])


def test_only_those_who_had_left_before_the_connection_was_made_can_have_come_back() -> None:
    deleted = DeletedNodes()
    deleted.add("a", "/locks/job")
    assert deleted.split(QUEUE) == (QUEUE, [])
    assert deleted.reconnected() == {"/locks/job"}
    assert deleted.split(QUEUE) == (QUEUE[1:], QUEUE[:1])


def test_who_has_come_back_is_deleted_once_for_each_connection_and_never_waited_for() -> None:
    """A server that differs from its leader goes on showing it."""
    deleted = DeletedNodes()
    deleted.add("a", "/locks/job")
    for _ in range(2):
        deleted.reconnected()
        assert deleted.split(QUEUE) == (QUEUE[1:], QUEUE[:1])
        assert deleted.split(QUEUE) == (QUEUE[1:], [])


def test_who_stands_in_line_again_has_not_left_it() -> None:
    deleted = DeletedNodes()
    deleted.add("a", "/locks/job")
    deleted.reconnected()
    deleted.remove("a")
    assert deleted.split(QUEUE) == (QUEUE, [])
    assert deleted.reconnected() == set()


def test_those_who_left_are_not_remembered_for_ever() -> None:
    deleted = DeletedNodes()
    deleted.add("a", "/locks/job")
    for number in range(REMEMBERED):
        deleted.add(f"later {number}", "/locks/other")
    assert deleted.reconnected() == {"/locks/other"}


# Clients of others ----------------------------------------------------------------------------------------------------


class Configured(ZooKeeperServer):
    def restart_with(self, *settings: str) -> None:
        self.stop()
        self._settings = settings
        self.restart()


def test_a_claim_under_way_when_the_session_of_a_callers_client_gets_less_time_is_not_behind_itself() -> None:
    """It began anew, and waited for what it had made before: that session went on, and so did the node."""
    root = new_root()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Configured())
        proxy = stack.enter_context(Proxy((HOST, server.port)))
        kazoo = stack.enter_context(connected(f"{HOST}:{proxy.port}", timeout=20))
        observer = stack.enter_context(server.client())
        client = stack.enter_context(gripfast.connect(kazoo, root=root))
        client.lock("job").acquire().release()
        proxy.hold("replies")
        claim = stack.enter_context(ThreadPoolExecutor()).submit(client.lock("job").acquire, wait=20)
        until(lambda: observer.get_children(f"{root}/job"))
        proxy.refuse()
        proxy.cut()
        proxy.let_go()
        server.restart_with("maxSessionTimeout=8000")
        proxy.accept()
        with claim.result(timeout=25) as lease:
            assert lease.ttl <= session.SHARE * 8.0


def test_a_client_whose_login_was_refused_is_started_again(server: ZooKeeperServer) -> None:
    """Its thread had ended, and it was left like that."""
    kazoo = KazooClient(hosts=server.address, timeout=20, auth_data=[("unknown", "anybody")])
    with gripfast.connect(kazoo, root=new_root(), request_timeout=0.5) as client:
        with pytest.raises(gripfast.StoreUnavailable):
            client.lock("job").acquire(wait=0.2)
        kazoo.auth_data.clear()
        with client.lock("job").acquire(wait=10) as lease:
            assert lease.held
