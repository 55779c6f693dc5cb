"""The client's side of one HTTP/2 connection: bytes in, bytes out. No socket, no clock.

`Frames` keeps the streams, `Stream` is told what comes for it. Theory of operation:

1. *Header blocks carry no state.* We never index what we send (`block` makes the same bytes for the same headers), and
   we announce a table of size 0, so a peer can't either, once it has acknowledged that. From then on a block means the
   same whenever it comes, and is decoded once (`_decoded`).
2. *Windows.* What we send waits for the windows of its stream and of the connection (`_pump`), in the order in which
   the streams came. What we receive is counted, also for streams that are over, and the windows are opened again when
   half of them is used: nothing is kept here that a full window would have to hold back.
3. *Stream numbers* are never used twice. So whatever comes for a stream that is over is known to be late, and dropped,
   and no list of the dead is needed. When the numbers run out, no stream is opened any more (`can_open`).
4. *GOAWAY* names the last stream that the peer may have worked on: later ones are told that they were not processed,
   earlier ones go on.
5. *Limits.* A peer can't make us keep more than a header block of `BLOCK_MOST` bytes; what a stream keeps is its own
   matter. Whatever breaks the protocol raises `Broken`, and the connection is not used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple, cast

from hpack import Decoder, Encoder, HPACKError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED = range(6)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = range(6, 12)

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
LARGEST = (1 << 31) - 1
"""A window, and the number of a stream."""
WINDOW = 65_535
FRAME_MOST = 16_384
"""The largest frame that each side takes until it says otherwise; we never do."""
OUR_WINDOW = 1 << 20
"""Of each stream that we receive, and of the connection."""
BLOCK_MOST = 1 << 16
"""Bytes of a header block, with the headers of its frames: a peer that sends empty ones without end finds one, too."""
REPLIES_MOST = 16
"""To PINGs, that wait for company."""
DECODED_MOST = 64
"""Header blocks whose meaning is remembered."""

_FRAME = Struct(">HBBBL")
_SETTING = Struct(">HL")
_LONG = Struct(">L")
_TWO_LONGS = Struct(">LL")

Headers = Sequence[tuple[bytes, bytes]]


class Broken(Exception):
    """The peer does not speak HTTP/2 as it should."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def block(headers: Iterable[tuple[str, str]]) -> bytes:
    """A header block that neither side has to remember."""
    encoded: bytes = Encoder().encode([(name, value, True) for name, value in headers], huffman=False)
    return encoded


class _Block(NamedTuple):
    number: int
    flags: int
    parts: list[bytes]


class Stream:
    """One request and what comes back. Whoever opens it has the first three methods."""

    __slots__ = ("_ends", "_has_ended", "_unsent", "_used", "_window", "number")

    def __init__(self) -> None:
        self.number = 0
        """0 before it is opened, and when it is over."""
        self._unsent = b""
        self._ends = False
        self._has_ended = False
        """Our part of it is sent."""
        self._window = 0
        self._used = 0

    def got_headers(self, headers: Headers, ends: bool) -> None:
        raise NotImplementedError

    def got_data(self, data: bytes, ends: bool) -> None:
        raise NotImplementedError

    def got_end(self, code: int, was_processed: bool) -> None:
        """It ends before its time: RST_STREAM or GOAWAY."""
        raise NotImplementedError


