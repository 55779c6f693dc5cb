"""`python -m bench.path [--against PATH]`: how long the way of an uncontended acquire and release is.

For each store, sync and async: how many calls within Gripfast the pair makes, and how often a call is in another file
than the call before it. A reader who follows the code makes as many steps.

Counted by `sys.setprofile`: each entry of a frame, and so each resumption of a coroutine. Only the calling thread is
counted, on a client that has done the same pair before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import gripfast
from bench.against import ROOT, environment
from bench.etcd.server import etcd_server
from bench.redis.server import redis_server
from bench.sql.servers import maria_server, postgres_server
from bench.zookeeper.server import zookeeper_server

PACKAGE = str(Path(gripfast.__file__).parent)
WARM_UP = 30


class Length(NamedTuple):
    calls: int
    changes: int
    """Of file, from one call to the next."""


Lengths = Mapping[str, Length]


@contextmanager
def _memory(_: Path) -> Iterator[str]:
    yield "memory://"


@contextmanager
def _embedded(folder: Path) -> Iterator[str]:
    yield f"sqlite:///{folder}/locks.db"


STORES = {
    "memory": _memory,
    "embedded": _embedded,
    "redis": redis_server,
    "postgres": postgres_server,
    "mysql": maria_server,
    "zookeeper": zookeeper_server,
    "etcd": etcd_server,
}


def measured(words: Iterable[str]) -> Iterator[tuple[str, Length]]:
    for store, server in STORES.items():
        if any(word in store for word in words) and is_known(store):
            with tempfile.TemporaryDirectory(prefix="gripfast-bench-") as folder, server(Path(folder)) as url:
                yield store, length(sync_pair(url))
                yield f"{store}, asyncio", length(asyncio.run(async_pair(url)))


def is_known(store: str) -> bool:
    """An older tree may not have it."""
    return find_spec(f"gripfast.stores.{'sqlite' if store == 'embedded' else store}") is not None


def sync_pair(url: str) -> list[str]:
    """The files of the calls, in their order."""
    with gripfast.connect(url) as client:
        lock = client.lock("bench")
        for _ in range(WARM_UP):
            lock.acquire().release()
        with _noting() as files:
            lock.acquire().release()
        return files


async def async_pair(url: str) -> list[str]:
    async with gripfast.connect_async(url) as client:
        lock = client.lock("bench")
        for _ in range(WARM_UP):
            await (await lock.acquire()).release()
        with _noting() as files:
            await (await lock.acquire()).release()
        return files


def length(files: list[str]) -> Length:
    return Length(len(files), sum(before != after for before, after in pairwise(files)))


@contextmanager
def _noting() -> Iterator[list[str]]:
    files: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            files.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


def table(now: Lengths, before: Lengths) -> Iterator[str]:
    yield _row("", ("calls", "changes"), ("before", "changes") if before else None, "")
    for name, own in now.items():
        old = before.get(name)
        yield _row(name, own, old or (("", "") if before else None), f"   {own.calls / old.calls:.0%}" if old else "")


def _row(name: str, now: Sequence[object], before: Sequence[object] | None, share: str) -> str:
    return f"{name:22}" + "".join(f"{cell!s:>9}" for cell in (*(before or ()), *now)) + share


def in_tree(tree: Path, words: Sequence[str]) -> Lengths:
    command = [sys.executable, "-m", "bench.path", "--json", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment(tree), stdout=subprocess.PIPE, check=True)
    return {name: Length(*found) for name, found in json.loads(done.stdout).items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.path", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="STORE", help="part of a store's name; all without any")
    parser.add_argument("--against", type=Path, metavar="PATH", help="another checkout, counted as well")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    words = options.words or [""]
    now = dict(measured(words))
    if options.json:
        print(json.dumps(now))
        return
    before = in_tree(options.against.resolve(), words) if options.against else {}
    print(*table(now, before), sep="\n")


if __name__ == "__main__":
    main()
