"""What is known about one connection to a member: whose answer is whose, what may have had an effect, its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from h2.connection import H2Connection
from hypothesis import given
from hypothesis import strategies as st

from gripfast.errors import OutcomeUnknown
from gripfast.stores.etcd import conversation as c
from gripfast.stores.etcd import faults
from gripfast.stores.etcd import frames as f
from gripfast.stores.etcd.codec import sized, tag, varint
from gripfast.stores.etcd.conversation import SILENT, framed
from gripfast.stores.etcd.frames import REPLIES_MOST
from gripfast.stores.etcd.link import Refusal
from gripfast.stores.etcd.messages import LeaseKeepAliveRequest, PutResponse, RangeRequest, RangeResponse
from gripfast.stores.faults import Fault
from stores.etcd_member import OK, Member


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


def test_a_connection_is_left_if_nothing_at_all_came_in_the_time_of_a_call() -> None:
    member = Member()
    call, told = member.call()
    member.move()
    member.ours.expire(call, SILENT)
    assert not member.ours.takes_calls
    assert member.ours.is_over
    assert told.answer.was_sent


def test_a_connection_is_kept_if_something_came_or_the_time_was_short() -> None:
    member = Member()
    (first, _), (second, _), (third, told) = [member.call() for _ in range(3)]
    member.move()
    member.ours.expire(first, SILENT / 2)
    assert member.ours.takes_calls, "a short time tells nothing"
    member.server.ping(b"12345678")
    member.move()
    member.ours.expire(second, SILENT)
    assert member.ours.takes_calls, "something came"
    member.answer(member.numbers[2])
    member.ours.expire(third, SILENT)
    assert member.ours.takes_calls, "it was answered"
    assert told.answer == PutResponse()


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


def test_a_fault_names_the_member_and_says_what_to_do() -> None:
    fault = faults.fault_of(Refusal(7, "etcdserver: permission denied", "etcd://a:1"))
    assert fault.kind == "no_rights"
    assert str(fault.error).startswith("etcd://a:1 does not let this user do that")
