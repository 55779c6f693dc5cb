"""An application of Celery as the tests' workers load it. Broker, results and locks are in the Redis of $GRIPFAST_URL.

Each task writes down that it begins, and goes on when the test says so.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import os
from typing import Any

import redis
from celery import Celery
from celery.exceptions import Ignore

import gripfast
from gripfast.contrib.celery import LockedTask, OnceTask

URL = os.environ["GRIPFAST_URL"]
TTL = 6.0
PATIENCE = 60
QUICK = {"default_retry_delay": 1, "max_retries": None, "ttl": TTL}
"""Come back soon, and for ever."""

nowhere = gripfast.connect("redis://127.0.0.1:1/0?connect_patience=0.1")

app = Celery("contrib", broker=URL, backend=URL)
app.conf.update(worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)


def work(task: Any, number: str) -> str:
    """Which process did it."""
    with redis.Redis.from_url(URL) as data:
        data.rpush("begun", f"{number} {os.getpid()}")
        assert data.blpop([f"go:{number}"], PATIENCE), "nobody said go"
        data.rpush("ended", number)
    return str(os.getpid())


@app.task(name="plain", bind=True)
def plain(self: Any, name: str, number: str) -> str:
    return work(self, number)


@app.task(name="locked", base=LockedTask, bind=True, lock="job:{name}", **QUICK)
def locked(self: Any, name: str, number: str = "0") -> str:
    assert self.lease.held
    assert gripfast.current_lease() is self.lease
    return work(self, number)


@app.task(name="skipping", base=LockedTask, bind=True, lock="job:{name}", busy="skip")
def skipping(self: Any, name: str, number: str) -> str:
    return work(self, number)


@app.task(name="raising", base=LockedTask, bind=True, lock="job:{name}", busy="raise")
def raising(self: Any, name: str, number: str) -> str:
    return work(self, number)


@app.task(name="rejecting", base=LockedTask, bind=True, lock="job:{name}", busy="reject", acks_late=True)
def rejecting(self: Any, name: str, number: str) -> str:
    return work(self, number)


def say_who(task: Any, error: gripfast.LockTimeout) -> dict[str, Any]:
    if task.request.kwargs.get("number") == "ignored":
        raise Ignore
    return {"held by": error.holder.label, "task": task.name}


@app.task(name="asking", base=LockedTask, bind=True, lock="job:{name}", busy=say_who)
def asking(self: Any, name: str, number: str) -> str:
    return work(self, number)


@app.task(name="autoretried", base=LockedTask, lock="job", client=lambda task: nowhere, autoretry_for=[gripfast.StoreUnavailable], max_retries=1, default_retry_delay=0)  # fmt: skip # noqa: E501
def autoretried() -> None:
    raise AssertionError("it ran without its lock")


@app.task(name="ending", base=LockedTask, bind=True, lock="job:{name}", lost="end", ttl=TTL)
def ending(self: Any, name: str, number: str) -> str:
    return work(self, number)


@app.task(name="requeued", base=LockedTask, bind=True, lock="job:{name}", lost="end", acks_late=True, reject_on_worker_lost=True, **QUICK)  # fmt: skip # noqa: E501
def requeued(self: Any, name: str, number: str) -> str:
    return work(self, number)


@app.task(name="checking", base=LockedTask, bind=True, lock="job:{name}", ttl=TTL)
def checking(self: Any, name: str, number: str) -> str:
    work(self, number)
    self.lease.ensure_held()
    return "never"


@app.task(name="careless", base=LockedTask, bind=True, lock="job:{name}", ttl=TTL)
def careless(self: Any, name: str, number: str) -> str:
    return work(self, number)


@app.task(name="once", base=OnceTask, bind=True, once="invoice:{name}", keep=600, **QUICK)
def once(self: Any, name: str, number: str, fails: bool = False) -> str:
    done_by = work(self, number)
    self.lease.ensure_held()
    if fails:
        raise ValueError("no mail server")
    return done_by


@app.task(name="by_id", base=OnceTask, bind=True, keep=600, **QUICK)
def by_id(self: Any, number: str) -> str:
    return work(self, number)


@app.task(name="which", base=LockedTask, bind=True, lock="job:{name}")
def which(self: Any, name: str, number: str) -> list[Any]:
    """All of them are inside at the same time."""
    work(self, number)
    return [self.lease.name, gripfast.current_lease().name, self.request.id]
