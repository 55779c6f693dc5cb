"""Watches at real members, sync and async: what each is told, and when."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from gripfast.machine import boottime
from gripfast.stores.etcd.messages import (
    CompactionRequest,
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
)
from gripfast.stores.faults import Fault
from stores import etcd_stage
from stores.etcd_stage import EACH, SOON, Stage, address, new_key, stage
from support.etcd_servers import EtcdServer, Trio, etcd_server
from support.proxy import Proxy

actor, colour, proxy, trio = etcd_stage.actor, etcd_stage.colour, etcd_stage.proxy, etcd_stage.trio


def put(actor: Stage, key: bytes) -> int:
    """The first revision after it: a watch from there on misses nothing, however late its member gets to know of it."""
    revision: int = actor.call(PutRequest(key)).header.revision
    return revision + 1


def test_a_deletion_is_noticed_and_a_put_only_if_wanted(actor: Stage) -> None:
    key = new_key()
    after = put(actor, key)
    deletions, changes = actor.watch(key, after), actor.watch(key, after, puts=True)
    changed = actor.call(PutRequest(key, b"2"))
    notice = changes.hear()
    assert (notice.kind, notice.revision) == ("changed", changed.header.revision)
    assert not deletions.notices
    deleted = actor.call(DeleteRangeRequest(key))
    notice = deletions.hear()
    assert (notice.kind, notice.revision) == ("changed", deleted.header.revision)


def test_a_deletion_before_the_watch_but_after_its_revision_is_noticed(actor: Stage) -> None:
    key = new_key()
    after = put(actor, key)
    actor.call(DeleteRangeRequest(key))
    assert actor.watch(key, after).hear().kind == "changed"


def test_any_key_of_a_range(actor: Stage) -> None:
    prefix = new_key()
    heard = actor.watch(prefix + b"/", put(actor, prefix + b"/a"), range_end=prefix + b"0")
    actor.call(DeleteRangeRequest(prefix + b"/a"))
    assert heard.hear().kind == "changed"


def test_a_watch_from_before_a_compaction_says_so(colour: str) -> None:
    with EtcdServer() as server, stage(colour, server.address) as actor:
        key = new_key()
        after = put(actor, key)
        deleted = actor.call(DeleteRangeRequest(key))
        last = actor.call(PutRequest(b"other"))
        actor.call(CompactionRequest(last.header.revision))
        assert deleted.header.revision < last.header.revision
        notice = actor.watch(key, after).hear()
        assert (notice.kind, notice.revision) == ("compacted", last.header.revision)


def test_a_cancelled_watch_is_silent(actor: Stage) -> None:
    key = new_key()
    after = put(actor, key)
    cancelled, other = actor.watch(key, after), actor.watch(key, after)
    cancelled.watch.cancel()
    actor.call(DeleteRangeRequest(key))
    assert other.hear().kind == "changed"
    assert not cancelled.notices


def test_a_watch_is_told_of_the_end_of_its_member_and_the_next_one_is_elsewhere(colour: str) -> None:
    with Trio() as own:
        killed, *others = own.followers()
        addresses = [server.address for server in (killed, *others)]
        with stage(colour, *addresses) as actor:
            key = new_key()
            after = put(actor, key)
            heard = actor.watch(key, after)
            actor.call(RangeRequest(key))
            killed.kill()
            assert heard.hear(seconds=10).kind == "lost"
            actor.call(RangeRequest(key), each=2.0)
            again = actor.watch(key, after)
            actor.call(DeleteRangeRequest(key))
            assert again.hear().kind == "changed"


def test_watches_at_a_member_that_went_silent_are_told_when_a_request_finds_out(colour: str, trio: Trio) -> None:
    stopped, *others = trio.followers()
    with stage(colour, stopped.address, *(server.address for server in others)) as actor:
        key = new_key()
        heard = actor.watch(key, put(actor, key))
        try:
            stopped.pause()
            actor.call(RangeRequest(key), each=EACH)
            assert heard.hear().kind == "lost"
        finally:
            stopped.resume()


def test_a_quiet_member_is_asked_whether_it_lives(monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> None:
    """For threads, whose watches have a connection of their own."""
    monkeypatch.setattr("gripfast.stores.etcd.blocking.PING_EVERY", 0.3)
    with stage("sync", address(proxy), timeout=0.5) as actor:
        heard = actor.watch(new_key())
        assert heard.hear(seconds=1.0) is None
        proxy.black_hole()
        assert heard.hear(seconds=5.0).kind == "lost"


def test_closing_tells_every_watch_and_no_other_is_begun(colour: str) -> None:
    with stage(colour, etcd_server().address) as actor:
        heard = actor.watch(new_key())
        actor.link.stop_waiting()
        assert heard.hear().kind == "lost"
        until_then = boottime() + SOON
        assert isinstance(actor.run(actor.link.watch(b"a", 0, lambda _: None, until_then)), Fault)


def test_many_threads_wait_and_one_of_them_reads_for_all() -> None:
    with stage("sync", etcd_server().address) as actor:
        keys = [new_key() for _ in range(12)]
        heard = [actor.watch(key, put(actor, key)) for key in keys]
        with ThreadPoolExecutor(len(keys)) as threads:
            waiting = [threads.submit(each.hear, 20.0) for each in heard]
            for key in keys:
                actor.call(DeleteRangeRequest(key))
            assert [each.result().kind for each in waiting] == ["changed"] * len(keys)
