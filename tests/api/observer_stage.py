"""Observers for tests, and a look at their thread and their log."""

from __future__ import annotations

import threading

import pytest

import gripfast

THREAD = "gripfast-observers"
WHOLE = ["claimed", "granted", "released"]


class Blocks(gripfast.Observer):
    """Does not return before it is told to."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.is_busy = threading.Event()

    def claimed(self, event: gripfast.Event) -> None:
        self.is_busy.set()
        self.over.wait(60.0)


class Raises(gripfast.Observer):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def granted(self, event: gripfast.Event) -> None:
        raise self.error

    released = granted


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "gripfast.observer"]
