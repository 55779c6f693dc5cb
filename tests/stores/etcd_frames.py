"""Our side of HTTP/2, and `h2`'s as a server at its other end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    StreamEnded,
)
from h2.settings import SettingCodes

from gripfast.stores.etcd import frames as f
from gripfast.stores.etcd.frames import Frames, Headers, Stream, block

HEADERS = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "x")]
BLOCK = block(HEADERS)
ANSWER = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TRAILERS = [(b"grpc-status", b"0"), (b"grpc-message", b"")]


def frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return f._FRAME.pack(len(payload) >> 8, len(payload) & 255, kind, flags, number) + payload


class Told(Stream):
    """Keeps what it is told."""

    __slots__ = ("told",)

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def got_headers(self, headers: Headers, ends: bool) -> None:
        self.told.append(("headers", [(bytes(name), bytes(value)) for name, value in headers]))
        self._note(ends)

    def got_data(self, data: bytes, ends: bool) -> None:
        if data:
            self.told.append(("data", data))
        self._note(ends)

    def got_end(self, code: int, was_processed: bool) -> None:
        self.told.append(("reset", code, was_processed))

    def _note(self, ends: bool) -> None:
        if ends:
            self.told.append(("end",))

    @property
    def data(self) -> bytes:
        return b"".join(each[1] for each in self.told if each[0] == "data")


class Pair:
    """Our side, and h2's as a server. Bytes go in pieces of these sizes."""

    def __init__(self, sizes: Iterable[int] = (1 << 20,), **settings: int) -> None:
        self.ours = Frames()
        self.server = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.server.initiate_connection()
        self.server.update_settings({SettingCodes[name.upper()]: value for name, value in settings.items()})
        self.events: list[Any] = []
        self._sizes = itertools.cycle(sizes)

    def move(self) -> None:
        """Until nobody has anything to say."""
        while self._to_server() | self._to_us():
            pass

    def _to_server(self) -> bool:
        data = self.ours.take()
        for piece in self._pieces(data):
            self.events += self.server.receive_data(piece)
        return bool(data)

    def _to_us(self) -> bool:
        data = self.server.data_to_send()
        for piece in self._pieces(data):
            self.ours.receive(piece)
        return bool(data)

    def _pieces(self, data: bytes) -> Iterable[bytes]:
        at = 0
        while at < len(data):
            size = next(self._sizes)
            yield data[at : at + size]
            at += size

    def open(self, data: bytes = b"", ends: bool = True, headers: bytes = BLOCK) -> Told:
        stream = Told()
        self.ours.open(stream, headers, data, ends)
        return stream

    def received(self, stream: int) -> bytes:
        data = (each for each in self.events if isinstance(each, DataReceived))
        return b"".join(each.data for each in data if each.stream_id == stream)

    def ended(self, stream: int) -> bool:
        return any(isinstance(each, StreamEnded) and each.stream_id == stream for each in self.events)

    def answer(self, number: int, data: bytes = b"answer") -> None:
        self.server.send_headers(number, ANSWER)
        self.send(number, data)
        self.server.send_headers(number, TRAILERS, end_stream=True)

    def send(self, number: int, data: bytes) -> None:
        """As the windows allow: each time it is our turn to open them."""
        while data:
            room = min(self.server.local_flow_control_window(number), self.server.max_outbound_frame_size)
            assert room > 0, "our window stays closed"
            self.server.send_data(number, data[:room])
            data = data[room:]
            self.move()
