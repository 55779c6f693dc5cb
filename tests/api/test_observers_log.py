"""What log lines say in attributes, and the observer that writes a line for each event."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from pythonjsonlogger.json import JsonFormatter

import gripfast
from gripfast.testing.observing import Recorder
from support.redis_server import RedisServer
from support.waiting import until


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def keys(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name.startswith("gripfast_")}


def records(caplog: pytest.LogCaptureFixture, logger: str, text: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == logger and text in record.getMessage()]


def test_log_lines_of_a_lease_say_in_attributes_what_they_are_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "gripfast")
    with gripfast.connect("memory://") as client:
        lease = client.lock("job", group="jobs", max_hold=0.02).acquire()
        lease.lost.wait(5)
        client.force_release("other")
    about = {"gripfast_name": "job", "gripfast_group": "jobs", "gripfast_owner": lease.owner}
    (granted,) = records(caplog, "gripfast.lease", "granted")
    assert keys(granted) == {**about, "gripfast_token": lease.token, "gripfast_reason": None}
    (lost,) = records(caplog, "gripfast.lease", "lost")
    assert keys(lost) == {**about, "gripfast_token": lease.token, "gripfast_reason": "max_hold"}
    (forced,) = records(caplog, "gripfast.client", "already free")
    assert keys(forced) == {"gripfast_name": "other"}


def test_log_lines_of_a_connection_name_the_store(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gripfast.connection")
    with gripfast.connect(server.url) as client, client.lock("job"):
        assert {keys(each)["gripfast_store"] for each in records(caplog, "gripfast.connection", "")} == {client.where}


LEVELS = {"claimed": 10, "granted": 20, "refused": 20, "renewed": 10, "lost": 30, "released": 20, "unreachable": 30}


def test_the_logging_observer_writes_a_line_for_each_event(
    seen: Recorder, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "app.locks")
    observers = [seen, gripfast.LoggingObserver("app.locks")]
    with gripfast.connect(server.url, observers=observers, request_timeout=1) as client:
        with client.lock("job", group="jobs", ttl=1.5):
            assert client.lock("job").try_acquire() is None
            until(lambda: seen.of("job", "renewed"))
        lease = client.lock("lost", max_hold=0.02).acquire()
        until(lambda: seen.of("lost", "lost"))
        server.stop()
        with pytest.raises(gripfast.StoreUnavailable):
            client.lock("job").try_acquire()
    written = [record for record in caplog.records if record.name == "app.locks"]
    assert {(keys(record)["gripfast_event"], record.levelno) for record in written} == set(LEVELS.items())
    assert [keys(record)["gripfast_event"] for record in written] == [event.kind for event in seen.events]
    lost = next(record for record in written if record.levelno == 30)
    assert lost.getMessage().startswith("lost 'lost' after ")
    assert keys(lost) == {
        "gripfast_event": "lost",
        "gripfast_name": "lost",
        "gripfast_group": None,
        "gripfast_owner": lease.owner,
        "gripfast_token": lease.token,
        "gripfast_store": client.where,
        "gripfast_engine": "redis",
        "gripfast_ttl": lease.ttl,
        "gripfast_reason": "max_hold",
        "gripfast_request": None,
        "gripfast_margin": 0.0,
        "gripfast_error": None,
        "gripfast_queued": False,
        "gripfast_trace": None,
        "gripfast_holder_trace": None,
        "gripfast_waited": keys(lost)["gripfast_waited"],
        "gripfast_held": keys(lost)["gripfast_held"],
    }


def structlog_formatter() -> logging.Formatter:
    """As structlog's own pages have it, for records of the standard library."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(),
        ],
    )


@pytest.mark.parametrize("formatter", [JsonFormatter(), structlog_formatter()], ids=["json", "structlog"])
def test_formatters_for_json_pick_up_all_fields_of_an_event(formatter: logging.Formatter, server: RedisServer) -> None:
    stream, log = io.StringIO(), logging.getLogger("app.json")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    log.propagate = False
    try:
        observers = [gripfast.LoggingObserver("app.json")]
        with gripfast.connect(server.url, observers=observers, request_timeout=1) as client:
            with client.lock("job", group="jobs", ttl=30):
                pass
            server.stop()
            with pytest.raises(gripfast.StoreUnavailable):
                client.lock("job").try_acquire()
    finally:
        log.removeHandler(handler)
    granted, _, failed = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = {"event": "granted", "name": "job", "group": "jobs", "ttl": 30.0, "queued": False, "error": None}
    assert {name: granted[f"gripfast_{name}"] for name in told} == told
    assert (failed["gripfast_request"], failed["gripfast_error"]) == ("claim", "StoreUnavailable")