class Frames:
    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        self.is_leaving = False
        """The peer has sent GOAWAY."""
        self.why_leaving = ""
        self.streams_most = LARGEST
        self.received = 0
        """Frames so far; a peer that sends any lives."""
        self.pings_unanswered = 0
        self._out: list[bytes] = [PREFACE, _settings(), _window_update(0, OUR_WINDOW - WINDOW)]
        self._replies = 0
        """To PINGs, in there."""
        self._next = 1
        self._first_block = b"\x20"  # our table has the size 0, whatever the peer allows
        self._blocked: dict[int, Stream] = {}
        """Those that wait for a window, in order."""
        self._window = WINDOW
        self._stream_window = WINDOW
        self._frame_most = FRAME_MOST
        self._used = 0
        self._in = b""
        self._decoder = Decoder(max_header_list_size=BLOCK_MOST)
        self._decoded_blocks: dict[bytes, Headers] = {}
        self._is_stateless = False
        """The peer has acknowledged our settings."""
        self._open_block: _Block | None = None
        """That is not complete."""
        self._block_size = 0

    # -- out -------------------------------------------------------------------------------------------------------

    @property
    def can_open(self) -> bool:
        """Ever again."""
        return not self.is_leaving and self._next <= LARGEST

    @property
    def has_room(self) -> bool:
        """For one more stream, now."""
        return len(self.streams) < self.streams_most

    def take(self) -> bytes:
        """What is to be sent now."""
        out, self._out, self._replies = self._out, [], 0
        return out[0] if len(out) == 1 else b"".join(out)

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    @property
    def is_urgent(self) -> bool:
        """There is more to send than replies to a few PINGs, which nobody waits for."""
        return len(self._out) > self._replies or self._replies >= REPLIES_MOST

    def open(self, stream: Stream, headers: bytes, data: bytes, ends: bool) -> None:
        """With a header block and the first data."""
        stream.number, stream._window = self._next, self._stream_window
        self._next += 2
        self.streams[stream.number] = stream
        if self._first_block:
            headers, self._first_block = self._first_block + headers, b""
        self._write_block(stream.number, headers)
        self.send(stream, data, ends)

    def send(self, stream: Stream, data: bytes, ends: bool = False) -> None:
        stream._unsent += data
        stream._ends = ends
        self._pump(stream)

    def reset(self, stream: Stream, code: int = CANCEL) -> None:
        """We need no more of it. What was not sent never is."""
        if self._forget(stream):
            self._write(RST_STREAM, 0, stream.number, _LONG.pack(code))
            stream.number = 0

    def ping(self, data: bytes = b"gripfast") -> None:
        self.pings_unanswered += 1
        self._write(PING, 0, 0, data)

    def _write(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._out.append(_FRAME.pack(size >> 8, size & 0xFF, kind, flags, number) + payload)

    def _write_block(self, number: int, headers: bytes) -> None:
        if len(headers) <= self._frame_most:
            self._write(HEADERS, END_HEADERS, number, headers)
            return
        parts = [headers[at : at + self._frame_most] for at in range(0, len(headers), self._frame_most)]
        for place, part in enumerate(parts):
            is_last = place == len(parts) - 1
            self._write(CONTINUATION if place else HEADERS, END_HEADERS if is_last else 0, number, part)

    def _pump(self, stream: Stream) -> None:
        """As much as the windows allow."""
        unsent = stream._unsent
        while unsent or stream._ends:
            size = min(len(unsent), self._frame_most, stream._window, self._window)
            if unsent and size <= 0:
                self._blocked[stream.number] = stream
                stream._unsent = unsent
                return
            is_last = stream._ends and size == len(unsent)
            self._write(DATA, END_STREAM if is_last else 0, stream.number, unsent[:size])
            stream._window -= size
            self._window -= size
            unsent = unsent[size:]
            if is_last:
                stream._ends, stream._has_ended = False, True
        stream._unsent = unsent
        if self._blocked:
            self._blocked.pop(stream.number, None)

    def _pump_all(self) -> None:
        for stream in list(self._blocked.values()):
            if self._window <= 0:
                return
            self._pump(stream)

    def _forget(self, stream: Stream) -> bool:
        """Whether it was there."""
        if self._blocked:
            self._blocked.pop(stream.number, None)
        return self.streams.pop(stream.number, None) is not None

    # -- in --------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Raises Broken."""
        if self._in:
            data = self._in + data
        at, end = 0, len(data)
        while end - at >= 9:
            high, low, kind, flags, number = _FRAME.unpack_from(data, at)
            size = high << 8 | low
            if size > FRAME_MOST:
                raise Broken(FRAME_SIZE_ERROR, f"a frame has {size} bytes")
            if end - at < 9 + size:
                break
            payload = data[at + 9 : at + 9 + size]
            at += 9 + size
            self._got(kind, flags, number & LARGEST, payload)
        self._in = data[at:]

    def _got(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        self.received += 1
        if (self._open_block is not None) != (kind == CONTINUATION):
            raise Broken(PROTOCOL_ERROR, "a header block was interrupted, or a CONTINUATION continues none")
        if kind == DATA:
            self._got_data(flags, number, payload)
        elif kind == HEADERS:
            self._got_headers(flags, number, payload)
        elif (got := _GOT.get(kind)) is not None:  # others are not known, and ignored
            got(self, flags, number, payload)

    def _got_data(self, flags: int, number: int, payload: bytes) -> None:
        stream = self._stream(number)
        size = len(payload)
        self._used += size
        if self._used * 2 > OUR_WINDOW:
            self._out.append(_window_update(0, self._used))
            self._used = 0
        data = _unpadded(flags, payload)
        if stream is None:
            return
        ends = bool(flags & END_STREAM)
        stream._used += size
        if ends:
            self._end(stream)
        elif stream._used * 2 > OUR_WINDOW:
            self._out.append(_window_update(number, stream._used))
            stream._used = 0
        stream.got_data(data, ends)

    def _got_headers(self, flags: int, number: int, payload: bytes) -> None:
        self._stream(number)
        part = _unpadded(flags, payload)
        if flags & WITH_PRIORITY:
            if len(part) < 5:
                raise Broken(FRAME_SIZE_ERROR, "HEADERS with a truncated priority")
            part = part[5:]
        if flags & END_HEADERS:
            self._got_block(flags, number, part)
        else:
            self._open_block, self._block_size = _Block(number, flags, [part]), len(part)

    def _got_continuation(self, flags: int, number: int, payload: bytes) -> None:
        assert self._open_block is not None
        begun, first_flags, parts = self._open_block
        if number != begun:
            raise Broken(PROTOCOL_ERROR, "a CONTINUATION in another stream")
        parts.append(payload)
        self._block_size += 9 + len(payload)
        if self._block_size > BLOCK_MOST:
            raise Broken(ENHANCE_YOUR_CALM, "a header block is too large")
        if flags & END_HEADERS:
            self._open_block = None
            self._got_block(first_flags, number, b"".join(parts))

    def _got_block(self, flags: int, number: int, content: bytes) -> None:
        headers = self._decoded(content)
        stream = self.streams.get(number)
        if stream is None:
            return
        ends = bool(flags & END_STREAM)
        if ends:
            self._end(stream)
        stream.got_headers(headers, ends)

    def _decoded(self, content: bytes) -> Headers:
        if (headers := self._decoded_blocks.get(content)) is not None:
            return headers
        try:
            headers = cast(Headers, self._decoder.decode(content, raw=True))
        except (HPACKError, IndexError, ValueError) as error:
            raise Broken(COMPRESSION_ERROR, f"a header block can't be decoded: {error}") from None
        if self._is_stateless and len(self._decoded_blocks) < DECODED_MOST:
            self._decoded_blocks[content] = headers
        return headers

    def _end(self, stream: Stream) -> None:
        """The peer has said all. If we have not, we do not go on."""
        if stream._has_ended:
            self.streams.pop(stream.number, None)
        else:
            self.reset(stream, NO_ERROR)

    def _got_reset(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Broken(FRAME_SIZE_ERROR, "RST_STREAM has no code")
        stream = self._stream(number)
        if stream is not None:
            (code,) = _LONG.unpack(payload)
            self._forget(stream)
            stream.got_end(code, was_processed=code != REFUSED_STREAM)

    def _got_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) % 6 or (flags & ACK and payload):
            raise Broken(FRAME_SIZE_ERROR, "SETTINGS are malformed")
        if flags & ACK:
            self._is_stateless = True
            self._decoder.max_allowed_table_size = 0
            return
        for setting, value in _SETTING.iter_unpack(payload):
            self._set(setting, value)
        self._write(SETTINGS, ACK, 0, b"")
        self._pump_all()

    def _set(self, setting: int, value: int) -> None:
        if setting == INITIAL_WINDOW_SIZE:
            if value > LARGEST:
                raise Broken(FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE is too large")
            for stream in self.streams.values():
                stream._window += value - self._stream_window
                self._check_window(stream._window)
            self._stream_window = value
        elif setting == MAX_FRAME_SIZE:
            if not FRAME_MOST <= value < 1 << 24:
                raise Broken(PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE is out of range")
            self._frame_most = value
        elif setting == MAX_CONCURRENT_STREAMS:
            self.streams_most = value

    def _got_push(self, flags: int, number: int, payload: bytes) -> None:
        raise Broken(PROTOCOL_ERROR, "PUSH_PROMISE, although push is off")

    def _got_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) != 8:
            raise Broken(FRAME_SIZE_ERROR, "PING is malformed")
        if flags & ACK:
            self.pings_unanswered = 0
        else:
            self._replies += 1
            self._write(PING, ACK, 0, payload)

    def _got_goaway(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) < 8:
            raise Broken(FRAME_SIZE_ERROR, "GOAWAY is malformed")
        last, code = _TWO_LONGS.unpack_from(payload)
        self.is_leaving = True
        self.why_leaving = f"it sent GOAWAY {code} {payload[8:].decode(errors='replace')}".rstrip()
        for stream in [each for each in self.streams.values() if each.number > last & LARGEST]:
            self._forget(stream)
            stream.got_end(code, was_processed=False)

    def _got_window(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Broken(FRAME_SIZE_ERROR, "WINDOW_UPDATE is malformed")
        more = _LONG.unpack(payload)[0] & LARGEST
        if not more:
            raise Broken(PROTOCOL_ERROR, "WINDOW_UPDATE with increment 0")
        if not number:
            self._window += more
            self._check_window(self._window)
            self._pump_all()
        elif (stream := self._stream(number)) is not None:
            stream._window += more
            self._check_window(stream._window)
            if stream._unsent:
                self._pump(stream)

    def _check_window(self, window: int) -> None:
        if window > LARGEST:
            raise Broken(FLOW_CONTROL_ERROR, "a window is too large")

    def _stream(self, number: int) -> Stream | None:
        """None if it is over."""
        if not number & 1 or number >= self._next:
            raise Broken(PROTOCOL_ERROR, f"a frame for stream {number}, which was never opened")
        return self.streams.get(number)


_GOT = {
    RST_STREAM: Frames._got_reset,
    SETTINGS: Frames._got_settings,
    PUSH_PROMISE: Frames._got_push,
    PING: Frames._got_ping,
    GOAWAY: Frames._got_goaway,
    WINDOW_UPDATE: Frames._got_window,
    CONTINUATION: Frames._got_continuation,
}


def _settings() -> bytes:
    payload = b"".join(
        _SETTING.pack(*each) for each in ((HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, OUR_WINDOW))
    )
    return _FRAME.pack(0, len(payload), SETTINGS, 0, 0) + payload


def _window_update(number: int, more: int) -> bytes:
    return _FRAME.pack(0, 4, WINDOW_UPDATE, 0, number) + _LONG.pack(more)


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Broken(PROTOCOL_ERROR, "a frame has more padding than data")
    return payload[1 : len(payload) - payload[0]]
