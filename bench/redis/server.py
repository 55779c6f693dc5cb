"""A Redis of the benchmarks' own: a free port of this machine, nothing kept, stopped at the end."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench.redis.wire import Wire
from bench.scenario import Sample

UP_WITHIN = 10.0
ATTEMPTS = 5


@contextmanager
def redis_server(folder: Path, settings: Sequence[str] = ()) -> Iterator[str]:
    """Its URL. It runs on the cores that the caller may use. Settings are written as its command line has them."""
    process, url = _start(folder, settings)
    try:
        yield url
    finally:
        process.terminate()
        try:
            process.wait(UP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(folder: Path, settings: Sequence[str]) -> tuple[subprocess.Popen[bytes], str]:
    """A port that was free a moment ago may be taken by now: then another one is tried."""
    for _ in range(ATTEMPTS):
        port = _free_port()
        process = subprocess.Popen([*_command(port, folder), *settings], stdin=subprocess.DEVNULL)
        if _is_up(process, port):
            return process, f"redis://127.0.0.1:{port}/0"
    raise RuntimeError(f"redis-server did not start; its log is in {folder / 'redis.log'}")


def _command(port: int, folder: Path) -> list[str]:
    settings = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    files = ["--dir", str(folder), "--logfile", str(folder / "redis.log")]
    return ["redis-server", "--port", str(port), *settings, *files]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_up(process: subprocess.Popen[bytes], port: int) -> bool:
    """False when it gave up; a server that neither answers nor ends is stopped."""
    deadline = time.monotonic() + UP_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        if _answers(port):
            # Someone else may listen there, and ours be about to say so.
            return process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    return False


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16) == b"+PONG\r\n"
    except OSError:
        return False


@contextmanager
def counters(url: str) -> Iterator[Callable[[], Sample]]:
    """How many commands the server has carried out so far, those inside of scripts included, and how often it read."""
    with closing(Wire(url)) as wire:
        yield lambda: {what: _statistic(wire, f"total_{what}_processed") for what in ("commands", "reads")}


def connections(wire: Wire) -> int:
    """How many clients the server has, this one included."""
    return len(wire.text("CLIENT", "LIST").splitlines())


def _statistic(wire: Wire, field: str) -> float:
    found = re.search(rf"^{field}:(.+)$", wire.text("INFO", "stats"), re.MULTILINE)
    if found is None:
        raise LookupError(f"the server does not tell {field}")
    return float(found[1])


def version() -> str:
    """Of the server that would be started; empty where there is none."""
    try:
        told = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    found = re.search(r"v=(\S+)", told)
    return found[1] if found else ""
