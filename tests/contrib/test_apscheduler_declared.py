"""What the executors refuse, what they record, and which events a scheduler sends: one process, two schedulers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from apscheduler.events import EVENT_ALL, EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger

import gripfast
from gripfast.contrib.apscheduler import EVENT_JOB_ELSEWHERE, OnceAsyncIOExecutor, OnceThreadPoolExecutor
from support.waiting import auntil, until

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)  # nobody is late yet
DAILY = {"trigger": "cron", "hour": 12, "id": "daily"}


class Process:
    """A scheduler that fires when the test says so."""

    def __init__(self, client: gripfast.Client, **options: Any) -> None:
        self.executor = OnceThreadPoolExecutor(5, client=client, **options)
        self.scheduler = BackgroundScheduler(executors={"default": self.executor}, timezone=UTC)
        self.events: list[Any] = []
        self.scheduler.add_listener(self.events.append, EVENT_ALL | EVENT_JOB_ELSEWHERE)
        self.scheduler.start(paused=True)

    def add(self, function: Callable[[], object], **options: Any) -> Any:
        return self.scheduler.add_job(function, **{**DAILY, **options})

    def fire(self, job: Any, *run_times: datetime) -> list[int]:
        """The codes of the events that come of it."""
        before = len(self.events)
        self.executor.submit_job(job, list(run_times))
        until(lambda: len(self.events) == before + len(run_times))
        return [event.code for event in self.events[before:]]


@pytest.fixture
def client() -> Iterator[gripfast.Client]:
    with gripfast.connect("memory://") as client:
        yield client


@pytest.fixture
def process(client: gripfast.Client) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def make(**options: Any) -> Process:
        made.append(Process(client, **options))
        return made[-1]

    yield make
    for each in made:
        each.scheduler.shutdown()


def test_the_second_process_is_told_that_the_first_one_did_it(process: Callable[..., Process]) -> None:
    one, two, runs = process(), process(), []
    jobs = [each.add(lambda: runs.append(1)) for each in (one, two)]
    assert one.fire(jobs[0], NOON) == [EVENT_JOB_EXECUTED]
    assert two.fire(jobs[1], NOON) == [EVENT_JOB_ELSEWHERE]
    assert two.fire(jobs[1], NOON, NOON + timedelta(days=1)) == [EVENT_JOB_ELSEWHERE, EVENT_JOB_EXECUTED]
    assert len(runs) == 2


def test_the_time_zone_of_a_process_does_not_matter(process: Callable[..., Process], client: gripfast.Client) -> None:
    one, two = process(), process()
    assert one.fire(one.add(str), NOON) == [EVENT_JOB_EXECUTED]
    elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
    assert two.fire(two.add(str), elsewhere) == [EVENT_JOB_ELSEWHERE]
    assert client.inspect("apscheduler:daily@2030-01-01T12:00:00+00:00").kept == "done"


def test_a_job_that_fails_is_not_run_by_another_process(process: Callable[..., Process]) -> None:
    one, two = process(), process()
    assert one.fire(one.add(lambda: 1 / 0), NOON) == [EVENT_JOB_ERROR]
    assert two.fire(two.add(str), NOON) == [EVENT_JOB_ELSEWHERE]


def test_a_fire_time_that_one_process_has_missed_is_left_to_the_others(process: Callable[..., Process]) -> None:
    one, two = process(), process()
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    assert one.fire(one.add(str, misfire_grace_time=1), long_ago) == [EVENT_JOB_MISSED]
    assert two.fire(two.add(str, misfire_grace_time=None), long_ago) == [EVENT_JOB_EXECUTED]


def test_braces_in_an_id_are_no_placeholders(process: Callable[..., Process], client: gripfast.Client) -> None:
    one = process()
    assert one.fire(one.add(str, id="{x}"), NOON) == [EVENT_JOB_EXECUTED]
    assert client.inspect("apscheduler:{x}@2030-01-01T12:00:00+00:00") is not None


def test_alone_skips_a_fire_time_as_max_instances_does(process: Callable[..., Process]) -> None:
    one, two = process(alone=True), process(alone=True)
    began, go = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        assert go.wait(60)

    one.executor.submit_job(one.add(slow), [NOON])
    assert began.wait(60)
    job, later = two.add(str), NOON + timedelta(days=1)
    assert two.fire(job, later) == [EVENT_JOB_MAX_INSTANCES]
    go.set()
    until(lambda: [event.code for event in one.events][-1] == EVENT_JOB_EXECUTED, within=20)
    assert two.fire(job, later) == [EVENT_JOB_EXECUTED]


def test_a_job_does_not_run_without_the_store() -> None:
    with gripfast.connect("redis://127.0.0.1:1/0?connect_patience=0.1") as nowhere:
        one, runs = Process(nowhere), []
        assert one.fire(one.add(lambda: runs.append(1)), NOON) == [EVENT_JOB_ERROR]
        one.scheduler.shutdown()
    assert isinstance(one.events[-2].exception, gripfast.StoreUnavailable)
    assert runs == []


def test_a_run_that_has_lost_its_lock_is_an_error(process: Callable[..., Process], client: gripfast.Client) -> None:
    def lose() -> None:
        name = gripfast.current_lease().name
        assert client.force_release(name)
        taken.append(client.lock(name).acquire(wait=20))

    taken: list[gripfast.Lease] = []
    one = process()
    assert one.fire(one.add(lose), NOON) == [EVENT_JOB_ERROR]
    assert isinstance(one.events[-1].exception, gripfast.LeaseLost)
    taken[0].release()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"id": None}, "has no id of its own"),
        ({"jitter": 10}, "has jitter"),
        ({"trigger": OrTrigger([CronTrigger(hour=12, jitter=10)])}, "has jitter"),
    ],
)
def test_jobs_on_which_processes_can_not_agree_are_refused(
    process: Callable[..., Process], options: dict[str, Any], told: str
) -> None:
    one = process()
    if "trigger" in options:
        job = one.scheduler.add_job(str, options["trigger"], id="x")
    else:
        job = one.add(str, **options)
    with pytest.raises(gripfast.ConfigurationError, match=told):
        one.executor.submit_job(job, [NOON])


def test_an_interval_that_counts_from_the_start_of_the_process_is_refused(process: Callable[..., Process]) -> None:
    one = process()
    job = one.scheduler.add_job(str, "interval", minutes=5, id="often")
    with pytest.raises(gripfast.ConfigurationError, match="start_date in whole seconds"):
        one.executor.submit_job(job, [job.next_run_time])
    dated = one.scheduler.add_job(str, "interval", minutes=5, id="dated", start_date=NOON)
    assert one.fire(dated, dated.next_run_time) == [EVENT_JOB_EXECUTED]


def test_a_refused_job_is_logged_by_the_scheduler_and_does_not_run(
    process: Callable[..., Process], caplog: pytest.LogCaptureFixture
) -> None:
    one, runs = process(), []
    one.scheduler.add_job(lambda: runs.append(1), "interval", seconds=0.01, id="often")
    one.scheduler.resume()
    until(lambda: "start_date in whole seconds" in caplog.text, within=20)
    assert runs == []


def test_jobs_of_a_shared_store_have_one_id_and_one_time_for_all(client: gripfast.Client, tmp_path: Path) -> None:
    one = Process(client)
    one.scheduler.add_jobstore(SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db"), "shared")
    job = one.scheduler.add_job(nothing, "interval", minutes=5, jobstore="shared")
    assert one.fire(job, job.next_run_time) == [EVENT_JOB_EXECUTED]
    one.scheduler.shutdown()


def nothing() -> None:
    """A job that a store can find by its name."""


def test_without_a_url_there_is_no_executor() -> None:
    with pytest.raises(gripfast.ConfigurationError, match="among the options of the executor"):
        OnceThreadPoolExecutor()


def test_a_store_that_can_not_do_it_is_told_at_once() -> None:
    with gripfast.connect("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3") as client:
        with pytest.raises(gripfast.ConfigurationError, match="once"):
            OnceThreadPoolExecutor(client=client)


def test_a_coroutine_that_a_shutdown_cancels_is_left_to_another_process(client: gripfast.Client) -> None:
    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    async def main() -> None:
        scheduler = AsyncIOScheduler(executors={"default": OnceAsyncIOExecutor(client=client)}, timezone=UTC)
        scheduler.start(paused=True)
        scheduler._lookup_executor("default").submit_job(scheduler.add_job(forever, **DAILY), [NOON])
        await began.wait()
        assert client.inspect(name).kept is None
        scheduler.shutdown()
        await auntil(lambda: client.inspect(name) is None, within=20)

    began, name = asyncio.Event(), "apscheduler:daily@2030-01-01T12:00:00+00:00"
    asyncio.run(main())


@pytest.mark.parametrize("alone", [False, True])
def test_a_coroutine_that_is_cancelled_because_its_lock_was_lost_says_so(client: gripfast.Client, alone: bool) -> None:
    async def lose() -> None:
        assert client.force_release(name)
        await asyncio.Event().wait()

    async def main() -> None:
        executor = OnceAsyncIOExecutor(client=client, ttl=1, alone=alone)
        scheduler = AsyncIOScheduler(executors={"default": executor}, timezone=UTC)
        scheduler.add_listener(events.append, EVENT_JOB_ERROR)
        scheduler.start(paused=True)
        executor.submit_job(scheduler.add_job(lose, **DAILY), [NOON])
        await auntil(lambda: events, within=20)
        scheduler.shutdown()

    events: list[Any] = []
    name = "apscheduler:daily@2030-01-01T12:00:00+00:00"
    asyncio.run(main())
    assert isinstance(events[0].exception, gripfast.LeaseLost)


def test_jobs_of_two_job_stores_may_have_the_same_id(process: Callable[..., Process]) -> None:
    one = process()
    one.scheduler.add_jobstore(MemoryJobStore(), "reports")
    assert one.fire(one.add(str), NOON) == [EVENT_JOB_EXECUTED]
    assert one.fire(one.add(str, jobstore="reports"), NOON) == [EVENT_JOB_EXECUTED]
