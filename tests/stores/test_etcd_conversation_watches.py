"""The watches of one connection to a member: each gets its own notice, and one last word."""

from __future__ import annotations

import gc

import pytest

from gripfast.stores.etcd.codec import sized, tag, varint
from gripfast.stores.etcd.conversation import Conversation, framed
from gripfast.stores.etcd.link import Notice
from gripfast.stores.etcd.messages import PutResponse
from gripfast.stores.etcd.watches import Watch
from stores.etcd_member import OK, Member


def watching(member: Member, *watches: Watch) -> None:
    """All are confirmed."""
    member.move()
    member.server.send_headers(member.numbers[-1], OK)
    for watch in watches:
        member.say(member.numbers[-1], watch_id=watch.number, created=1)


def test_all_watches_share_a_stream_and_each_gets_its_own_notice() -> None:
    member, first, second = Member(), list[Notice](), list[Notice]()
    watches = [member.watch(first.append), member.watch(second.append)]
    watching(member, *watches)
    assert len(member.requests) == 1
    member.say(1, watch_id=watches[1].number, deleted_at=9)
    assert (first, second) == ([], [Notice("changed", 9)])
    member.say(1, watch_id=watches[1].number, deleted_at=10)
    assert len(second) == 1, "it ended with the first"
    member.say(1, watch_id=watches[0].number, deleted_at=11)
    assert first == [Notice("changed", 11)]


def test_a_compacted_watch_says_so() -> None:
    member, notices = Member(), list[Notice]()
    watch = member.watch(notices.append)
    watching(member, watch)
    member.say(1, watch_id=watch.number, canceled=1, compact_revision=7)
    assert [(each.kind, each.revision) for each in notices] == [("compacted", 7)]


@pytest.mark.parametrize("number", [1, 2**64 - 1])
def test_a_refused_watch_is_told_even_if_the_member_does_not_say_which(number: int) -> None:
    member, notices, refused = Member(), list[Notice](), list[Conversation]()
    member.ours.when_refused = refused.append
    watch = member.watch(notices.append)
    watching(member)
    member.say(1, watch_id=number, created=1, canceled=1)
    assert [each.kind for each in notices] == ["refused"]
    assert refused == [member.ours]
    assert watch.is_over


def test_a_lost_connection_is_told_to_every_watch() -> None:
    member, notices = Member(), list[Notice]()
    watches = [member.watch(notices.append) for _ in range(3)]
    watching(member, *watches[:2])
    member.ours.end()
    assert [each.kind for each in notices] == ["lost"] * 3


def test_a_member_without_a_leader_ends_the_stream_and_the_next_watch_begins_another() -> None:
    member, notices = Member(), list[Notice]()
    watch = member.watch(notices.append)
    watching(member, watch)
    member.end(1, 14, "etcdserver: no leader")
    assert [each.kind for each in notices] == ["lost"]
    assert "no leader" in notices[0].why
    again = member.watch(notices.append)
    watching(member, again)
    member.say(member.numbers[-1], watch_id=again.number, deleted_at=3)
    assert [each.kind for each in notices] == ["lost", "changed"]


def test_a_cancelled_watch_is_silent_and_its_member_forgets_it() -> None:
    member, notices = Member(), list[Notice]()
    watch = member.watch(notices.append)
    watching(member, watch)
    watch.cancel()
    before = member.received(1)
    member.say(1, watch_id=watch.number, deleted_at=3)
    assert not notices
    assert member.received(1) == before + framed(sized(tag(2, 2), tag(1, 0) + varint(watch.number)))
    assert len(member.ours.watches) == 0


def test_a_watch_that_nobody_keeps_is_cancelled() -> None:
    member, notices = Member(), list[Notice]()
    watch = member.watch(notices.append)
    watching(member, watch)
    number, before = watch.number, member.received(1)
    del watch
    gc.collect()
    member.move()
    assert member.received(1) == before + framed(sized(tag(2, 2), tag(1, 0) + varint(number)))
    member.ours.end()
    assert not notices


def test_leaving_a_member_loses_its_watches_and_lets_calls_go_on() -> None:
    member, notices = Member(), list[Notice]()
    watch = member.watch(notices.append)
    watching(member, watch)
    _, told = member.call()
    member.move()
    member.ours.leave()
    assert [each.kind for each in notices] == ["lost"]
    assert not member.ours.is_over
    member.answer(member.numbers[-1])
    assert told.answer == PutResponse()
    assert member.ours.is_over
