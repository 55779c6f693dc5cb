"""Five nodes of the benchmarks' own, each a Redis on a free port of this machine."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.redis import server
from bench.redis.wire import Wire
from bench.scenario import Sample

NODES = 5
MAJORITY = NODES // 2 + 1
NODE_TIMEOUT = 0.05
"""Seconds: what Gripfast gives each node unless told."""
SCHEME = "redlock://"


@contextmanager
def five_nodes(folder: Path, settings: Sequence[str] = ()) -> Iterator[str]:
    """A URL with all of them. They run on the cores that the caller may use, and are stopped at the end."""
    with ExitStack() as stack:
        urls = []
        for number in range(NODES):
            own = folder / f"node-{number}"
            own.mkdir()
            urls.append(stack.enter_context(server.redis_server(own, settings)))
        yield SCHEME + ",".join(urlsplit(url).netloc for url in urls)


def node_urls(url: str) -> list[str]:
    """Of each node of that URL, as a Redis client wants it."""
    return [f"redis://{address}/0" for address in url.removeprefix(SCHEME).split(",")]


@contextmanager
def wires(url: str) -> Iterator[list[Wire]]:
    """A connection to each node."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Wire(each))) for each in node_urls(url)]


@contextmanager
def stopped(url: str, count: int) -> Iterator[None]:
    """The first so many nodes do not answer meanwhile: connections stay open, and new ones are still accepted."""
    with wires(url) as all_nodes:
        silent = all_nodes[:count]
        pids = [_pid(wire) for wire in silent]
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        for wire in silent:
            # Whatever was sent meanwhile is done before this is answered, or soon after.
            wire.ask(b"PING")


def _pid(wire: Wire) -> int:
    found = re.search(r"^process_id:(\d+)", wire.text("INFO", "server"), re.MULTILINE)
    if found is None:
        raise LookupError("the server does not tell its process")
    return int(found[1])


@contextmanager
def counters(url: str) -> Iterator[Callable[[], Sample]]:
    """What one server's `counters` tell, of all nodes together."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(server.counters(each)) for each in node_urls(url)]

        def counted() -> Sample:
            told = [node() for node in nodes]
            return {what: sum(each[what] for each in told) for what in told[0]}

        yield counted


@contextmanager
def script_calls(url: str) -> Iterator[Callable[[], int]]:
    """How many scripts the nodes were asked to run so far, all together."""
    with wires(url) as nodes:
        yield lambda: sum(_script_calls(node) for node in nodes)


def _script_calls(wire: Wire) -> int:
    told = wire.text("INFO", "commandstats")
    return sum(int(calls) for calls in re.findall(r"^cmdstat_(?:eval|evalsha|fcall):calls=(\d+)", told, re.MULTILINE))
