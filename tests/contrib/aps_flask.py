"""A Flask application with a scheduler, configured as its documentation says, by settings alone."""

from __future__ import annotations

import os
import threading

import redis
from flask import Flask
from flask_apscheduler import APScheduler

data = redis.Redis.from_url(os.environ["GRIPFAST_URL"])


def job() -> None:
    data.rpush("run", os.getpid())


class Config:
    SCHEDULER_EXECUTORS = {  # noqa: RUF012 # as a user writes it
        "default": {"class": "gripfast.contrib.apscheduler:OnceThreadPoolExecutor", "max_workers": 5, "keep": 60}
    }
    SCHEDULER_JOB_DEFAULTS = {"misfire_grace_time": 60, "coalesce": False, "max_instances": 100}  # noqa: RUF012
    JOBS = [{"id": "job", "func": "aps_flask:job", "trigger": "cron", "second": "*"}]  # noqa: RUF012


if __name__ == "__main__":
    from apscheduler.events import EVENT_JOB_EXECUTED

    app = Flask(__name__)
    app.config.from_object(Config())
    scheduler = APScheduler()
    scheduler.init_app(app)
    scheduler.add_listener(lambda event: data.rpush("executed", str(event.scheduled_run_time)), EVENT_JOB_EXECUTED)
    scheduler.start()
    data.rpush("started", os.getpid())
    threading.Event().wait()
