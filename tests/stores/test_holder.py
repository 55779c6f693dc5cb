"""Whoever can write to an engine can write what it tells about holders: nothing of that may be more than words."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gripfast.core.ports import LockInfo
from gripfast.errors import LockTimeout, describe_holder
from gripfast.stores import holder
from gripfast.stores.granting import Now, Row
from gripfast.stores.protocol import lock_info as local_info
from gripfast.stores.redis import protocol as redis_protocol
from gripfast.stores.sql import protocol as sql_protocol
from gripfast.stores.zookeeper import protocol as zookeeper_protocol

thorough = settings(max_examples=150)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
fields = st.fixed_dictionaries(
    {}, optional={name: values | st.just("text") for name in ("host", "pid", "label", "ttl", "processes")}
)
processes = st.lists(st.lists(st.text(max_size=3) | st.integers(), min_size=5, max_size=5), max_size=2)
near_misses = st.builds(lambda found: json.dumps({"host": "h", "label": None, "processes": found}), processes)
NASTY = ["", "null", "[", "[" * 100_000, '{"host": ' * 50_000, '{"pid": 1' + "0" * 5000 + "}", '{"host": 5}', "\ud800"]
texts = st.sampled_from(NASTY) | st.text() | st.builds(json.dumps, fields) | near_misses
moments = st.integers(-(2**70), 2**70)


def assert_shown(info: LockInfo | None) -> None:
    """It has the types that it promises, and is told on one line."""
    assert info is not None
    assert isinstance(info.host, str)
    assert isinstance(info.label, str | None)
    assert type(info.pid) is int
    assert type(info.token) is int
    assert isinstance(info.expires_in, int | float)
    assert str(LockTimeout("job", 1.0, info)).isprintable()


def as_bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape" if not any("\ud800" <= each < "\udc80" for each in text) else "replace")


@thorough
@given(texts, moments)
def test_whatever_stands_in_the_details_of_the_stores_on_this_machine(text: str, since_us: int) -> None:
    row = Row(5, "owner", 30.0, 60.0, since_us, text, "")
    assert_shown(local_info("job", row, 0, Now(1.0, 1, holder.is_gone)))
    holder.vouched_for(text, 1)


@thorough
@given(texts, moments)
def test_whatever_stands_in_a_row_of_a_database(text: str, since_us: int) -> None:
    assert_shown(sql_protocol.lock_info("job", sql_protocol.Held("owner", 5, 1.0, 30.0, since_us, text)))


@thorough
@given(texts | st.binary().map(lambda data: data.decode("latin-1")), st.integers(-(2**63), 2**63 - 1))
def test_whatever_stands_in_a_node_of_zookeeper(text: str, ctime: int) -> None:
    stat = SimpleNamespace(czxid=5, ctime=ctime)
    assert_shown(zookeeper_protocol.lock_info("job", "owner", (as_bytes(text), stat), 0))


heads = (
    st.sampled_from([b"", b"5", b"99999999999999999999", b"5@99999999999999999999", b"-1", b"x", b"5@"]) | st.binary()
)
ends = st.sampled_from([b"", b"\nowner", b"\n", b"\nother"])


@thorough
@given(heads, st.sampled_from([b" ", b""]), texts, ends, st.integers(-2, 10**15))
def test_whatever_stands_in_a_side_key_of_redis(head: bytes, gap: bytes, text: str, end: bytes, left: int) -> None:
    fence = head + gap + as_bytes(text) + end
    assert_shown(redis_protocol.read_info("job", [b"owner", left, fence, 0]))
    assert redis_protocol.last_token(fence) >= 0


def test_what_proper_details_say_is_told() -> None:
    fence = b'7@9 {"host": "here", "pid": 3, "label": "night"}\nowner'
    info = redis_protocol.read_info("job", [b"owner", 1000, fence, 0])
    assert info is not None
    assert (info.token, info.host, info.pid, info.label) == (7, "here", 3, "night")


def info_of(**said: Any) -> LockInfo:
    known = holder.read_moment(0) if said.pop("is_ours", True) else None
    return LockInfo(**{
        "name": "job", "owner": "o", "token": 1, "label": None, "host": "h", "pid": 1, "since": known,
        "expires_in": math.inf, "waiters": 0, **said,
    })  # fmt: skip


FORGED = "x\n2026-11-15 21:00:00,000 INFO root logged in\x1b]0;owned\x07\x1b[2K\x9b\u202e\u2028"


@pytest.mark.parametrize("said", [{"label": FORGED}, {"host": FORGED}, {"owner": FORGED, "is_ours": False}])
def test_no_text_of_another_s_forges_a_line_or_steers_a_terminal(said: dict[str, Any]) -> None:
    told = describe_holder(info_of(**said))
    assert told.isprintable()
    assert "x\\n2026-11-15" in told


def test_a_long_text_of_another_s_does_not_fill_the_message() -> None:
    assert len(describe_holder(info_of(owner="\x1b" * 1_000_000, is_ours=False))) < 1000


@pytest.mark.parametrize(
    ("owner", "seconds", "told"),
    [
        ("done:o", 604800.0, "as once() has recorded; the record ends in 7d 00h"),
        ("o", 86400.0, "expires in 1d 00h unless renewed"),
        ("o", 29.98, "expires in 30 s unless renewed"),
    ],
)
def test_a_long_time_is_told_in_days_and_hours(owner: str, seconds: float, told: str) -> None:
    assert told in describe_holder(info_of(owner=owner, expires_in=seconds))
