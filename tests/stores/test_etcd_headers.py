"""Header blocks of HTTP/2, and frames that no server should send."""

from __future__ import annotations

import pytest
from h2.events import (
    RequestReceived,
)
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from gripfast.stores.etcd import frames as f
from gripfast.stores.etcd.frames import Broken, Frames, block
from stores.etcd_frames import ANSWER, BLOCK, HEADERS, Pair, Told, frame

# -- headers -----------------------------------------------------------------------------------------------------------


def test_headers_larger_than_a_frame_go_on_in_others() -> None:
    pair = Pair(sizes=(1000,), max_header_list_size=1 << 20)
    token = "t" * 50_000
    stream = pair.open(b"data", headers=block([*HEADERS, ("token", token)]))
    pair.move()
    (request,) = [each for each in pair.events if isinstance(each, RequestReceived)]
    assert dict(request.headers)[b"token"] == token.encode()
    assert pair.received(stream.number) == b"data"


def test_a_header_block_in_many_frames_is_read() -> None:
    pair = Pair(sizes=(1000,))
    stream = pair.open()
    pair.move()
    long = [*ANSWER, (b"long", bytes(range(33, 127)) * 500)]
    pair.server.send_headers(stream.number, long, end_stream=True)
    pair.move()
    assert stream.told == [("headers", long), ("end",)]


@pytest.mark.parametrize("size", [0, 10_000])
def test_a_header_block_without_end_breaks_the_connection(size: int) -> None:
    ours = Frames()
    ours.open(Told(), BLOCK, b"", True)
    frame = f._FRAME.pack(size >> 8, size & 255, f.HEADERS, 0, 1) + bytes(size)
    ours.receive(frame)
    with pytest.raises(Broken) as caught:
        for _ in range(10_000):
            ours.receive(f._FRAME.pack(size >> 8, size & 255, f.CONTINUATION, 0, 1) + bytes(size))
    assert caught.value.code == f.ENHANCE_YOUR_CALM


def test_a_server_that_indexes_headers_is_understood_before_it_knows_that_it_may_not() -> None:
    ours, server = Frames(), Encoder()
    streams = [Told() for _ in range(3)]
    for stream in streams:
        ours.open(stream, BLOCK, b"", True)
    ours.reset(streams[1])  # what is dropped changes the table, too
    answer = [(b":status", b"200"), (b"x-odd", b"1")]
    for number in (1, 3, 5):
        content = server.encode(answer)
        ours.receive(f._FRAME.pack(0, len(content), f.HEADERS, f.END_HEADERS, number) + content)
    assert [stream.told for stream in streams] == [[("headers", answer)], [], [("headers", answer)]]


def test_a_server_that_indexes_headers_although_it_may_not_breaks_the_connection() -> None:
    ours, server = Frames(), Encoder()
    ours.open(Told(), BLOCK, b"", True)
    ours.receive(f._FRAME.pack(0, 0, f.SETTINGS, f.ACK, 0))
    content = server.encode([(b"x-odd", b"1")])
    with pytest.raises(Broken) as caught:
        ours.receive(f._FRAME.pack(0, len(content), f.HEADERS, f.END_HEADERS, 1) + content)
    assert caught.value.code == f.COMPRESSION_ERROR


def test_the_same_block_means_another_thing_while_the_server_may_index() -> None:
    """It names the newest entry of the table, whatever that is."""
    ours, server = Frames(), Encoder()
    streams = [Told() for _ in range(4)]
    for stream in streams:
        ours.open(stream, BLOCK, b"", True)
    sent: list[bytes] = []
    for number, name in zip((1, 3, 5, 7), (b"a", b"a", b"b", b"b"), strict=True):
        sent.append(server.encode([(name, b"1")]))
        ours.receive(frame(f.HEADERS, f.END_HEADERS, number, sent[-1]))
    assert sent[1] == sent[3]
    assert [stream.told[0][1][0][0] for stream in streams] == [b"a", b"a", b"b", b"b"]


def test_a_server_that_allows_no_table_is_told_that_we_have_none() -> None:
    """Its decoder refuses a block that does not begin so."""
    pair = Pair()
    pair.server.decoder.max_allowed_table_size = 0
    pair.open()
    pair.move()
    assert any(isinstance(each, RequestReceived) for each in pair.events)


