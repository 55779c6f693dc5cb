"""What is sent is what is meant, whatever names, labels and owners are; what comes back is read, whoever wrote it."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripfast.core.ports import Broken, Claim, Granted, Hold, LockInfo, Taken
from gripfast.stores.redis import keys, protocol, scripts
from gripfast.stores.redis.scripts import Script

DAY_MS = 24 * 3600 * 1000

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
names = text.filter(bool)
labels = st.none() | text
owners = st.binary(min_size=1, max_size=150).map(protocol.to_text)
ttls = st.floats(min_value=0.01, max_value=24 * 3600.0)
channels = st.just(b"") | st.binary(min_size=32, max_size=32).map(lambda each: protocol.new_channel(each.hex()))


def parsed(packed: bytes) -> list[bytes]:
    """The one command that these bytes are."""
    reader = hiredis.Reader()
    reader.feed(packed)
    command = reader.gets()
    assert isinstance(command, list)
    assert reader.gets() is False
    assert not reader.has_data()
    return command


def call_of(script: Script, packed: bytes) -> tuple[list[bytes], list[bytes]]:
    """The keys and arguments of a script's call, which is the same by its hash and in full."""
    by_hash, in_full = parsed(packed), parsed(script.in_full(packed))
    assert by_hash[:2] == [b"EVALSHA", script.sha.encode()]
    assert in_full[:2] == [b"EVAL", script.text.encode()]
    assert by_hash[2:] == in_full[2:]
    count = int(by_hash[2])
    return by_hash[3 : 3 + count], by_hash[3 + count :]


def keys_of(name: str, *kinds: bytes) -> list[bytes]:
    return [name.encode(), *(keys.side_key(name.encode(), kind) for kind in kinds)]


# Requests -------------------------------------------------------------------------------------------------------------


@given(names, owners, ttls, labels, channels)
def test_a_claim(name: str, owner: str, ttl: float, label: str | None, channel: bytes) -> None:
    card = protocol.card(label, "höst", 7)
    packed = protocol.claim(name, Claim("unused", owner, ttl, label, None), card, channel)
    places, arguments = call_of(scripts.CLAIM, packed)
    sent_owner, ttl_ms, keep_ms, tail, sent_channel = arguments
    assert places == keys_of(name, b"token", b"line", b"places")
    assert (sent_owner, sent_channel) == (protocol.to_bytes(owner), channel)
    assert int(ttl_ms) == math.ceil(ttl * 1000)
    assert int(keep_ms) == int(ttl_ms) + DAY_MS
    assert tail == b" " + card + b"\n" + sent_owner
    assert json.loads(card) == {"label": label, "host": "höst", "pid": 7}
    assert b"\n" not in card


@given(names, owners, ttls, st.booleans())
def test_a_renewal(name: str, owner: str, ttl: float, shortens: bool) -> None:
    places, arguments = call_of(scripts.RENEW, protocol.renew(name, Hold("unused", owner, ttl, shortens)))
    ttl_ms = math.ceil(ttl * 1000)
    assert places == keys_of(name, b"token")
    assert arguments[0] == protocol.to_bytes(owner)
    assert [int(each) for each in arguments[1:]] == [ttl_ms, ttl_ms + DAY_MS, shortens]


@given(names, owners)
def test_the_requests_of_an_owner(name: str, owner: str) -> None:
    hold, by_owner = Hold("unused", owner, 30.0), [protocol.to_bytes(owner)]
    settling = keys_of(name, b"token", b"line", b"places")
    assert call_of(scripts.RELEASE, protocol.release(name, hold)) == (settling, by_owner)
    assert call_of(scripts.ABANDON, protocol.abandon(name, owner)) == (settling, by_owner)
    assert call_of(scripts.WHY, protocol.why(name, hold)) == (keys_of(name, b"broken", b"note"), by_owner)


@given(names, text)
def test_the_requests_of_an_operator(name: str, note: str) -> None:
    settling = keys_of(name, b"token", b"line", b"places")
    breaking = [*settling, *keys_of(name, b"broken", b"note")[1:]]
    assert call_of(scripts.INSPECT, protocol.inspect(name)) == (settling, [])
    assert call_of(scripts.FORCE_RELEASE, protocol.force_release(name)) == (breaking, [b""])
    assert call_of(scripts.FORCE_RELEASE, protocol.force_release(name, note)) == (breaking, [note.encode()])


def test_why_with_what_the_operator_wrote() -> None:
    assert protocol.read_why(b"broken") == "broken"
    assert protocol.read_why(b"broken\ndeploy\nof v2") == Broken("deploy\nof v2")
    assert protocol.read_why(b"broken\n\xff") == Broken("\ufffd")


@given(text)
def test_a_scan_finds_the_prefix_itself_and_takes_nothing_in_it_for_a_pattern(prefix: str) -> None:
    command, cursor, _, pattern, _, count = parsed(protocol.scan(prefix, "17"))
    assert (command, cursor, int(count)) == (b"SCAN", b"17", protocol.PAGE)
    assert pattern[-1:] == b"*"
    assert matched_by(pattern[:-1]) == prefix.encode()


def matched_by(pattern: bytes) -> bytes:
    """The only text that a pattern matches in which every special character is quoted."""
    found, rest = b"", pattern
    while rest:
        is_quoted = rest[:1] == b"\\"
        assert is_quoted or rest[:1] not in b"*?[]^-"
        found, rest = found + rest[is_quoted : is_quoted + 1], rest[is_quoted + 1 :]
    return found


