"""Waiters that give up or ask again behind a holder that stays: they leave nothing behind in kazoo."""

import contextlib
from typing import Any

import pytest
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from gripfast import LockTimeout
from gripfast.stores.inboxes import BlockingInbox
from gripfast.stores.zookeeper import store
from gripfast.stores.zookeeper.watches import Watches
from support.both_colours import another, both_colours, staged
from support.waiting import auntil
from support.zookeeper_servers import ZooKeeperServer, zookeeper_server

TTL = 20
ATTEMPTS = 30


@pytest.fixture(scope="module")
def server() -> ZooKeeperServer:
    return zookeeper_server()


def watchers(actor: Any) -> int:
    """What kazoo would call, over all paths."""
    kazoo = actor.client._runtime.env.store._sessions(TTL).client
    return sum(map(len, [*kazoo._child_watchers.values(), *kazoo._data_watchers.values()]))


@staged
async def test_attempts_that_time_out_behind_a_long_holder_leave_one_watch_among_them(server: ZooKeeperServer) -> None:
    """Each left one, for as long as the holder held: a standby of a leader that leads for weeks."""
    url = server.lock_space()
    async with both_colours(url, ttl=TTL) as (holder, _), both_colours(url, ttl=TTL) as standbys:
        for standby in standbys:
            lease = await holder.acquire(standby.colour)
            for _ in range(ATTEMPTS):
                with contextlib.suppress(LockTimeout):
                    await standby.acquire(standby.colour, wait=0.003)
            assert watchers(standby) == 1
            waiting = standby.acquire(standby.colour)

            async def waits(name: str = standby.colour) -> bool:
                return (await holder.inspect(name)).waiters == 1

            await auntil(waits)
            await holder.release(lease)
            assert (await waiting).held


@staged
async def test_a_waiter_that_asks_again_at_the_slow_pace_keeps_its_one_watch(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SLOW_PACE", 0.01)
    async with both_colours(server.lock_space(), ttl=TTL) as actors:
        for actor in actors:
            lease = await actor.acquire(actor.colour)
            waiter = another(actor)
            with pytest.raises(LockTimeout):
                await waiter.acquire(actor.colour, wait=0.4)
            assert watchers(actor) == 1
            await waiter.leaves()
            await actor.release(lease)


# Who is told ----------------------------------------------------------------------------------------------------------

DELETED = WatchedEvent(EventType.DELETED, KeeperState.CONNECTED, "/job/1")
DISCONNECTED = WatchedEvent(EventType.NONE, KeeperState.CONNECTING, None)


def is_told(inbox: BlockingInbox) -> bool:
    return inbox.take(0.0) is None


def test_all_who_wait_for_the_same_node_are_told_by_one_watch() -> None:
    watches, one, other, elsewhere = Watches(), BlockingInbox(), BlockingInbox(), BlockingInbox()
    calls = {watches.join("/job/1", one), watches.join("/job/1", other)}
    watches.join("/job/2", elsewhere)
    assert len(calls) == 1
    calls.pop()(DELETED)
    assert (is_told(one), is_told(other), is_told(elsewhere)) == (True, True, False)


def test_who_finds_the_node_gone_has_the_others_told() -> None:
    """Their watch may have been the one that was not set."""
    watches, finder, other = Watches(), BlockingInbox(), BlockingInbox()
    watches.join("/job/1", finder)
    watches.join("/job/1", other)
    watches.leave("/job/1", finder)
    assert (is_told(finder), is_told(other)) == (False, True)


def test_a_watch_that_ends_with_its_connection_ends_none_of_the_next_connection() -> None:
    watches, waiter = Watches(), BlockingInbox()
    before = watches.join("/job/1", waiter)
    watches.notify_all()
    assert is_told(waiter)
    after = watches.join("/job/1", waiter)
    before(DISCONNECTED)
    after(DELETED)
    assert is_told(waiter)


def test_a_watch_of_a_session_that_nobody_knows_any_more_can_be_kept_and_called() -> None:
    """On kazoo's thread, where an error ends the connection."""
    watch = Watches().join("/job/1", BlockingInbox())
    assert {watch, watch} == {watch}
    watch(DELETED)
