"""`client.lock("x", wait=5)`. What it does over each store: `gripfast.testing.conformance`."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import gripfast
from gripfast.compat import asyncio, threading

DEFAULT_CLIENTS = """
import asyncio, gripfast
async def refused():
    await gripfast.async_lock("job", wait=0.01).acquire()
for attempt in (gripfast.lock("job", wait=0.01).acquire, lambda: asyncio.run(refused())):
    with gripfast.lock("job", wait=None):
        try:
            attempt()
        except gripfast.LockTimeout as busy:
            print(busy.name)
"""


@pytest.mark.parametrize(
    "function",
    [gripfast.Lock.acquire, gripfast.Lock.within, gripfast.AsyncLock.acquire, gripfast.AsyncLock.within],
    ids=lambda function: function.__qualname__,
)
def test_signatures_say_whose_wait_counts(function: Callable[..., Any]) -> None:
    assert "wait: 'float | None' = <the lock's wait>" in str(inspect.signature(function))


def test_the_default_clients_take_it() -> None:
    command, environment = [sys.executable, "-c", DEFAULT_CLIENTS], {**os.environ, "GRIPFAST_URL": "memory://waits"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "job\njob\n"


def test_locks_in_the_shape_of_others_do_not_take_it() -> None:
    """Theirs never time out where they have no argument for it."""
    settings: dict[str, Any] = {"wait": 5}
    with gripfast.connect("memory://") as client:
        for kind in (threading.Lock, threading.RLock):
            with pytest.raises(TypeError, match="wait"):
                kind(client, "job", **settings)
    with pytest.raises(TypeError, match="wait"):
        asyncio.Lock(gripfast.connect_async("memory://"), "job", **settings)