def test_a_subscription() -> None:
    assert parsed(protocol.subscribe(protocol.new_channel("0f"))) == [b"SUBSCRIBE", b"gripfast:0f"]


# Answers --------------------------------------------------------------------------------------------------------------

OURS = b'1794700000123456 {"host": "h", "pid": 7, "label": "nightly"}\nmine'


def test_what_our_own_holder_has_left_is_read() -> None:
    assert protocol.read_info("job", [b"mine", 1500, OURS, 3]) == LockInfo(
        name="job",
        owner="mine",
        token=1794700000123456,
        label="nightly",
        host="h",
        pid=7,
        since=datetime.fromtimestamp(1794700000.123456, UTC),
        expires_in=1.5,
        waiters=3,
    )


def test_a_token_from_the_future_has_a_date_of_its_own() -> None:
    info = protocol.read_info("job", [b"mine", 1500, OURS.replace(b" ", b"@1794600000000000 ", 1), 0])
    assert info is not None
    assert (info.token, info.since) == (1794700000123456, datetime.fromtimestamp(1794600000, UTC))


@given(
    value=st.binary(max_size=60).filter(lambda value: value != b"mine"),
    fence=st.sampled_from([None, OURS]),
    left=st.integers(-1, 10**9),
)
def test_a_foreign_holder_is_whoever_it_says(value: bytes, fence: bytes | None, left: int) -> None:
    info = protocol.read_info("job", [value, left, fence, 0])
    assert info is not None
    assert (info.token, info.label, info.host, info.pid, info.since) == (0, None, "", 0, None)
    assert info.expires_in == (left / 1000 if left >= 0 else math.inf)
    assert info.owner == value.decode(errors="backslashreplace")


@pytest.mark.parametrize("fence", [None, OURS])
def test_nobody_holds_what_is_not_there(fence: bytes | None) -> None:
    assert protocol.read_info("job", [None, -2, fence, 4]) is None


@given(owners, st.integers(1, 2**53), ttls, labels)
def test_what_a_claim_leaves_is_read_as_it_was_meant(owner: str, token: int, ttl: float, label: str | None) -> None:
    claim = Claim("job", owner, ttl, label, None)
    packed = protocol.claim("lock:job", claim, protocol.card(label, "h", 7), b"")
    _, [sent_owner, _, _, tail, _] = call_of(scripts.CLAIM, packed)
    taken = protocol.read_claim([sent_owner, 1000, b"%d%b" % (token, tail), 0, None], claim, None)
    assert isinstance(taken, Taken)
    assert taken.holder is not None
    assert (taken.token, taken.holder.token, taken.holder.label) == (token, token, label)
    assert protocol.read_claim(token, claim, None) == Granted(token, ttl)


def test_a_refusal_without_any_grant_before_it_has_no_token() -> None:
    taken = protocol.read_claim([b"someone", -1, None, 0, None], Claim("job", "mine", 30.0, None, None), None)
    assert isinstance(taken, Taken)
    assert taken.token == 0


@pytest.mark.parametrize(("hears", "source"), [(1, b"gripfast:0f"), (0, b"")])
def test_only_a_channel_that_the_server_knows_is_one_that_its_pushes_come_from(hears: int, source: bytes) -> None:
    reply = [b"someone", -1, None, 0, hears]
    taken = protocol.read_claim(reply, Claim("job", "mine", 30.0, None, None), b"gripfast:0f")
    assert isinstance(taken, Taken)
    assert taken.source == source


@given(owners, st.integers(1, 2**53), st.integers(1, 10_000))
def test_a_push_is_read_whatever_the_owner_is(owner: str, token: int, ttl_ms: int) -> None:
    message = b"%b %d %d" % (protocol.to_bytes(owner), token, ttl_ms)
    push = protocol.read_push([b"message", b"gripfast:0f", message])
    assert push == protocol.Push(owner, Granted(token, ttl_ms / 1000, source=b"gripfast:0f"))


@pytest.mark.parametrize("reply", [[b"subscribe", b"gripfast:0f", 1], None, b"PONG", hiredis.ReplyError("ERR")])
def test_what_is_no_message_is_no_push(reply: Any) -> None:
    assert protocol.read_push(reply) is None


@given(st.binary(max_size=60))
def test_owners_survive_the_way_to_the_server_and_back(owner: bytes) -> None:
    assert protocol.to_bytes(protocol.to_text(owner)) == owner


@pytest.mark.parametrize(
    ("info", "policy"),
    [
        (b"maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", "allkeys-lru"),
        (b"used_memory:1\r\n", ""),
        (hiredis.ReplyError("NOPERM"), ""),
        (None, ""),
    ],
)
def test_what_a_full_server_does_is_read_if_it_tells(info: Any, policy: str) -> None:
    assert protocol.read_policy(info) == policy


def test_only_noscript_means_that_a_script_was_forgotten() -> None:
    assert protocol.forgot_script(hiredis.ReplyError("NOSCRIPT No matching script."))
    assert not protocol.forgot_script(hiredis.ReplyError("ERR NOSCRIPT"))
    assert not protocol.forgot_script(b"NOSCRIPT")
