"""Executors for APScheduler 3: each fire time of a job runs in one process, although every process has a scheduler.

A job does not know which fire time it runs for; an executor does. So the executor claims `client.once()` for the job's
id and the fire time, in UTC, before it runs the job. Schedulers agree on that name only if the fire time comes from the
calendar, not from the moment at which a process was started: what can't agree is refused, not run in each process.

| what happens | what is recorded | event |
|---|---|---|
| The job returns, or raises an Exception. | done: no other process runs this fire time | executed, or error |
| The job is cancelled by a shutdown. | nothing: another process may run it | error |
| The fire time is too long ago for this process. | nothing | missed |
| Another process has run it, or runs it now. | | EVENT_JOB_ELSEWHERE |
| `alone`, and an earlier run still runs. | nothing | max instances |
| The store can't be reached, or the lease was lost. | nothing that is certain | error |
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

from gripfast import Client, ConfigurationError, LockTimeout
from gripfast.contrib.clients import client_at
from gripfast.extras import how_to_install

try:
    from apscheduler.events import (
        EVENT_JOB_ERROR,
        EVENT_JOB_MAX_INSTANCES,
        EVENT_JOB_MISSED,
        JobExecutionEvent,
        JobSubmissionEvent,
    )
    from apscheduler.executors.asyncio import AsyncIOExecutor
    from apscheduler.executors.base import BaseExecutor, run_coroutine_job, run_job
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.jobstores.memory import MemoryJobStore
    from apscheduler.util import iscoroutinefunction_partial
except ImportError as error:
    raise ImportError(
        f"these executors need APScheduler 3.11 or a later 3.x: {how_to_install('apscheduler')}"
    ) from error

__all__ = ["EVENT_JOB_ELSEWHERE", "OnceAsyncIOExecutor", "OnceThreadPoolExecutor"]

EVENT_JOB_ELSEWHERE = 2**24
"""Another process runs this fire time, or has run it. It is not part of EVENT_ALL: other listeners do not count it."""

SETTING = "url='redis://…' among the options of the executor"
HOUR = 3600.0
_RANDOM_ID = re.compile("[0-9a-f]{32}")

Fire = Callable[[], Any]
Events = list[Any]


class NotRecorded(Exception):
    """Leaves the block of `once()`, so that another process may run this fire time."""

    def __init__(self, events: Events) -> None:
        super().__init__()
        self.events = events


class FireTimes:
    """Who runs which fire time: the settings of both executors, and what they do with a fire time."""

    def __init__(
        self,
        url: str | None = None,
        client: Client | None = None,
        keep: float = HOUR,
        wait: float | None = 0.0,
        ttl: float | None = None,
        alone: bool = False,
        prefix: str = "apscheduler:",
    ) -> None:
        """What these are is told once, in the executors."""
        self._client = client_at(url, SETTING) if client is None else client
        self._keep = float(keep)
        self._ttl = ttl
        self._wait = wait
        self._alone = alone
        self._prefix = prefix
        self._client.once("apscheduler", keep=self._keep)  # a store that can't do it is told here

    def check(self, job: Any, run_times: Sequence[datetime], jobstore: object) -> None:
        """A shared job store has one id and one fire time for all of its schedulers."""
        if not isinstance(jobstore, MemoryJobStore):
            return
        if _RANDOM_ID.fullmatch(job.id):
            raise ConfigurationError(
                f"job {job.name!r} has no id of its own, so each process makes up another one, and would run it: write "
                "add_job(…, id='nightly')"
            )
        if _has_jitter(job.trigger):
            raise ConfigurationError(
                f"job {job.id!r} has jitter, so its fire times differ from process to process, and each would run it: "
                "leave the jitter out"
            )
        if any(run_time.microsecond for run_time in run_times):
            raise ConfigurationError(
                f"job {job.id!r} fires at {run_times[-1]}, a time that depends on when this process started, so each "
                "process would run it: use a cron trigger, give the interval a start_date in whole seconds, or leave "
                "next_run_time out"
            )

    def run(self, job: Any, run_times: Sequence[datetime], logger_name: str) -> Events:
        """Each of them; the events that the scheduler is to send."""
        events: Events = []
        for run_time in run_times:
            turn = Turn(job, run_time, logger_name)
            try:
                events += turn.outcome(self._claimed(turn, turn.fire)())
            except BaseException as error:
                events += turn.failure(error)
        return events

    async def run_async(self, job: Any, run_times: Sequence[datetime], logger_name: str) -> Events:
        """The same for a coroutine function."""
        events: Events = []
        for run_time in run_times:
            turn = Turn(job, run_time, logger_name)
            try:
                events += turn.outcome(await self._claimed(turn, turn.fire_async)())
            except BaseException as error:
                events += turn.failure(error)
        return events

    def _claimed(self, turn: Turn, fire: Callable[[], Events] | Callable[[], Awaitable[Events]]) -> Fire:
        """The call returns None if the fire time belongs to another process."""
        name = self._prefix + _full_id(turn.job)
        template = name.replace("{", "{{").replace("}", "}}")
        if self._alone:
            fire = self._client.locked(template, ttl=self._ttl, wait=0, busy=turn.still_running, group=name)(fire)
        once = self._client.once(
            f"{template}@{turn.moment}", keep=self._kept(turn.job), wait=self._wait, ttl=self._ttl, group=name
        )
        return once(fire)

    def _kept(self, job: Any) -> float:
        """As long as a process may be late, and then for `keep` seconds."""
        return self._keep + float(job.misfire_grace_time or 0)


class Turn:
    """One fire time of a job, in this process."""

    def __init__(self, job: Any, run_time: datetime, logger_name: str) -> None:
        self.job = job
        self.moment = run_time.astimezone(UTC).isoformat()
        self._run_time = run_time
        self._log = logging.getLogger(logger_name)
        self._interrupted: Events | None = None

    def fire(self) -> Events:
        return self._recorded(run_job(self.job, self.job._jobstore_alias, [self._run_time], self._log.name))

    async def fire_async(self) -> Events:
        ended = await run_coroutine_job(self.job, self.job._jobstore_alias, [self._run_time], self._log.name)
        return self._recorded(ended)

    def _recorded(self, events: Events) -> Events:
        """A job that was not run, or was interrupted, is not done. APScheduler makes an event of everything. Only the
        block of the lease knows whether its loss was what cancelled the job, so it gets the interrupt itself."""
        for event in events:
            if event.code == EVENT_JOB_MISSED:
                raise NotRecorded(events)
            if event.code == EVENT_JOB_ERROR and not isinstance(event.exception, Exception):
                self._interrupted = events
                raise event.exception
        return events

    def still_running(self, error: LockTimeout) -> NoReturn:
        self._log.warning('Run time of job "%s" is skipped, because an earlier run has not ended: %s', self.job, error)
        raise NotRecorded(
            [JobSubmissionEvent(EVENT_JOB_MAX_INSTANCES, self.job.id, self.job._jobstore_alias, [self._run_time])]
        )

    def outcome(self, events: Events | None) -> Events:
        if events is not None:
            return events
        self._log.info('Job "%s" (scheduled at %s) runs, or has run, in another process', self.job, self._run_time)
        return [self._event(EVENT_JOB_ELSEWHERE)]

    def failure(self, error: BaseException) -> Events:
        if isinstance(error, NotRecorded):
            return error.events
        if not isinstance(error, Exception):
            if self._interrupted is None:  # before the job began
                raise error
            return self._interrupted
        self._log.error(
            'Job "%s" (scheduled at %s) did not get its lock, or lost it: %s', self.job, self._run_time, error
        )
        told = "".join(traceback.format_tb(error.__traceback__))
        return [self._event(EVENT_JOB_ERROR, exception=error, traceback=told)]

    def _event(self, code: int, **more: Any) -> Any:
        return JobExecutionEvent(code, self.job.id, self.job._jobstore_alias, self._run_time, **more)


class _EachOnce(BaseExecutor):  # type: ignore[misc] # APScheduler has no types
    """Checks a job before it is submitted. What raises here is logged by the scheduler, and the job does not run."""

    _fire_times: FireTimes

    def submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        self._fire_times.check(job, run_times, self._scheduler._lookup_jobstore(job._jobstore_alias))
        super().submit_job(job, run_times)

    def _end(self, job: Any, result: Callable[[], Events]) -> None:
        try:
            events = result()
        except BaseException:
            self._run_job_error(job.id, *sys.exc_info()[1:])
        else:
            self._run_job_success(job.id, events)


class OnceThreadPoolExecutor(_EachOnce, ThreadPoolExecutor):  # type: ignore[misc] # APScheduler has no types
    """APScheduler's ThreadPoolExecutor; each fire time runs in one process.

    - `url`: the store of the locks, or `client`: a Client that you have. Otherwise $GRIPFAST_URL.
    - `keep`: seconds for which it is remembered that a fire time was run, in addition to `misfire_grace_time`. Longer
      than clocks may differ.
    - `wait`: seconds to wait for a process that runs the same fire time now. If it dies, this one runs the job.
    - `ttl`: seconds after which the lock of a killed process is free.
    - `alone`: a fire time is skipped while an earlier run of the job still runs, in whichever process.
    - `prefix`: what the names of the locks begin with. Another application with the same job ids needs another one.
    """

    def __init__(self, max_workers: int = 10, pool_kwargs: Any = None, **options: Any) -> None:
        super().__init__(max_workers, pool_kwargs)
        self._fire_times = FireTimes(**options)

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        future = self._pool.submit(self._fire_times.run, job, run_times, self._logger.name)
        future.add_done_callback(lambda ended: self._end(job, ended.result))


class OnceAsyncIOExecutor(_EachOnce, AsyncIOExecutor):  # type: ignore[misc] # APScheduler has no types
    """APScheduler's AsyncIOExecutor, with the options of OnceThreadPoolExecutor. Plain functions run on threads."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._fire_times = FireTimes(**options)

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        if iscoroutinefunction_partial(job.func):
            coroutine = self._fire_times.run_async(job, run_times, self._logger.name)
            future = self._eventloop.create_task(coroutine)
        else:
            run = self._fire_times.run
            future = self._eventloop.run_in_executor(None, run, job, run_times, self._logger.name)
        self._pending_futures.add(future)
        future.add_done_callback(lambda ended: self._ended(job, ended))

    def _ended(self, job: Any, future: Any) -> None:
        self._pending_futures.discard(future)
        self._end(job, future.result)


def _full_id(job: Any) -> str:
    """Two job stores of a scheduler may have the same id."""
    return str(job.id if job._jobstore_alias == "default" else f"{job._jobstore_alias}/{job.id}")


def _has_jitter(trigger: Any) -> bool:
    """Triggers may be combined from others."""
    return bool(getattr(trigger, "jitter", None)) or any(map(_has_jitter, getattr(trigger, "triggers", ())))
