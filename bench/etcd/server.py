"""An etcd of the benchmarks' own: one member on a free port of this machine, stopped and forgotten at the end."""

from __future__ import annotations

import re
import signal
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.scenario import Sample
from bench.serving import HOST, free_port, running, version_told

IN_MEMORY = Path("/dev/shm")
REQUESTS = "requests"
_RECEIVED = re.compile(r'^grpc_server_msg_received_total\{.*grpc_service="etcdserverpb\..*\} (\S+)$', re.MULTILINE)


@contextmanager
def etcd_server(folder: Path, data: Path | None = None) -> Iterator[str]:
    """Its URL. It runs on the cores that the caller may use. What it has answered is on disk."""

    def command(port: int) -> list[str]:
        client, peer = f"http://{HOST}:{port}", f"http://{HOST}:{free_port()}"
        return [
            "etcd", "--name=bench", f"--data-dir={data or folder / 'data'}",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=bench={peer}",
        ]  # fmt: skip

    with running(command, folder / "etcd.log", serves, signal.SIGTERM) as port:
        yield f"etcd://{HOST}:{port}"


@contextmanager
def hasty_server(folder: Path) -> Iterator[str]:
    """It waits for no disk, where the system can do without: what that costs is the same for all, and would hide what
    differs."""
    with tempfile.TemporaryDirectory(prefix="gripfast-bench-", dir=IN_MEMORY if IN_MEMORY.is_dir() else folder) as data:
        with etcd_server(folder, Path(data) / "data") as url:
            yield url


def serves(port: int, told: str) -> bool:
    return bool(re.search(rf"serving (\w+ )?client (requests|traffic)[^\n]*{HOST}:{port}", told))


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or HOST, parts.port or 2379


def told(url: str, what: str) -> str:
    """What the server answers to plain HTTP."""
    with urllib.request.urlopen(f"http://{urlsplit(url).netloc}/{what}", timeout=5) as answer:
        return str(answer.read(), "utf-8")


@contextmanager
def counters(url: str) -> Iterator[Callable[[], Sample]]:
    """How many requests the server has received so far; those of its JSON gateway are among them."""
    yield lambda: {REQUESTS: sum(map(float, _RECEIVED.findall(told(url, "metrics"))))}


def version() -> str:
    """Of the server that would be started; empty where there is none."""
    return version_told(["etcd", "--version"], r"etcd Version: (\S+)")
