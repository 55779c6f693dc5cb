"""A scheduler as a process of its own: the job of $MODE fires every second. It tells $GRIPFAST_URL what happens."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import redis
from apscheduler.events import EVENT_ALL, EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

import gripfast
from gripfast.contrib.apscheduler import EVENT_JOB_ELSEWHERE, OnceAsyncIOExecutor, OnceThreadPoolExecutor

MODE = os.environ["MODE"]
data = redis.Redis.from_url(os.environ["GRIPFAST_URL"])
DEFAULTS = {"misfire_grace_time": None, "coalesce": False, "max_instances": 100}
KINDS = {EVENT_JOB_EXECUTED: "executed", EVENT_JOB_ELSEWHERE: "elsewhere", EVENT_JOB_ERROR: "error"}


def write_down(event: Any) -> None:
    if event.code in KINDS:
        data.rpush(KINDS[event.code], event.scheduled_run_time.isoformat())


def quick() -> None:
    data.rpush("run", os.getpid())


async def quick_async() -> None:
    assert gripfast.current_lease().held
    quick()


def slow() -> None:
    """Until the test says go, which then counts for all runs."""
    data.incr("runs")
    if data.blpop(["go"], 120):
        data.rpush("go", "go")


def executor() -> Any:
    match MODE:
        case "plain":
            return ThreadPoolExecutor(20)
        case "asyncio":
            return OnceAsyncIOExecutor()
        case "slow":
            return OnceThreadPoolExecutor(200, wait=None, ttl=5)
        case "alone":
            return OnceThreadPoolExecutor(20, alone=True)
    return OnceThreadPoolExecutor(20)


def schedule(scheduler: Any) -> None:
    job = {"asyncio": quick_async, "slow": slow, "alone": slow}.get(MODE, quick)
    scheduler.add_listener(write_down, EVENT_ALL | EVENT_JOB_ELSEWHERE)
    scheduler.add_job(job, "cron", second="*", id="job")
    scheduler.start()
    data.rpush("started", os.getpid())


async def main() -> None:
    schedule(AsyncIOScheduler(executors={"default": executor()}, job_defaults=DEFAULTS))
    await asyncio.Event().wait()


if MODE == "asyncio":
    asyncio.run(main())
else:
    schedule(BackgroundScheduler(executors={"default": executor()}, job_defaults=DEFAULTS))
    threading.Event().wait()
