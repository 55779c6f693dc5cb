"""Visitors who connect and say nothing, say it slowly or take nothing: others are answered all the same."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from gripfast.api.rows import Holder, Row, Scan
from gripfast.serve import app, server
from serve.stage import PATIENCE, TOKEN, Stage
from support.waiting import until

SOON = 0.4
IN_TIME = 2.0
"""Seconds for something that must happen in time, on a busy machine, too."""
LARGE = 20_000_000
"""Bytes: more than systems keep of a connection that nobody reads."""


@contextmanager
def connected(stage: Stage, receives: int = 0) -> Iterator[socket.socket]:
    with socket.socket() as visitor:
        if receives:
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        visitor.settimeout(PATIENCE)
        visitor.connect(("127.0.0.1", stage.port))
        yield visitor


def head(stage: Stage, first: str, *more: str) -> bytes:
    lines = [f"{first} HTTP/1.1", f"Host: 127.0.0.1:{stage.port}", f"Authorization: Bearer {TOKEN}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def is_closed(visitor: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return visitor.recv(1000) == b""
    return True


@pytest.mark.parametrize("said", [b"", b"GET /session HTTP/1.1\r\nHost: "], ids=["nothing", "half of a head"])
def test_who_does_not_make_a_request_is_shown_out(stage: Stage, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(server, "HEAD_WITHIN", SOON)
    with connected(stage) as visitor:
        visitor.sendall(said)
        assert is_closed(visitor)


def test_nor_may_the_second_request_take_for_ever(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(stage) as visitor:
        visitor.sendall(head(stage, "GET /healthz"))
        answer = b""
        while not answer.endswith(b"ok\n"):
            answer += visitor.recv(1000)
        monkeypatch.setattr(server, "HEAD_WITHIN", SOON)
        visitor.sendall(b"GET /session HTTP/1.1\r\n")
        assert is_closed(visitor)


def test_what_a_request_says_must_arrive(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_WITHIN", SOON)
    own = (f"Origin: {stage.site.origins[0]}", "X-Gripfast: 1", "Content-Type: application/json", "Content-Length: 500")
    with connected(stage) as visitor:
        visitor.sendall(head(stage, "POST /break", *own) + b'{"kind":')
        assert visitor.recv(10_000).startswith(b"HTTP/1.1 408")


def test_a_stream_outlives_these_limits(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_WITHIN", IN_TIME)
    with stage.events() as events:
        events.until("rows")
        ends = time.monotonic() + 1.5 * IN_TIME
        while time.monotonic() < ends:
            events.next()


def test_as_many_pages_as_there_may_be_leave_room_for_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "STREAMS_MOST", 2)
    with stage.events() as first, stage.events() as second:
        first.until("rows")
        second.until("rows")
        answer = stage.get("/events")
        assert answer.status == 503
        assert "Close some" in answer.json["why"]
        assert stage.get("/session").status == 200
    until(lambda: stage.page.feed.viewers == 0, within=PATIENCE)
    with stage.events() as third:
        third.until("rows")


# Visitors who do not read ---------------------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> Iterator[Stage]:
    """A page of which everything is large."""
    holder = Holder("owner", 1, "x" * LARGE, "host", 1, datetime.now(UTC), 60.0)

    def scan(*_: object) -> Scan:
        return Scan("here", [Row("lock", "n", (holder,), 0)], time.monotonic(), datetime.now(UTC), 0.0, ())

    monkeypatch.setattr(server, "scan", scan)
    with Stage(sqlite_url, every=60.0) as stage:
        yield stage


@pytest.fixture
def viewers(large: Stage) -> Callable[[], int]:
    return lambda: large.page.feed.viewers


def test_who_takes_nothing_of_the_stream_is_shown_out(
    large: Stage, viewers: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STUCK_MOST", IN_TIME)
    with connected(large, receives=4096) as visitor:
        visitor.sendall(head(large, "GET /events"))
        until(lambda: viewers() == 1, within=PATIENCE)
        until(lambda: viewers() == 0, within=PATIENCE)


def test_who_reads_slowly_is_not(large: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STUCK_MOST", IN_TIME)
    with connected(large) as visitor:
        visitor.sendall(head(large, "GET /events"))
        read, began = 0, time.monotonic()
        while read < LARGE:  # in three times that long
            due = began + 3 * IN_TIME * read / LARGE
            until(lambda due=due: time.monotonic() >= due, within=PATIENCE)
            arrived = len(visitor.recv(500_000))
            assert arrived, read
            read += arrived
