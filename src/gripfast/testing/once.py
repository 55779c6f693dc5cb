"""A set-up that all workers of one test run share: made by one of them, cleaned up after the last.

The workers meet in a folder of the run: an embedded store has the locks, and a file has each result. `client.once()`
decides who makes a result. If that worker dies, the store sees it, and another worker begins.

*The end.* Each worker holds a lock of its own while it lives, `worker:…`. A worker that knows how to clean up waits at
its end for the locks of all others, so nobody cleans up before the last worker is at its end, and nobody waits for a
dead one. Nobody comes in while somebody cleans up (`door`): a worker that replaces a dead one finds either a whole
result, or none, and then makes it anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import gripfast
from gripfast.errors import ConfigurationError
from gripfast.testing import outsiders

T = TypeVar("T")

KEEP = 30 * 86400.0
"""Seconds: longer than a test run."""

WORKER = "worker:"


class OncePerRun:
    """`once_per_run(name, make)` returns what `make()` has returned, in whichever worker that was.

    `folder` is shared by all workers of the run, and by nobody else. `worker` tells them apart.
    """

    def __init__(self, folder: str | os.PathLike[str], worker: str = "main") -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._client = gripfast.connect(f"sqlite:///{self._folder}/locks.db")
        outsiders.known.add(self._client)
        self._cleanups: dict[str, Callable[[Any], object]] = {}
        with self._client.lock("door"):
            self._present = self._client.lock(f"{WORKER}{worker}:{os.getpid()}").acquire()

    def __call__(self, name: str, make: Callable[[], T], *, cleanup: Callable[[T], object] | None = None) -> T:
        """What `make()` returns must be something that JSON has: a URL, the name of a database, a dict of them.

        One worker calls `make()`; the others wait for it. If that fails, or if the worker dies in the middle, another
        one calls it, so `make()` may find what a dead worker has left. `cleanup(result)` is called once, at the end of
        the run, by one of the workers that have passed it.
        """
        if cleanup is not None:
            self._cleanups[name] = cleanup
        with self._client.once(f"made:{name}", keep=KEEP, wait=None) as run:
            if run:
                self._write(name, make())
        result: T = json.loads(self._file(name).read_text("utf-8"))
        return result

    def close(self) -> None:
        """This worker is at its end. Clean up, if it is the last of those who can."""
        try:
            self._present.release()
            while self._cleanups and not self._is_cleaned_up():
                self._await_another()
        finally:
            self._client.close()

    def _is_cleaned_up(self) -> bool:
        """False if another worker is still there."""
        with self._client.lock("door"):
            if next(self._client.list(WORKER), None) is not None:
                return False
            self._clean_up_all()
        return True

    def _clean_up_all(self) -> None:
        """The last one first, and each of them, whatever the others raise."""
        if self._cleanups:
            try:
                self._clean_up(*self._cleanups.popitem())
            finally:
                self._clean_up_all()

    def _clean_up(self, name: str, cleanup: Callable[[Any], object]) -> None:
        """If nobody has done it. It is forgotten first: what was cleaned up by halves is nobody's result."""
        if self._client.forget(f"made:{name}"):
            cleanup(json.loads(self._file(name).read_text("utf-8")))

    def _await_another(self) -> None:
        """By its lock: it is free when the worker has ended, or died."""
        for info in self._client.list(WORKER):
            self._client.lock(info.name).acquire().release()

    def _write(self, name: str, result: object) -> None:
        """Whole, or not at all."""
        path = self._file(name)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(_dumped(name, result), "utf-8")
        new.replace(path)

    def _file(self, name: str) -> Path:
        """Names have characters that files can't have."""
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"


def _dumped(name: str, result: object) -> str:
    try:
        text = json.dumps(result)
    except (TypeError, ValueError):
        text = ""
    if not text or json.loads(text) != result:
        raise ConfigurationError(
            f"the result of {name!r} can't be passed to other workers: JSON can't hold this {type(result).__name__}. "
            "Return a URL or a name, and connect in each worker"
        )
    return text
