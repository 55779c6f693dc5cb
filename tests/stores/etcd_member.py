"""A conversation with a member of etcd that does what a test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamReset
from h2.settings import SettingCodes

from gripfast.stores.etcd import frames as f
from gripfast.stores.etcd.codec import sized, tag, varint
from gripfast.stores.etcd.conversation import Call, Conversation, framed
from gripfast.stores.etcd.link import Notice
from gripfast.stores.etcd.messages import PutRequest
from gripfast.stores.etcd.watches import Watch

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
