"""The workers of `gripfast verify`: sync and asyncio, with the same notes."""

import asyncio
import json
import threading
from collections import Counter
from pathlib import Path

import pytest

import gripfast
from gripfast.core import rules
from gripfast_lab.sim.checks import violations
from gripfast_lab.verify.crew import Crew
from gripfast_lab.verify.journal import Reader
from gripfast_lab.verify.run import recovers_within
from gripfast_lab.verify.worker import RWLOCK, SEMAPHORE, Order, Worker, work_async, work_at_once
from support.waiting import until

ENOUGH = 20


def order(folder: Path, is_async: bool = False) -> Order:
    url = f"sqlite:///{folder}/locks.db"
    return Order(url, "", 2.0, 5.0, "seed", str(folder), "w0001", (SEMAPHORE, RWLOCK), is_async=is_async)


def work(given: Order, stop: threading.Event) -> None:
    if given.is_async:
        asyncio.run(work_async(given, stop, {}))
    else:
        with gripfast.connect(given.url) as client:
            work_at_once(Worker(given, client, stop))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_worker_notes_what_it_acquires_and_releases(tmp_path: Path, is_async: bool) -> None:
    reader, stop = Reader(tmp_path / "journal"), threading.Event()
    thread = threading.Thread(target=work, args=(order(tmp_path, is_async), stop))
    thread.start()
    try:
        until(lambda: reader.grants("w0001") >= ENOUGH or not thread.is_alive(), within=60.0)
    finally:
        stop.set()
        thread.join()
    events = reader.events()
    reader.close()
    kinds = Counter(event.kind for event in events)
    assert kinds["granted"] == kinds["released"] + kinds["lost"] >= ENOUGH, kinds
    assert violations(events) == []


def test_every_second_worker_is_on_asyncio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Crew, "_say", staticmethod(lambda _, line: said.append(line)))
    crew = Crew(order(tmp_path))
    try:
        crew.start(4)
    finally:
        crew.close()
    told = [Order.of_json(line) for line in said]
    assert [(each.who, each.is_async) for each in told] == [
        ("w0000", False),
        ("w0001", True),
        ("w0002", False),
        ("w0003", True),
    ]
    assert json.loads(said[0])["kinds"] == [SEMAPHORE, RWLOCK]


@pytest.mark.parametrize("ttl", [0.5, 2.0, 30.0])
def test_there_is_time_to_forget_a_dead_waiter_and_then_the_lease_that_it_got(ttl: float) -> None:
    assert recovers_within(ttl, request_timeout=5.0) > rules.WAITER_WINDOW + ttl + 5.0
