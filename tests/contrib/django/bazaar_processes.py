"""The project of `project/` in processes of its own: `manage.py`, and gunicorn's workers."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

PROJECT = Path(__file__).parent / "project"
PATIENCE = 120.0
"""Seconds: what only a hang reaches, on the busiest machine."""

Database = dict[str, Any]


def database_of(url: str, **options: object) -> Database:
    """What a database's URL is in DATABASES."""
    parts = urlsplit(url)
    engine = {"postgresql": "django.db.backends.postgresql", "mysql": "django.db.backends.mysql"}[parts.scheme]
    login = {"USER": unquote(parts.username or ""), "PASSWORD": unquote(parts.password or "")}
    address = {"HOST": parts.hostname, "PORT": str(parts.port), "NAME": parts.path.strip("/")}
    return {"ENGINE": engine, **login, **address, **options}


def sqlite_in(folder: Path) -> Database:
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "bazaar.sqlite3"), "OPTIONS": {"timeout": 60}}


class Bazaar:
    """One deployment of the project, without Django's own apps: it starts sooner."""

    def __init__(
        self,
        database: Database,
        locks: Mapping[str, Any] | None = None,
        more: Mapping[str, Database] | None = None,
    ) -> None:
        self.databases = {"default": database, **(more or {})}
        self.locks = locks or {"default": {"DATABASE": "default"}}

    def environ(self, **more: str) -> dict[str, str]:
        told = {"BAZAAR_DATABASES": json.dumps(self.databases), "BAZAAR_LOCKS": json.dumps(self.locks)}
        if any(each["ENGINE"].endswith("mysql") for each in self.databases.values()):
            told["BAZAAR_HAS_MARIADB"] = "1"
        plain = {"DJANGO_SETTINGS_MODULE": "bazaar.settings", "BAZAAR_IS_SMALL": "1"}
        plain |= {"PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **plain, **told, **more}

    def manage(self, *words: str, expect: int = 0, **environment: str) -> str:
        """What it prints, on either stream."""
        command = [sys.executable, "manage.py", *words]
        ended = subprocess.run(
            command,
            cwd=PROJECT,
            env=self.environ(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ended.returncode == expect, f"{words} ended with {ended.returncode}:\n{ended.stdout}"
        return ended.stdout

    def start(self, *words: str, **environment: str) -> "Process":
        return Process([sys.executable, "manage.py", *words], self.environ(**environment))


class Process:
    """One that is at work while the test goes on. Its lines, of both streams, are read as they come."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.printed = ""
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def until_it_prints(self, text: str) -> None:
        while text not in self.printed:
            self._next(f"{text!r}")

    def ended(self, expect: int = 0) -> str:
        with contextlib.suppress(EOFError):
            while True:
                self._next("its end")
        status = self._process.wait(PATIENCE)
        assert status == expect, f"it ended with {status}:\n{self.printed}"
        return self.printed

    def _next(self, wanted: str) -> None:
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"waited in vain for {wanted}; so far:\n{self.printed}") from None
        if line is None:
            if wanted != "its end":
                raise AssertionError(f"it ended before {wanted}:\n{self.printed}")
            raise EOFError
        self.printed += line

    def kill(self) -> None:
        """SIGKILL to all of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def gunicorn(bazaar: Bazaar, port: int, workers: int = 2) -> Iterator[Process]:
    words = ["-m", "gunicorn", "--workers", str(workers), "--threads", "2", "--bind", f"127.0.0.1:{port}"]
    with Process([sys.executable, *words, "--timeout", "600", "bazaar.wsgi"], bazaar.environ()) as process:
        yield process