def test_a_block_is_decoded_once() -> None:
    pair = Pair()
    pair.move()
    for _ in range(3):
        stream = pair.open()
        number = stream.number
        pair.move()
        pair.answer(number)
        pair.move()
        assert stream.told[0] == ("headers", ANSWER)
    assert len(pair.ours._decoded_blocks) <= 3  # the first of them has the size of the table before it


# -- what no server should send ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (f._FRAME.pack(1 << 7, 0, f.DATA, 0, 1), f.FRAME_SIZE_ERROR),
        (frame(f.DATA, 0, 9, b""), f.PROTOCOL_ERROR),
        (frame(f.DATA, 0, 2, b""), f.PROTOCOL_ERROR),
        (frame(f.DATA, f.PADDED, 1, b"\x05abc"), f.PROTOCOL_ERROR),
        (frame(f.DATA, f.PADDED, 1, b""), f.PROTOCOL_ERROR),
        (frame(f.HEADERS, f.END_HEADERS, 1, b"\xff"), f.COMPRESSION_ERROR),
        (frame(f.HEADERS, f.END_HEADERS | f.WITH_PRIORITY, 1, b"1234"), f.FRAME_SIZE_ERROR),
        (frame(f.HEADERS, 0, 1, b"") + frame(f.PING, 0, 0, bytes(8)), f.PROTOCOL_ERROR),
        (frame(f.HEADERS, 0, 1, b"") + frame(f.CONTINUATION, 0, 3, b""), f.PROTOCOL_ERROR),
        (frame(f.CONTINUATION, 0, 1, b""), f.PROTOCOL_ERROR),
        (frame(f.RST_STREAM, 0, 1, b"123"), f.FRAME_SIZE_ERROR),
        (frame(f.SETTINGS, 0, 0, b"12345"), f.FRAME_SIZE_ERROR),
        (frame(f.SETTINGS, f.ACK, 0, b"123456"), f.FRAME_SIZE_ERROR),
        (frame(f.SETTINGS, 0, 0, f._SETTING.pack(f.INITIAL_WINDOW_SIZE, 1 << 31)), f.FLOW_CONTROL_ERROR),
        (frame(f.SETTINGS, 0, 0, f._SETTING.pack(f.MAX_FRAME_SIZE, 16_383)), f.PROTOCOL_ERROR),
        (frame(f.PUSH_PROMISE, 0, 1, bytes(4)), f.PROTOCOL_ERROR),
        (frame(f.PING, 0, 0, b"1"), f.FRAME_SIZE_ERROR),
        (frame(f.GOAWAY, 0, 0, b"1"), f.FRAME_SIZE_ERROR),
        (frame(f.WINDOW_UPDATE, 0, 0, b"1"), f.FRAME_SIZE_ERROR),
        (frame(f.WINDOW_UPDATE, 0, 0, bytes(4)), f.PROTOCOL_ERROR),
        (frame(f.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), f.FLOW_CONTROL_ERROR),
        (frame(f.WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"), f.FLOW_CONTROL_ERROR),
    ],
)
def test_what_breaks_the_protocol_is_named(data: bytes, code: int) -> None:
    ours = Frames()
    ours.open(Told(), BLOCK, b"", True)
    with pytest.raises(Broken) as caught:
        ours.receive(data)
    assert caught.value.code == code


def test_frames_that_nobody_knows_are_ignored() -> None:
    ours = Frames()
    ours.receive(frame(77, 255, 5, b"anything") + frame(f.PRIORITY, 0, 1, bytes(5)))
    assert ours.received == 2


@given(
    garbage=st.lists(
        st.builds(frame, st.integers(0, 10), st.integers(0, 255), st.integers(0, 6), st.binary(max_size=40)),
        max_size=12,
    )
)
def test_garbage_is_broken_or_read_and_nothing_else(garbage: list[bytes]) -> None:
    ours = Frames()
    for _ in range(2):
        ours.open(Told(), BLOCK, b"x" * 10, True)
    try:
        ours.receive(b"".join(garbage))
    except Broken:
        pass
    assert ours.take()
