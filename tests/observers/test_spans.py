"""A wait is a span, with a link to the holder's; a loss is a log record."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

import gripfast
from gripfast.testing.observing import Recorder
from observers.reading import OpenTelemetry
from support.colours import COLOURS, World
from support.waiting import auntil, until


@pytest.fixture
def otel() -> OpenTelemetry:
    return OpenTelemetry()


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def client(otel: OpenTelemetry, url: str) -> Iterator[gripfast.Client]:
    with gripfast.connect(url, observers=[otel.observer]) as client:
        yield client


def waits(otel: OpenTelemetry) -> list[Any]:
    return [span for span in otel.finished() if span.name.startswith("wait for")]


def test_what_is_granted_or_refused_at_once_has_no_span(otel: OpenTelemetry, client: gripfast.Client) -> None:
    with client.lock("job"):
        assert client.lock("job").try_acquire() is None
    client.close()
    assert otel.finished() == []


@pytest.mark.parametrize("colour", COLOURS)
def test_a_wait_is_a_span_of_the_caller_s_trace_with_a_link_to_the_holder_s(
    colour: str, otel: OpenTelemetry, url: str
) -> None:
    tracer = otel.tracers.get_tracer("app")

    async def play() -> None:
        world = World(url, COLOURS[colour])
        holder, waiter = world.actor(observers=[otel.observer]), world.actor(observers=[otel.observer])
        lease = await holder.does(lambda: traced(tracer, "holds", holder), then=holder._keep)
        waiting = waiter.does(lambda: traced(tracer, "waits", waiter), then=waiter._keep)
        await world.queued("job", 1)
        await holder.release(lease)
        await waiter.release(await waiting)
        await auntil(lambda: waits(otel))
        await world.close()

    def traced(tracer: Any, name: str, actor: Any) -> Any:
        if colour == "blocking":
            with tracer.start_as_current_span(name):
                return actor.client.lock("job", group="jobs").acquire(wait=10)

        async def acquire() -> Any:
            with tracer.start_as_current_span(name):
                return await actor.client.lock("job", group="jobs").acquire(wait=10)

        return acquire()

    asyncio.run(play())
    spans: dict[str, Any] = {span.name: span for span in otel.finished()}
    assert set(spans) == {"holds", "waits", "wait for jobs"}
    wait, caller = spans["wait for jobs"], spans["waits"]
    assert (wait.context.trace_id, wait.parent.span_id) == (caller.context.trace_id, caller.context.span_id)
    (link,) = wait.links
    assert (link.context.trace_id, link.context.span_id) == (
        spans["holds"].context.trace_id,
        spans["holds"].context.span_id,
    )
    assert dict(wait.attributes) == {
        "db.system.name": "memory",
        "gripfast.group": "jobs",
        "gripfast.outcome": "granted",
    }
    assert wait.start_time < wait.end_time
    assert wait.start_time >= caller.start_time - 50_000_000  # the wall clock is read twice


def test_a_wait_in_vain_is_an_error(otel: OpenTelemetry, client: gripfast.Client) -> None:
    with client.lock("job"), pytest.raises(gripfast.LockTimeout):
        client.lock("job").acquire(wait=0.02)
    (wait,) = until(lambda: waits(otel))
    assert wait.status.status_code is StatusCode.ERROR
    assert wait.attributes["error.type"] == wait.attributes["gripfast.outcome"] == "timeout"
    assert wait.parent is None
    assert wait.links == ()


def test_a_loss_is_a_log_record_in_the_trace_of_its_holder(otel: OpenTelemetry, client: gripfast.Client) -> None:
    with otel.tracers.get_tracer("app").start_as_current_span("works") as span:
        lease = client.lock("job", group="jobs", max_hold=0.02).acquire()
        trace_id = span.get_span_context().trace_id
    record: Any = until(lambda: [each.log_record for each in otel.logs.get_finished_logs()])[0]
    assert (record.event_name, record.severity_text, record.trace_id) == ("gripfast.lease.lost", "WARN", trace_id)
    assert record.body.startswith("lost 'job' after 0.0")
    assert record.attributes["error.type"] == "max_hold"
    assert not lease.held


def test_a_span_that_is_not_sampled_is_not_told(otel: OpenTelemetry, client: gripfast.Client) -> None:
    unsampled = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(0))
    with trace.use_span(trace.NonRecordingSpan(unsampled)), client.lock("job"):
        info = client.inspect("job")
    assert info is not None
    assert info.trace is None


class Tells(Recorder):
    def __init__(self, told: Any) -> None:
        super().__init__()
        self.told = told

    def traceparent(self) -> Any:
        if isinstance(self.told, Exception):
            raise self.told
        return self.told


@pytest.mark.parametrize("told", [ValueError("no trace"), 5, None])
def test_an_observer_that_tells_no_trace_costs_nothing_but_the_trace(
    told: Any, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Tells(told)
    with gripfast.connect(url, observers=[seen]) as client, client.lock("job"):
        info = client.inspect("job")
        assert info is not None
        assert info.trace is None
    assert seen.kinds("job") == ["claimed", "granted", "released"]
    raised = [each for each in caplog.records if "traceparent raised" in each.getMessage()]
    assert len(raised) == isinstance(told, Exception)
