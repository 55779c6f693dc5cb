"""Semaphores and read/write locks on ZooKeeper: what is sent, who is woken, which nodes there are, lost answers."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from kazoo.client import KazooClient

import gripfast
from gripfast.core.ports import RW_LIMIT, Share
from gripfast.stores.zookeeper import permit_protocol
from gripfast.stores.zookeeper.permit_protocol import ANY, Permit, View
from stores.test_zookeeper_requests import QUIET, counted, silence
from support.both_colours import another, both_colours, staged
from support.proxy import Proxy
from support.server_process import HOST
from support.waiting import auntil, until
from support.zookeeper_servers import ZooKeeperServer, new_root, url_of, zookeeper_server

SEMAPHORE: Literal["semaphore"] = "semaphore"
RWLOCK: Literal["rwlock"] = "rwlock"


# The nodes, pure ------------------------------------------------------------------------------------------------------


def waiter(owner: str, n: int, number: int) -> str:
    return f"{permit_protocol.new_contender(owner, Share(SEMAPHORE, n, 9))}{number:010}"


def queue_of(*nodes: str) -> list[Permit]:
    return permit_protocol.in_order(reversed(nodes))


@pytest.mark.parametrize("slots", [(0,), (0, 1, 2), (1, 3, 4, 9), (99_998, 99_999)])
def test_the_name_of_a_node_tells_its_permits(slots: tuple[int, ...]) -> None:
    (waiting,) = queue_of(waiter("a", len(slots), 7))
    assert waiting == Permit(7, waiting.node, "a", len(slots))
    (holding,) = queue_of(permit_protocol.as_holder(waiting, slots))
    assert holding == Permit(7, holding.node, "a", len(slots), slots)


def test_a_writer_becomes_a_reader_at_the_same_position() -> None:
    path = f"/locks/index/{permit_protocol.new_contender('a', Share(RWLOCK, RW_LIMIT, RW_LIMIT))}-2147483648"
    reader = permit_protocol.as_reader(path)
    assert reader == "/locks/index/a__read__-2147483648"
    assert permit_protocol.as_reader(reader) == reader


def test_what_an_owner_was_before_does_not_count() -> None:
    held = "a__held0__0000000001"
    assert [each.node for each in queue_of("a__wait1__0000000001", held)] == [held]
    assert [each.node for each in queue_of("b__write__0000000001", "b__read__0000000001")] == ["b__read__0000000001"]
    both = permit_protocol.newest_first(["a__wait1__0000000001", held])
    assert [each.node for each in both] == [held, "a__wait1__0000000001"]


def test_numbers_that_have_become_negative_are_behind() -> None:
    assert [each.owner for each in queue_of("a__read__2147483647", "b__read__-2147483648")] == ["a", "b"]


def test_whom_a_waiter_for_permits_waits_for() -> None:
    queue = queue_of(
        "a__held0-1__0000000001", waiter("b", 2, 2), waiter("c", 1, 3), waiter("d", 9, 4), waiter("e", 1, 5)
    )
    _, b, c, d, e = queue
    assert permit_protocol.waits_for(queue, b, 3) == ANY
    assert permit_protocol.waits_for(queue, c, 3) == b.node, "one is free, but nobody passes"
    assert permit_protocol.waits_for(queue, b, 4) is None
    assert permit_protocol.waits_for(queue, c, 5) is None
    assert permit_protocol.waits_for(queue, e, 3) == c.node, "who wants more than the limit counts for nobody"
    assert permit_protocol.waits_for(queue, e, 6) is None
    assert permit_protocol.waits_for(queue, d, 20) is None
    assert permit_protocol.waits_for(queue, permit_protocol.newcomer(Share(SEMAPHORE, 1, 3)), 3) == e.node


def test_a_holder_behind_a_waiter_counts() -> None:
    """The limit had shrunk when it came, and has grown since."""
    queue = queue_of(waiter("a", 5, 1), "b__held0__0000000002")
    assert permit_protocol.waits_for(queue, queue[0], 5) == ANY
    assert permit_protocol.waits_for(queue, queue[0], 6) is None


def test_whom_readers_and_writers_wait_for() -> None:
    queue = queue_of(*(f"{who}__{what}__000000000{at}" for at, (who, what) in enumerate(
        [("a", "read"), ("b", "read"), ("c", "write"), ("d", "read"), ("e", "write"), ("f", "read"), ("g", "read")]
    )))  # fmt: skip
    found = [permit_protocol.waits_for(queue, each, RW_LIMIT) for each in queue]
    nodes = {each.owner: each.node for each in queue}
    assert found == [None, None, nodes["b"], nodes["c"], nodes["d"], nodes["e"], nodes["e"]]
    assert [each.owner for each in permit_protocol.holders(queue, RWLOCK)] == ["a", "b"]
    assert [each.owner for each in permit_protocol.holders(queue[2:], RWLOCK)] == ["c"]


def test_slots_are_the_lowest_free_ones() -> None:
    queue = queue_of("a__held0-1.3__0000000001")
    assert permit_protocol.free_slots(View(6, 0, b"", queue), 2) == (2, 4)


def test_the_data_of_a_name_keeps_its_limit_and_the_last_notes() -> None:
    data = permit_protocol.write_name(3)
    for number in range(permit_protocol.NOTES_MOST + 1):
        data = permit_protocol.with_notes(data, [f"owner {number}"], "deploy", 1000.0)
    data = permit_protocol.with_limit(data, 5)
    assert permit_protocol.read_limit(data) == 5
    assert permit_protocol.read_note(data, "owner 0") is None
    assert permit_protocol.read_note(data, "owner 1") == "deploy"
    assert permit_protocol.without_old_notes(data, 1000.0) == data
    late = permit_protocol.without_old_notes(data, 1001.0 + permit_protocol.NOTES_KEPT)
    assert late == permit_protocol.write_name(5)
    assert permit_protocol.read_limit(b"another's") == 0


# What is sent, and who is woken ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quiet() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(QUIET) as server:
        yield server


def take(actor: Any, n: int = 1, limit: int = 3) -> Any:
    return actor.does(lambda: actor.client.semaphore("api", limit).acquire(n, wait=20), then=actor._keep)


@staged
async def test_free_permits_are_five_requests_and_a_reader_four(quiet: ZooKeeperServer) -> None:
    """A node, two looks, the transaction, the release; a reader needs no transaction."""
    async with both_colours(quiet.lock_space(), ttl=60) as actors:
        for actor in actors:
            await actor.release(await take(actor))
            with counted(quiet) as told:
                for _ in range(10):
                    await actor.release(await take(actor))
            assert told == [50]
            rwlock = actor.client.rwlock("index")
            await actor.release(await actor.acquire(rwlock.read()))
            with counted(quiet) as told:
                for _ in range(10):
                    await actor.release(await actor.acquire(rwlock.read()))
            assert told == [40]


async def queued(actor: Any, name: str, kind: str, waiters: int) -> None:
    async def is_so() -> bool:
        info = await actor.inspect(name, kind=kind)
        return info is not None and info.waiters == waiters

    await auntil(is_so)


@staged
async def test_released_permits_wake_only_the_first_waiter(quiet: ZooKeeperServer) -> None:
    async with both_colours(quiet.lock_space(), ttl=60) as actors:
        for actor in actors:
            line = [another(actor) for _ in range(6)]
            lease = await take(actor, 3)
            waiting = []
            for place, one in enumerate(line, 1):
                waiting.append(take(one, 3))
                await queued(actor, "api", SEMAPHORE, place)
            await silence(quiet)
            with counted(quiet) as told:
                await actor.release(lease)
                first = await waiting[0]
                await silence(quiet)
            # The release; two looks, the transaction; and the next one has become the first: it looks, and watches.
            assert told[0] - 21 <= 16
            await line[0].release(first)
            for one, grant in zip(line[1:], waiting[1:], strict=True):
                await one.release(await grant)
            for one in line:
                await one.leaves()


@staged
async def test_readers_that_wait_together_enter_together_and_wake_no_writer_behind(quiet: ZooKeeperServer) -> None:
    async with both_colours(quiet.lock_space(), ttl=60) as actors:
        for actor in actors:
            crew = [another(actor) for _ in range(5)]
            rwlock = actor.client.rwlock("index")
            lease = await actor.acquire(rwlock.write())
            waiting = []
            for place, one in enumerate(crew, 1):
                half = rwlock.write() if place == len(crew) else rwlock.read()
                waiting.append(one.acquire(half))
                await queued(actor, "index", RWLOCK, place)
            await silence(quiet)
            await actor.release(lease)
            readers = await asyncio.gather(*waiting[:-1])
            assert all(each.held for each in readers)
            assert not waiting[-1].done()
            for one, reader in zip(crew, readers, strict=False):
                await one.release(reader)
            writer = await waiting[-1]
            assert writer.token > max(each.token for each in readers)
            await crew[-1].release(writer)
            for one in crew:
                await one.leaves()


# Lost answers ---------------------------------------------------------------------------------------------------------


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


def behind(proxy: Proxy, root: str) -> str:
    return url_of([f"{HOST}:{proxy.port}"], root=root)


def children(observer: KazooClient, path: str) -> list[str]:
    observer.sync(path)
    return sorted(observer.get_children(path))


@pytest.mark.parametrize("nth", range(1, 6))
def test_permits_whose_answer_was_lost_are_found_again(
    proxy: Proxy, observer: KazooClient, server: ZooKeeperServer, nth: int
) -> None:
    """The connection is cut instead of the nth answer: of the create, of a look, of the transaction."""
    root = new_root()
    with gripfast.connect(behind(proxy, root)) as client:
        semaphore = client.semaphore("api", 3)
        semaphore.acquire().release()
        proxy.drop_reply(nth)
        with semaphore.acquire(2, wait=20) as lease:
            assert lease.slots == (0, 1)
            (node,) = children(observer, f"{root}/%semaphore/api")
            assert node.startswith(f"{lease.owner}__held0-1__")
            assert observer.exists(f"{root}/%semaphore/api/{node}").czxid == lease.token
            proxy.spare()
        until(lambda: not children(observer, f"{root}/%semaphore/api"))


@pytest.mark.parametrize("end", ["release", "extend"])
def test_a_downgrade_whose_answer_was_lost_is_known_to_the_next_request(
    proxy: Proxy, observer: KazooClient, end: str
) -> None:
    root = new_root()
    with gripfast.connect(behind(proxy, root), request_timeout=1) as client:
        lease = client.rwlock("index").write().acquire()
        proxy.drop_reply(1)
        lease.downgrade()
        assert lease.held
        if end == "extend":
            lease.extend()
            (node,) = children(observer, f"{root}/%rwlock/index")
            assert node.startswith(f"{lease.owner}__read__")
        lease.release()
        until(lambda: not children(observer, f"{root}/%rwlock/index"))


def test_a_downgrade_that_is_not_answered_at_all_is_repeated(proxy: Proxy, observer: KazooClient) -> None:
    root = new_root()
    with gripfast.connect(behind(proxy, root), request_timeout=1) as client:
        lease = client.rwlock("index", ttl=6).write().acquire()
        token = lease.token
        proxy.hold("requests")
        lease.downgrade()
        proxy.let_go()

        def is_reader() -> bool:
            (node,) = children(observer, f"{root}/%rwlock/index")
            return node.startswith(f"{lease.owner}__read__")

        until(is_reader)
        until(lambda: client._store().nodes[lease.owner].session.connections >= 2)  # type: ignore[attr-defined]
        info = client.inspect("index", "rwlock")
        assert info is not None
        assert [(each.owner, each.token, each.is_writer) for each in info.holders] == [(lease.owner, token, False)]
        lease.extend()
        lease.release()


# Nodes that change, and come back -------------------------------------------------------------------------------------


def bring_back(client: gripfast.Client, path: str) -> None:
    """As an ensemble does that has forgotten a delete, in the session that had the node."""
    ((session,),) = [client._store()._sessions._by_ttl.values()]  # type: ignore[attr-defined]
    session.client.create(path, ephemeral=True)


@pytest.mark.parametrize("kind", [SEMAPHORE, RWLOCK])
def test_what_a_holder_was_before_keeps_nobody_out_though_it_is_there_again(
    server: ZooKeeperServer, proxy: Proxy, kind: str
) -> None:
    root = new_root()
    with gripfast.connect(behind(proxy, root)) as client, gripfast.connect(server.url_with(root=root)) as other:
        lease: Any
        if kind == SEMAPHORE:
            lease = client.semaphore("x", 2).acquire()
            rest: Callable[[], Any] = other.semaphore("x", 2).try_acquire
            everything: Callable[[], Any] = lambda: other.semaphore("x", 2).acquire(2, wait=5)  # noqa: E731
        else:
            lease = client.rwlock("x").write().acquire()
            lease.downgrade()
            rest = other.rwlock("x").read().try_acquire
            everything = lambda: other.rwlock("x").write().acquire(wait=5)  # noqa: E731
        former = client._store().nodes[lease.owner].former  # type: ignore[attr-defined]
        assert former
        proxy.cut()
        until(lambda: client._store().nodes[lease.owner].session.connections == 2)  # type: ignore[attr-defined]
        bring_back(client, former)
        beside = rest()
        assert beside is not None, "the node of before does not count"
        beside.release()
        lease.release()
        everything().release()


def test_each_kind_has_nodes_of_its_own(server: ZooKeeperServer, observer: KazooClient) -> None:
    root = new_root()
    with gripfast.connect(server.url_with(root=root)) as client:
        name = "a/b"
        with client.lock(name), client.semaphore(name, 2), client.rwlock(name).write():
            found = sorted(observer.get_children(root))
            assert found == ["%layout", "%rwlock", "%semaphore", "a%2Fb"]
            assert [info.name for info in client.list()] == [name]
            assert [info.name for info in client.list(kind="semaphore")] == [name]


# Others ---------------------------------------------------------------------------------------------------------------


def test_a_crowd_that_comes_at_once_gets_all_permits(server: ZooKeeperServer) -> None:
    """All of them fit, and each transaction lets one in."""

    async def main() -> None:
        clients = [gripfast.connect_async(server.url_with(root=root)) for _ in range(4)]
        leases = await asyncio.gather(*(client.semaphore("api", 40).acquire(wait=20) for client in clients * 10))
        assert sorted(slot for lease in leases for slot in lease.slots) == list(range(40))
        for lease in leases:
            await lease.release()
        for client in clients:
            await client.aclose()

    root = new_root()
    asyncio.run(main())


def test_a_waiter_whose_node_was_deleted_is_queued_again(server: ZooKeeperServer, observer: KazooClient) -> None:
    root = new_root()

    async def main() -> None:
        async with gripfast.connect_async(server.url_with(root=root)) as client:
            lease = await client.semaphore("api", 1).acquire()
            waiting = asyncio.ensure_future(client.semaphore("api", 1).acquire(wait=20))

            def waiters() -> list[str]:
                return [each for each in children(observer, f"{root}/%semaphore/api") if "__wait" in each]

            await auntil(waiters)
            (before,) = waiters()
            observer.delete(f"{root}/%semaphore/api/{before}")
            await auntil(lambda: waiters() and waiters() != [before])
            await lease.release()
            await (await waiting).release()

    asyncio.run(main())


def test_a_new_limit_wakes_those_whom_it_concerns(server: ZooKeeperServer, observer: KazooClient) -> None:
    """At once, not when they look again by themselves: the first one if it fits now, and whoever can't fit any more."""
    root = new_root()

    async def main() -> None:
        async with gripfast.connect_async(server.url_with(root=root)) as client:
            lease = await client.semaphore("api", 3).acquire(3)
            first, small, big = [asyncio.ensure_future(client.semaphore("api", 3).acquire(n)) for n in (2, 1, 3)]
            await auntil(lambda: len(children(observer, f"{root}/%semaphore/api")) == 4)
            await client.semaphore("api", 3).resize(5)
            assert (await asyncio.wait_for(first, 5)).slots == (3, 4)
            await client.semaphore("api", 5).resize(2)
            with pytest.raises(gripfast.ConfigurationError, match="limit of 2"):
                await asyncio.wait_for(big, 5)
            await lease.release()
            await (await first).release()
            await (await asyncio.wait_for(small, 5)).release()

    asyncio.run(main())
