"""The conversation with one member: which reply belongs to which call, and what may have had an effect. No socket, no
clock, no thread.

A driver gives it the bytes that come (`receive`) and sends those that it makes (`to_send`); it keeps the time, and says
so when a call's is over (`expire`). Each rule stands here once:

1. *Order.* Calls are answered in any order: each is a stream of its own, and stream numbers are never used twice. So
   the answer to a call that was given up is dropped, and never taken for another's.
2. *What has left.* A call is not written before the driver takes what is to be sent. One that is given up before that
   never leaves, and needs no clean-up (`Call.is_sent`). Nor does one that waits because the member allows no more
   calls at once.
3. *Giving up* sends RST_STREAM: the member stops working on it, unless it has already proposed it.
4. *Not processed.* What a member names in GOAWAY or refuses by REFUSED_STREAM has had no effect, and may be repeated
   elsewhere. Everything else that was sent when the connection ends may have had one.
5. *Leaving.* A connection is left after GOAWAY, when its stream numbers have run out, or when the driver has found its
   member wanting (`leave`). No new call is made on it, those under way go on, and when the last has ended it is over.
   Its watches are lost at once: their waiters have to watch elsewhere.
6. *Interrupts.* If one comes between what is read or written and the note of it, nothing is known any more: the driver
   ends the connection (`end`), and everyone is told.
7. *Silence.* If a call's time is over, and no frame at all has come since it left, the connection is left (`expire`):
   something in between may have forgotten it, and then a new one works. A short time tells nothing (`SILENT`). For
   watches, which may be quiet for hours, the member is asked: PING, and not too often, or it says GOAWAY (`ping`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Protocol

from gripfast.stores.etcd import faults
from gripfast.stores.etcd.codec import Malformed
from gripfast.stores.etcd.frames import CANCEL, Broken, Frames, Headers, Stream, block
from gripfast.stores.etcd.messages import WATCH, Request, WatchCancel, WatchCreate
from gripfast.stores.etcd.watches import Watch, Watches
from gripfast.stores.faults import Fault

MESSAGE_MOST = 16 << 20
"""Bytes of one message that we take."""
SILENT = 0.2
"""Seconds."""
_PREFIX = Struct(">BL")


class Taker(Protocol):
    """Who is told what a call ends with: a future, or what looks like one."""

    def done(self) -> bool: ...

    def set_result(self, answer: Any, /) -> None: ...


@lru_cache(maxsize=256)
def header_block(path: str, authority: str, token: str, scheme: str, with_leader: bool) -> bytes:
    headers = [
        (":method", "POST"), (":scheme", scheme), (":path", path), (":authority", authority),
        ("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "gripfast"),
    ]  # fmt: skip
    if with_leader:
        headers.append(("hasleader", "true"))
    if token:
        headers.append(("token", token))
    return block(headers)


def framed(message: bytes) -> bytes:
    return _PREFIX.pack(0, len(message)) + message


class Grpc(Stream):
    """A stream of messages, with a status at its end."""

    __slots__ = ("_body", "_is_answer", "conversation")

    def __init__(self, conversation: Conversation) -> None:
        super().__init__()
        self.conversation = conversation
        self._body = b""
        self._is_answer = False

    def got_message(self, message: bytes) -> None:
        raise NotImplementedError

    def ended(self, answer: Any) -> None:
        """With a Refusal or Fault; or None, with status 0."""
        raise NotImplementedError

    def got_headers(self, headers: Headers, ends: bool) -> None:
        found = dict(headers)
        status = found.get(b"grpc-status")
        if not self._is_answer:
            self._is_answer = True
            if found.get(b":status") != b"200":
                self._nonsense(f"HTTP status {found.get(b':status', b'none').decode(errors='replace')}")
                return
        if ends or status is not None:
            self._got_status(status, found.get(b"grpc-message", b""))

    def _got_status(self, status: bytes | None, message: bytes) -> None:
        if self._body or status is None or not status.isdigit():
            self._nonsense("a truncated message" if self._body else "no status")
        elif status == b"0":
            self._over(None)
        else:
            self._over(faults.judged(self.conversation.where, int(status), _unquoted(message)))

    def got_data(self, data: bytes, ends: bool) -> None:
        body = self._body + data if self._body else data
        try:
            while len(body) >= 5:
                flag, size = _PREFIX.unpack_from(body)
                if flag or size > MESSAGE_MOST:
                    raise Malformed(f"a message of {size} bytes" if not flag else "a compressed message")
                if len(body) < 5 + size:
                    break
                self.got_message(body[5 : 5 + size])
                body = body[5 + size :]
        except Malformed as error:
            self._nonsense(str(error))
            return
        self._body = body
        if ends:
            self._nonsense("no status")

    def got_end(self, code: int, was_processed: bool) -> None:
        conversation = self.conversation
        where, why = conversation.where, conversation.frames.why_leaving
        if was_processed:
            self._over(faults.cut(where, f"it ended the stream with code {code}"))
        else:
            self._over(faults.not_processed(where, why or "it takes no more requests on this connection"))

    def _nonsense(self, what: str) -> None:
        self._over(faults.not_understood(self.conversation.where, what))

    def _over(self, answer: Any) -> None:
        self._body = b""
        self.conversation.frames.reset(self)  # unless it is over
        self.ended(answer)


class Call(Grpc):
    """One request, one response."""

    __slots__ = ("_message", "_response", "headers", "is_over", "is_sent", "received_before", "request", "taker")

    def __init__(self, conversation: Conversation, request: Request[Any], headers: bytes, taker: Taker) -> None:
        super().__init__(conversation)
        self.request = request
        self.headers = headers
        self.taker = taker
        self.is_sent = False
        self.is_over = False
        self.received_before = 0
        self._response: Any = None

    def got_message(self, message: bytes) -> None:
        if self._response is not None:
            raise Malformed("two messages in one answer")
        self._response = self.request.rpc.read(message)
        if self.request.rpc.is_stream:
            self._over(None)

    def ended(self, answer: Any) -> None:
        if answer is None and self._response is None:
            answer = faults.not_understood(self.conversation.where, "no message")
        self.conversation.tell(self, self._response if answer is None else answer)


class WatchStream(Grpc):
    __slots__ = ()

    def got_message(self, message: bytes) -> None:
        conversation = self.conversation
        if not conversation.watches.got(WATCH.read(message)):
            conversation.when_refused(conversation)

    def ended(self, answer: Any) -> None:
        self.conversation.lose_watches(answer)


class Conversation:
    def __init__(self, where: str, authority: str, scheme: str = "http") -> None:
        """`where`: the member, in messages."""
        self.where = where
        self.authority = authority
        self.scheme = scheme
        self.frames = Frames()
        self.watches = Watches()
        self.is_open = True
        """Something may come, or leave."""
        self.is_left = False
        """By the driver."""
        self.when_refused: Callable[[Conversation], None] = lambda _: None
        """Told when a watch was."""
        self._calls: dict[Call, None] = {}
        self._waiting: dict[Call, None] = {}
        self._watching: WatchStream | None = None
        self._watch_headers = b""
        self._watch_requests: list[WatchCreate | WatchCancel] = []

    # -- calls -----------------------------------------------------------------------------------------------------

    @property
    def takes_calls(self) -> bool:
        return self.is_open and not self.is_left and self.frames.can_open

    @property
    def calls_open(self) -> int:
        return len(self._calls)

    @property
    def calls_waiting(self) -> int:
        """Those that have not left."""
        return len(self._waiting)

    def call(self, request: Request[Any], taker: Taker, token: str = "", with_leader: bool = True) -> Call:
        headers = header_block(request.rpc.path, self.authority, token, self.scheme, with_leader)
        call = Call(self, request, headers, taker)
        if self.takes_calls:
            self._calls[call] = self._waiting[call] = None
        else:
            self.tell(call, faults.cut(self.where, None, was_sent=False))
        return call

    def expire(self, call: Call, seconds: float) -> None:
        """Its time is over: so many seconds."""
        if call.is_over:
            return
        if seconds >= SILENT and call.is_sent and self.frames.received == call.received_before:
            self.leave()
        self.cancel(call, faults.not_answered(self.where, seconds, call.is_sent))

    def cancel(self, call: Call, answer: Any = None) -> None:
        """Nobody waits for it any more; or this is what it ends with."""
        if call.is_over:
            return
        self._waiting.pop(call, None)
        if call.is_sent:
            self.frames.reset(call, CANCEL)
        self.tell(call, answer)

    def tell(self, call: Call, answer: Any) -> None:
        if call.is_over:
            return
        call.is_over = True
        self._calls.pop(call, None)
        if not call.taker.done():
            call.taker.set_result(answer)

    # -- watches ---------------------------------------------------------------------------------------------------

    def watch(self, watch: Watch, key: bytes, range_end: bytes, revision: int, puts: bool, token: str = "") -> None:
        """Whether it can, `takes_calls` says."""
        if self._watching is None:
            self._watching = WatchStream(self)
            self._watch_headers = header_block(WATCH.path, self.authority, token, self.scheme, True)
        self._watch_requests.append(self.watches.add(watch, key, range_end, revision, puts))

    def lose_watches(self, why: Fault | Any = None) -> None:
        """The next one begins a new stream."""
        stream, self._watching = self._watching, None
        self._watch_requests = []
        if stream is not None:
            self.frames.reset(stream)
        watches, self.watches = self.watches, Watches()
        watches.lose_all(getattr(why, "message", None) or str(getattr(why, "error", "")))

    def ping(self) -> bool:
        """False if the last one was not answered."""
        if self.frames.pings_unanswered:
            return False
        self.frames.ping()
        return True

    # -- bytes -----------------------------------------------------------------------------------------------------

    def to_send(self) -> bytes:
        """What is to be sent now. It counts as sent."""
        if self._waiting:
            self._send_calls()
        if self._watch_requests or self.watches.has_cancels:
            self._send_watches()
        return self.frames.take()

    @property
    def has_output(self) -> bool:
        return self.is_urgent or self.frames.has_output

    @property
    def is_urgent(self) -> bool:
        """There is something to send that can't wait for the next request."""
        return bool(
            (self._waiting and self.frames.has_room)
            or self._watch_requests
            or self.watches.has_cancels
            or self.frames.is_urgent
        )

    def _send_calls(self) -> None:
        frames = self.frames
        for call in list(self._waiting):
            if not frames.has_room:
                return
            if not frames.can_open:
                self.cancel(
                    call,
                    faults.not_processed(self.where, frames.why_leaving or "this connection has no stream ids left"),
                )
                continue
            call.is_sent, call.received_before = True, frames.received
            del self._waiting[call]
            rpc = call.request.rpc
            frames.open(call, call.headers, framed(rpc.write(call.request)), ends=True)

    def _send_watches(self) -> None:
        stream = self._watching
        requests = [*self._watch_requests, *self.watches.cancels()]
        self._watch_requests = []
        if stream is None or not requests:
            return
        data = b"".join([framed(WATCH.write(each)) for each in requests])
        if stream.number:
            self.frames.send(stream, data)
        elif self.frames.can_open:
            self.frames.open(stream, self._watch_headers, data, ends=False)
        else:
            self.lose_watches()

    def receive(self, data: bytes) -> None:
        """Whoever waits for what is in it is told."""
        try:
            self.frames.receive(data)
        except Broken as error:
            self.end(faults.not_understood(self.where, str(error)))
            return
        if not self.frames.can_open and not self.is_left:
            self.leave()

    # -- the end ---------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        self.is_left = True
        for call in list(self._waiting):
            self.cancel(
                call, faults.not_processed(self.where, self.frames.why_leaving or "this connection was given up")
            )
        self.lose_watches()

    @property
    def is_over(self) -> bool:
        """It can be closed."""
        return not self.is_open or (not self._calls and not self.takes_calls)

    def end(self, fault: Fault | None = None) -> None:
        """Nothing comes any more. Everyone is told; each is taken out when it was, because an interrupt may come."""
        self.is_open = False
        fault = fault or faults.cut(self.where, None)
        for call in list(self._calls):
            self._waiting.pop(call, None)
            self.tell(call, fault.copy()._replace(was_sent=call.is_sent))
        self.lose_watches(fault)


def _unquoted(message: bytes) -> str:
    """grpc-message is percent-encoded."""
    if b"%" not in message:
        return message.decode(errors="replace")
    from urllib.parse import unquote_to_bytes

    return unquote_to_bytes(message).decode(errors="replace")
