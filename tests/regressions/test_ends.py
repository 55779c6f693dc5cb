"""What comes behind the end of a thread that works off a queue: nobody may wait for it for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import gripfast
from gripfast import runtime, stores
from gripfast.runtime import blocking
from gripfast.runtime.blocking import drive
from gripfast.stores.local_aio import Worker
from support.switching import at_every_opcode
from support.waiting import until

HUNG = 20.0
"""Seconds; what must end, ends within a few."""


def in_time(action: Callable[[], object]) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HUNG)
    assert not thread.is_alive(), "it hangs"
    assert raised == []


def ask_blocking(worker: Worker) -> str:
    return drive(worker.call_blocking(lambda: "done"))


def ask_in_a_loop(worker: Worker) -> str:
    return asyncio.run(worker.call(lambda: "done"))


@pytest.mark.parametrize("ask", [ask_blocking, ask_in_a_loop])
def test_a_request_beside_the_end_of_its_worker_is_answered_or_refused(ask: Callable[[Worker], str]) -> None:
    answers: list[str] = []

    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        worker = Worker("test-worker", patience=5.0)

        def action() -> None:
            try:
                answers.append(ask(worker))
            except gripfast.ClientClosed:
                answers.append("closed")

        return action, worker.stop

    in_time(lambda: list(at_every_opcode(Path(stores.__file__).parent, begin)))
    assert set(answers) == {"done", "closed"}


def test_an_extension_beside_the_end_of_the_watchdog_is_made_or_the_lease_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watchdog does not see what is put behind its end; its last work ends every lease, so nobody waits for it."""
    monkeypatch.setattr(blocking, "LOOK_AT_LEAST", 0.01)
    answers: list[str] = []

    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        client = gripfast.connect("memory://")
        lease = client.lock("job", ttl=600).acquire()

        def action() -> None:
            try:
                lease.extend()
                answers.append("extended")
            except gripfast.LeaseLost as error:
                answers.append(error.reason)

        return action, client.close

    in_time(lambda: list(at_every_opcode(Path(runtime.__file__).parent, begin)))
    assert set(answers) <= {"extended", "released"}


def test_a_lease_dropped_beside_the_end_of_the_watchdog_is_given_back() -> None:
    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        client = gripfast.connect("memory://ends")
        leases = [client.lock("job", ttl=600).acquire(wait=5)]
        return client.close, leases.clear

    with gripfast.connect("memory://ends") as another:
        for _ in at_every_opcode(Path(runtime.__file__).parent, begin):
            until(lambda: another.inspect("job") is None)
