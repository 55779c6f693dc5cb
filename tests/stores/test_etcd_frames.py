"""Our side of HTTP/2 beside `h2`'s: whatever both do, they understand each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from h2.events import (
    PingAckReceived,
    RequestReceived,
    StreamReset,
    WindowUpdated,
)
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from gripfast.stores.etcd import frames as f
from gripfast.stores.etcd.frames import Frames, block
from stores.etcd_frames import ANSWER, BLOCK, HEADERS, TRAILERS, Pair, Told, frame


def test_one_request_and_its_answer() -> None:
    pair = Pair()
    stream = pair.open(b"question")
    number = stream.number
    pair.move()
    (request,) = [each for each in pair.events if isinstance(each, RequestReceived)]
    assert [(name.decode(), value.decode()) for name, value in request.headers] == HEADERS
    assert pair.received(number) == b"question"
    assert pair.ended(number)
    pair.answer(number)
    pair.move()
    assert stream.told == [("headers", ANSWER), ("data", b"answer"), ("headers", TRAILERS), ("end",)]
    assert not pair.ours.streams


steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 40_000)),
        st.tuples(st.just("answer"), st.integers(0, 40_000)),
        st.tuples(st.just("cancel"), st.integers(0, 3)),
        st.tuples(st.just("reset"), st.integers(0, 3)),
        st.tuples(st.just("window"), st.integers(1, 70_000)),
        st.tuples(st.just("settings"), st.integers(0, 70_000)),
        st.tuples(st.just("frame size"), st.integers(16_384, 40_000)),
        st.tuples(st.just("ping"), st.just(0)),
        st.tuples(st.just("our ping"), st.just(0)),
        st.tuples(st.just("move"), st.just(0)),
    ),
    max_size=25,
)


class Story:
    """What was done, and what must come of it."""

    def __init__(self, sizes: list[int]) -> None:
        self.pair = Pair(sizes)
        self.pair.move()
        self.asked: dict[int, tuple[Told, bytes]] = {}
        self.answered: dict[int, bytes] = {}
        self.over: set[int] = set()

    def run(self, step: str, size: int) -> None:
        pair, server = self.pair, self.pair.server
        live = [number for number in self.asked if number not in self.over]
        if step == "open":
            data = bytes([len(self.asked) % 251]) * size
            stream = pair.open(data)
            self.asked[stream.number] = stream, data
        elif step == "move":
            pair.move()
        elif step == "settings":
            server.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})
        elif step == "frame size":
            server.update_settings({SettingCodes.MAX_FRAME_SIZE: size})
        elif step == "window":
            server.increment_flow_control_window(size)
        elif step == "ping":
            server.ping(b"12345678")
        elif step == "our ping":
            pair.ours.ping()
        elif live:
            self._end(step, live[size % len(live)], size)

    def _end(self, step: str, number: int, size: int) -> None:
        pair = self.pair
        pair.move()
        stream, _ = self.asked[number]
        if step == "cancel":
            pair.ours.reset(stream)
        elif step == "reset":
            pair.server.reset_stream(number, 11)
        else:
            data = bytes([number % 251]) * size
            pair.answer(number, data)
            self.answered[number] = data
        self.over.add(number)
        pair.move()

    def check(self) -> None:
        pair = self.pair
        pair.server.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
        pair.server.increment_flow_control_window(1 << 24)
        pair.move()
        for number, (stream, data) in self.asked.items():
            if number not in self.over:
                assert pair.received(number) == data
                assert pair.ended(number)
            assert data.startswith(pair.received(number))
            if number in self.answered:
                assert stream.data == self.answered[number]
                assert stream.told[-1] == ("end",)
        assert sum(isinstance(each, PingAckReceived) for each in pair.events) == self.pings
        assert pair.ours.pings_unanswered == 0

    pings = 0


@given(sizes=st.lists(st.integers(1, 20_000), min_size=1, max_size=5), story=steps)
def test_whatever_both_do_they_understand_each_other(sizes: list[int], story: list[tuple[str, int]]) -> None:
    told = Story(sizes)
    for step, size in story:
        told.run(step, size)
    told.pings = sum(step == "ping" for step, _ in story)
    told.check()


def what_a_server_said() -> bytes:
    """To three requests: of every kind of frame one, all in one piece."""
    pair = Pair()
    numbers = [pair.open(b"x" * 100).number for _ in range(3)]
    pair.events += pair.server.receive_data(pair.ours.take())
    for number in numbers:
        pair.server.send_headers(number, ANSWER)
        pair.server.send_data(number, b"y" * 100, pad_length=7)
    pair.server.ping(b"12345678")
    pair.server.reset_stream(numbers[0])
    pair.server.send_headers(numbers[2], TRAILERS, end_stream=True)
    said = pair.server.data_to_send()
    content = block([("grpc-status", "0"), ("grpc-message", "")])
    said += frame(f.HEADERS, f.END_STREAM, numbers[1], content[:3])
    said += frame(f.CONTINUATION, 0, numbers[1], content[3:9])
    said += frame(f.CONTINUATION, f.END_HEADERS, numbers[1], content[9:])
    pair.server.close_connection(last_stream_id=numbers[2])
    return said + pair.server.data_to_send()


def told_of(pieces: Iterable[bytes]) -> tuple[list[list[Any]], bytes]:
    ours = Frames()
    streams = [Told() for _ in range(3)]
    for stream in streams:
        ours.open(stream, BLOCK, b"x" * 100, True)
    ours.take()
    for piece in pieces:
        ours.receive(piece)
    return [[*stream.told, ours.is_leaving] for stream in streams], ours.take()


def test_bytes_cut_anywhere_mean_the_same() -> None:
    said = what_a_server_said()
    whole = told_of([said])
    assert whole[0][0][-2] == ("reset", 0, True)
    assert whole[0][1][-2] == ("end",)
    for cut in range(len(said)):
        assert told_of([said[:cut], said[cut:]]) == whole
    assert told_of(bytes([each]) for each in said) == whole


# -- windows -----------------------------------------------------------------------------------------------------------


def test_a_closed_window_holds_back_the_rest_until_it_is_opened() -> None:
    pair = Pair(initial_window_size=10)
    pair.move()
    stream = pair.open(b"0123456789abcdefghij")
    pair.move()
    assert pair.received(stream.number) == b"0123456789"
    assert not pair.ended(stream.number)
    pair.server.increment_flow_control_window(5, stream.number)
    pair.move()
    assert pair.received(stream.number) == b"0123456789abcde"
    pair.server.increment_flow_control_window(5, stream.number)
    pair.move()
    assert pair.received(stream.number) == b"0123456789abcdefghij"
    assert pair.ended(stream.number)


def test_the_connections_window_is_shared_in_order() -> None:
    pair = Pair(initial_window_size=1 << 20)
    pair.move()
    first, second = pair.open(b"a" * 60_000), pair.open(b"b" * 60_000)
    pair.move()
    assert (len(pair.received(1)), len(pair.received(3))) == (60_000, 5_535)
    third = pair.open(b"")
    pair.move()
    assert pair.ended(third.number), "an empty request needs no window"
    pair.server.increment_flow_control_window(60_000)
    pair.move()
    assert pair.received(second.number) == b"b" * 60_000
    assert pair.ended(first.number)
    assert pair.ended(second.number)


def test_a_window_that_shrinks_below_zero_holds_back_until_it_is_above() -> None:
    pair = Pair(initial_window_size=100)
    pair.move()
    stream = pair.open(b"x" * 150)
    pair.move()
    pair.server.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 20})
    pair.move()
    pair.server.increment_flow_control_window(80, stream.number)
    pair.move()
    assert len(pair.received(stream.number)) == 100
    pair.server.increment_flow_control_window(50, stream.number)
    pair.move()
    assert len(pair.received(stream.number)) == 150


def test_what_is_cancelled_while_it_waits_for_a_window_is_never_sent() -> None:
    pair = Pair(initial_window_size=10)
    pair.move()
    stream = pair.open(b"0123456789abcdef")
    number = stream.number
    pair.move()
    pair.ours.reset(stream)
    pair.server.increment_flow_control_window(1000)
    pair.move()
    assert pair.received(number) == b"0123456789"
    assert any(isinstance(each, StreamReset) for each in pair.events)


def test_an_answer_of_many_windows_arrives() -> None:
    pair = Pair()
    stream = pair.open()
    number = stream.number
    pair.move()
    answer = bytes(range(256)) * 20_000
    pair.answer(number, answer)
    pair.move()
    assert stream.data == answer
    assert any(isinstance(each, WindowUpdated) for each in pair.events)


def test_late_data_of_cancelled_streams_does_not_close_the_connections_window() -> None:
    pair = Pair()
    for _ in range(8):
        stream = pair.open()
        number = stream.number
        pair.move()
        pair.server.send_headers(number, ANSWER)
        for _ in range(30):
            pair.server.send_data(number, b"x" * 16_000)
        pair.ours.reset(stream)
        pair.move()
        assert not stream.told
    last = pair.open()
    pair.move()
    pair.answer(last.number, b"y" * 900_000)
    pair.move()
    assert last.data == b"y" * 900_000


# -- the end -----------------------------------------------------------------------------------------------------------


def test_goaway_in_the_middle_lets_earlier_streams_go_on() -> None:
    pair = Pair()
    first, second = pair.open(), pair.open()
    numbers = first.number, second.number
    pair.move()
    pair.ours.receive(f._FRAME.pack(0, 8 + 3, f.GOAWAY, 0, 0) + f._TWO_LONGS.pack(numbers[0], 2) + b"bye")
    assert second.told == [("reset", 2, False)]
    assert not pair.ours.can_open
    assert "bye" in pair.ours.why_leaving
    pair.answer(numbers[0])
    pair.move()
    assert first.told[-1] == ("end",)


def test_refused_streams_were_not_processed() -> None:
    pair = Pair()
    stream = pair.open()
    pair.move()
    pair.server.reset_stream(stream.number, f.REFUSED_STREAM)
    pair.move()
    assert stream.told == [("reset", f.REFUSED_STREAM, False)]


def test_stream_numbers_are_used_up_and_none_is_used_twice() -> None:
    ours = Frames()
    ours._next = f.LARGEST - 2
    numbers = []
    while ours.can_open:
        stream = Told()
        ours.open(stream, BLOCK, b"", True)
        numbers.append(stream.number)
    assert numbers == [f.LARGEST - 2, f.LARGEST]


def test_a_stream_that_the_server_ends_while_we_go_on_is_closed_on_both_sides() -> None:
    pair = Pair()
    stream = pair.open(b"first", ends=False)
    number = stream.number
    pair.move()
    pair.answer(number)
    pair.move()
    assert stream.told[-1] == ("end",)
    assert any(isinstance(each, StreamReset) for each in pair.events)


def test_limits_of_concurrent_streams_are_known() -> None:
    pair = Pair(max_concurrent_streams=2)
    pair.move()
    pair.open()
    assert pair.ours.has_room
    pair.open()
    assert not pair.ours.has_room
