"""A server of the benchmarks' own: started on a free port of this machine, stopped at the end, whatever happens."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HOST = "127.0.0.1"
UP_WITHIN = 30.0
DOWN_WITHIN = 20.0
ATTEMPTS = 5

Command = Callable[[int], list[str]]
"""From a port to the command line of a server that listens there."""

IsReady = Callable[[int, str], bool]
"""Whether a server is up, by its port and by what it has printed so far."""


@contextmanager
def running(
    command: Command, log: Path, is_ready: IsReady, goodbye: signal.Signals, user: str | None = None
) -> Iterator[int]:
    """The port on which it listens. It runs on the cores that the caller may use."""
    process, port = _start(command, log, is_ready, user)
    try:
        yield port
    finally:
        process.send_signal(goodbye)
        try:
            process.wait(DOWN_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(command: Command, log: Path, is_ready: IsReady, user: str | None) -> tuple[subprocess.Popen[bytes], int]:
    """A port that was free a moment ago may be taken by now: then another one is tried."""
    for _ in range(ATTEMPTS):
        port = free_port()
        with log.open("wb") as told:
            process = subprocess.Popen(
                command(port),
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )
        if _is_up(process, port, log, is_ready):
            return process, port
    raise RuntimeError(f"the server did not start:\n{told_in(log)[-2000:]}")


def _is_up(process: subprocess.Popen[bytes], port: int, log: Path, is_ready: IsReady) -> bool:
    """False when it gave up; a server that neither gets ready nor ends is stopped."""
    deadline = time.monotonic() + UP_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        if is_ready(port, told_in(log)):
            # Someone else may listen there, and ours be about to say so.
            return process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    return False


def told_in(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def version_told(command: Sequence[str], pattern: str) -> str:
    """What a program says of its version; empty where it is not installed."""
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    found = re.search(pattern, told)
    return found[1] if found else ""
