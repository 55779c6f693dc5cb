"""What is known about one connection to a member: whose answer is whose, what may have had an effect, its end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamReset
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from gripfast.errors import OutcomeUnknown
from gripfast.stores.etcd import conversation as c
from gripfast.stores.etcd import faults
from gripfast.stores.etcd import frames as f
from gripfast.stores.etcd.codec import sized, tag, varint
from gripfast.stores.etcd.conversation import Call, Conversation, framed
from gripfast.stores.etcd.frames import REPLIES_MOST
from gripfast.stores.etcd.link import Notice, Refusal
from gripfast.stores.etcd.messages import LeaseKeepAliveRequest, PutRequest, PutResponse, RangeRequest, RangeResponse
from gripfast.stores.etcd.watches import Watch
from gripfast.stores.faults import Fault

PUT = PutRequest(b"a")
OK = [(":status", "200"), ("content-type", "application/grpc")]


class Told:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def done(self) -> bool:
        return False

    def set_result(self, answer: Any, /) -> None:
        self.answers.append(answer)

    @property
    def answer(self) -> Any:
        (answer,) = self.answers
        return answer


class Member:
    """A conversation, and the member at its other end, which does what a test says."""

    def __init__(self, **settings: int) -> None:
        self.ours = Conversation("etcd://a:1", "a:1")
        self.server = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.server.initiate_connection()
        self.server.update_settings({SettingCodes[name.upper()]: value for name, value in settings.items()})
        self.events: list[Any] = []
        self.move()

    def move(self) -> None:
        while self.to_member() | self.from_member():
            pass

    def to_member(self) -> bool:
        data = self.ours.to_send()
        self.events += self.server.receive_data(data) if data else []
        return bool(data)

    def from_member(self) -> bool:
        data = self.server.data_to_send()
        if data:
            self.ours.receive(data)
        return bool(data)

    def call(self, request: Any = PUT) -> tuple[Call, Told]:
        told = Told()
        return self.ours.call(request, told, "token"), told

    def watch(self, notify: Callable[[Notice], None], key: bytes = b"k") -> Watch:
        watch = Watch(notify)
        self.ours.watch(watch, key, b"", 5, False, "token")
        return watch

    @property
    def requests(self) -> list[RequestReceived]:
        return [each for each in self.events if isinstance(each, RequestReceived)]

    @property
    def numbers(self) -> list[int]:
        return [each.stream_id for each in self.requests]

    @property
    def resets(self) -> list[int]:
        return [each.stream_id for each in self.events if isinstance(each, StreamReset)]

    def received(self, number: int) -> bytes:
        return b"".join(
            each.data for each in self.events if isinstance(each, DataReceived) and each.stream_id == number
        )

    def answer(self, number: int, message: bytes = b"", status: int = 0, words: str = "") -> None:
        self.server.send_headers(number, OK)
        if not status:
            self.server.send_data(number, framed(message))
        self.end(number, status, words)

    def end(self, number: int, status: int = 0, words: str = "") -> None:
        self.server.send_headers(number, [("grpc-status", str(status)), ("grpc-message", words)], end_stream=True)
        self.move()

    def say(self, number: int, **fields: int) -> None:
        """A WatchResponse."""
        places = {"watch_id": 2, "created": 3, "canceled": 4, "compact_revision": 5}
        message = b"".join(tag(places[name], 0) + varint(value) for name, value in fields.items() if name in places)
        if "deleted_at" in fields:
            event = tag(1, 0) + varint(1) + sized(tag(2, 2), tag(3, 0) + varint(fields["deleted_at"]))
            message += sized(tag(11, 2), event)
        self.server.send_data(number, framed(message))
        self.move()

    def goaway(self, last: int) -> None:
        self.ours.receive(f._FRAME.pack(0, 8, f.GOAWAY, 0, 0) + f._TWO_LONGS.pack(last, 0))


def test_a_request_says_who_asks_and_that_it_needs_a_leader() -> None:
    member = Member()
    member.call(RangeRequest(b"a"))
    member.move()
    headers: dict[Any, Any] = dict(member.requests[0].headers)
    assert headers[":path"] == "/etcdserverpb.KV/Range"
    assert headers["hasleader"] == "true"
    assert headers["token"] == "token"
    assert headers["te"] == "trailers"
    assert member.received(1) == framed(tag(1, 2) + b"\x01a")


@given(order=st.permutations(range(6)))
def test_answers_in_any_order_reach_those_who_asked(order: list[int]) -> None:
    member = Member()
    calls = [member.call(RangeRequest(b"%d" % each))[1] for each in range(6)]
    member.move()
    for each in order:
        member.answer(member.numbers[each], tag(4, 0) + varint(each))
    assert [told.answer for told in calls] == [RangeResponse(total=each) for each in range(6)]
    assert member.ours.calls_open == 0


def test_the_answer_to_a_call_that_was_given_up_reaches_nobody() -> None:
    member = Member()
    (first, given_up), (_, second) = member.call(), member.call()
    member.move()
    member.server.send_headers(1, OK)
    member.server.send_data(1, framed(b""))
    on_its_way = member.server.data_to_send()
    member.ours.cancel(first, "too late")
    member.ours.receive(on_its_way)
    member.answer(3)
    assert given_up.answer == "too late"
    assert second.answer == PutResponse()


def test_a_call_that_is_given_up_is_cancelled_at_its_member() -> None:
    member = Member()
    call, _ = member.call()
    member.move()
    member.ours.cancel(call)
    member.move()
    assert member.resets == [1]


def test_a_call_that_is_given_up_before_it_left_never_leaves() -> None:
    member = Member()
    (first, _), (second, told) = member.call(), member.call()
    member.ours.cancel(first)
    assert not first.is_sent
    member.move()
    member.answer(1)
    assert second.is_sent
    assert told.answer == PutResponse()
    assert len(member.requests) == 1


def test_calls_wait_where_the_member_allows_no_more_and_leave_when_others_have_ended() -> None:
    member = Member(max_concurrent_streams=2)
    calls = [member.call() for _ in range(4)]
    member.move()
    assert [call.is_sent for call, _ in calls] == [True, True, False, False]
    member.ours.cancel(calls[2][0])
    member.answer(1)
    member.move()
    assert [call.is_sent for call, _ in calls] == [True, True, False, True]


@pytest.mark.parametrize(
    ("status", "words", "is_refusal", "was_sent"),
    [
        (9, "etcdserver: lease already exists", True, False),
        (7, "etcdserver: permission denied", True, False),
        (14, "etcdserver: no leader", False, False),
        (14, "etcdserver: rpc not supported for learner", False, False),
        (14, "etcdserver: request timed out", False, True),
        (2, "anything", False, True),
        (8, "etcdserver: mvcc: database space exceeded", False, True),
        (8, "grpc: received message larger than max", False, True),
        (4, "context deadline exceeded", False, True),
        (13, "", False, True),
        (99, "not yet invented", False, True),
    ],
)
def test_only_a_status_that_is_known_as_a_refusal_is_one(
    status: int, words: str, is_refusal: bool, was_sent: bool
) -> None:
    member = Member()
    _, told = member.call()
    member.move()
    member.answer(1, status=status, words=words.replace(" ", "%20"))
    assert isinstance(told.answer, Refusal if is_refusal else Fault)
    assert told.answer.was_sent == was_sent
    if is_refusal:
        assert told.answer.message == words
    elif was_sent:
        assert isinstance(told.answer.error, OutcomeUnknown)


def test_the_end_of_the_connection_tells_who_may_have_had_an_effect() -> None:
    member = Member()
    _, sent = member.call()
    member.move()
    _, unsent = member.call()
    member.ours.end()
    assert sent.answer.was_sent
    assert not unsent.answer.was_sent
    assert not member.ours.takes_calls
    assert member.ours.is_over
    assert not member.call()[1].answer.was_sent


def test_goaway_tells_which_calls_were_not_processed() -> None:
    member = Member()
    calls = [member.call()[1] for _ in range(3)]
    member.move()
    _, waiting = member.call()
    member.goaway(last=3)
    assert not calls[2].answer.was_sent
    assert not waiting.answer.was_sent
    assert not member.ours.takes_calls
    assert not member.ours.is_over
    member.answer(1)
    member.answer(3)
    assert [told.answer for told in calls[:2]] == [PutResponse(), PutResponse()]
    assert member.ours.is_over


def test_a_refused_stream_was_not_processed_and_another_may_have_been() -> None:
    member = Member()
    calls = [member.call()[1] for _ in range(2)]
    member.move()
    member.server.reset_stream(1, f.REFUSED_STREAM)
    member.server.reset_stream(3, f.INTERNAL_ERROR)
    member.move()
    assert [told.answer.was_sent for told in calls] == [False, True]


def test_a_connection_whose_stream_numbers_ran_out_is_left() -> None:
    member = Member()
    member.ours.frames._next = f.LARGEST
    _, last = member.call()
    _, one_too_many = member.call()
    member.ours.to_send()
    assert not one_too_many.answer.was_sent
    assert not last.answers
    assert not member.ours.takes_calls
    assert not member.ours.is_over


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda server: server.send_headers(1, [(":status", "503")], end_stream=True),
        lambda server: server.send_headers(1, OK, end_stream=True),
        lambda server: (server.send_headers(1, OK), server.send_data(1, framed(b""), end_stream=True)),
        lambda server: (server.send_headers(1, OK), server.send_data(1, framed(b"\xff"))),
        lambda server: (server.send_headers(1, OK), server.send_data(1, b"\1\0\0\0\0")),
        lambda server: (server.send_headers(1, OK), server.send_data(1, framed(b"") * 2)),
        lambda server: (
            server.send_headers(1, OK),
            server.send_data(1, framed(b"12")[:-1]),
            server.send_headers(1, [("grpc-status", "0")], end_stream=True),
        ),
        lambda server: (
            server.send_headers(1, OK),
            server.send_headers(1, [("grpc-status", "0")], end_stream=True),
        ),
        lambda server: (
            server.send_headers(1, OK),
            server.send_headers(1, [("grpc-status", "none")], end_stream=True),
        ),
    ],
)
def test_nonsense_costs_its_own_call_alone(nonsense: Callable[[H2Connection], object]) -> None:
    member = Member()
    (_, told), (_, other) = member.call(), member.call()
    member.move()
    nonsense(member.server)
    member.move()
    assert "makes no sense" in str(told.answer.error)
    assert told.answer.was_sent
    member.answer(3)
    assert other.answer == PutResponse()


def test_bytes_that_are_not_http_end_the_connection() -> None:
    member = Member()
    _, told = member.call()
    member.move()
    member.ours.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "makes no sense" in str(told.answer.error)
    assert told.answer.was_sent
    assert not member.ours.is_open


def test_a_message_at_the_limit_is_read_and_one_above_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c, "MESSAGE_MOST", 1_000_000)
    member = Member()
    (_, at_limit), (_, above) = member.call(RangeRequest(b"a")), member.call(RangeRequest(b"a"))
    member.move()
    start = tag(100, 2)
    padding = sized(start, bytes(1_000_000 - len(start) - 3))
    for number, message in ((1, padding), (3, padding + b"\0")):
        assert len(message) == 1_000_000 + (number == 3)
        send_much(member, number, framed(message))
    member.end(1)
    assert at_limit.answer == RangeResponse()
    assert "makes no sense" in str(above.answer.error)
    assert member.resets == [3]


def send_much(member: Member, number: int, data: bytes) -> None:
    member.server.send_headers(number, OK)
    for at in range(0, len(data), 16_000):
        if number in member.resets:
            return
        member.server.send_data(number, data[at : at + 16_000])
        member.move()


def test_an_answer_that_comes_byte_by_byte() -> None:
    member = Member()
    _, told = member.call(RangeRequest(b"a"))
    member.move()
    member.server.send_headers(1, OK)
    for byte in framed(tag(4, 0) + varint(300)):
        member.server.send_data(1, bytes([byte]))
        member.move()
    member.end(1)
    assert told.answer == RangeResponse(total=300)


def test_one_answer_is_taken_from_a_stream_of_answers() -> None:
    member = Member()
    _, told = member.call(LeaseKeepAliveRequest(7))
    member.move()
    member.server.send_headers(1, OK)
    member.server.send_data(1, framed(tag(2, 0) + varint(7)))
    member.move()
    assert told.answer.id == 7
    assert member.ours.calls_open == 0


def test_a_member_is_silent_only_if_nothing_came_at_all() -> None:
    member = Member()
    call, _ = member.call()
    member.move()
    assert member.ours.is_silent_since(call)
    member.server.ping(b"12345678")
    member.move()
    assert not member.ours.is_silent_since(call)


def test_replies_to_pings_wait_for_company_but_are_not_heaped_up() -> None:
    member = Member()
    member.move()
    for number in range(1, REPLIES_MOST + 1):
        member.server.ping(b"12345678")
        member.ours.receive(member.server.data_to_send())
        assert member.ours.has_output
        assert member.ours.is_urgent == (number == REPLIES_MOST)
    member.move()
    assert not member.ours.has_output
    member.server.ping(b"12345678")
    member.ours.receive(member.server.data_to_send())
    member.call()
    assert member.ours.is_urgent


def test_a_ping_is_sent_only_when_the_last_was_answered() -> None:
    member = Member()
    assert member.ours.ping()
    assert not member.ours.ping()
    member.move()
    assert member.ours.ping()


# -- watches -----------------------------------------------------------------------------------------------------------


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


def test_a_fault_names_the_member_and_says_what_to_do() -> None:
    fault = faults.fault_of(Refusal(7, "etcdserver: permission denied", "etcd://a:1"))
    assert fault.kind == "no_rights"
    assert str(fault.error).startswith("etcd://a:1 does not let this user do that")
