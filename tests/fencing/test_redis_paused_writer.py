"""A worked example with a real pause: a process is stopped between reading and writing until its lease is over.

The lock did nothing wrong: the next one in line got it when its holder was silent for a whole ttl. The stopped process
goes on in the middle of its work, and its write arrives late.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import gripfast
from gripfast.fencing import write
from support.processes import Worker
from support.redis_server import shared_server

WRITER = str(Path(__file__).with_name("redis_writer.py"))


@pytest.fixture
def data() -> Iterator["redis.Redis"]:
    with shared_server().client() as client:
        yield client


@pytest.fixture
def name(data: "redis.Redis") -> Iterator[str]:
    """Of a lock and of the counter that it protects."""
    name = f"counter:{uuid.uuid4().hex}"
    yield name
    data.delete(name, f"fence:{name}")


def run_past_a_stopped_writer(data: "redis.Redis", name: str, how: str) -> list[str]:
    """What the stopped writer says at last. Meanwhile this process has added one, too, under the lock and fenced."""
    url = shared_server().url
    with Worker(WRITER, url, name, how) as writer, gripfast.connect(url) as client:
        assert writer.expect("read") == ["0"]
        writer.stop()
        with client.lock(name).acquire(wait=20) as lease:
            value = int(data.get(name) or 0)
            write(data, name, lease.token, ("SET", name, value + 1))
        writer.go_on()
        writer.say("write")
        said = writer.line().split(" ")
        assert writer.ended() == 0, writer.errors
        return said


def test_without_a_fence_the_update_is_lost(data: "redis.Redis", name: str) -> None:
    assert run_past_a_stopped_writer(data, name, "bare") == ["written"]
    assert data.get(name) == b"1"


def test_with_a_fence_the_late_write_is_refused(data: "redis.Redis", name: str) -> None:
    assert run_past_a_stopped_writer(data, name, "fenced") == ["refused", "True", "True"]
    assert data.get(name) == b"1"


def test_the_refused_writer_may_start_over(data: "redis.Redis", name: str) -> None:
    run_past_a_stopped_writer(data, name, "fenced")
    with Worker(WRITER, shared_server().url, name, "fenced") as writer:
        assert writer.expect("read") == ["1"]
        writer.say("write")
        assert writer.expect("written") == []
        assert writer.ended() == 0, writer.errors
    assert data.get(name) == b"2"
