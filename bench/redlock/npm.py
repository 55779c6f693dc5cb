"""npm's redlock: node processes that measure themselves; `npm.cjs` says what they understand.

The package is the one that the interop tests have installed.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.redlock.nodes import node_urls

NPM = "npm redlock"
SCRIPT = Path(__file__).with_suffix(".cjs")
PACKAGES = Path(__file__).parents[2] / "tests" / "interop" / "node_modules"
PATIENCE = 120.0
GOODBYE = 10.0
RETRIES = 10
"""What it does unless told."""


class Npm:
    """One node process; asked and answered in two steps, so that several can work at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def order(self, order: str, **details: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"order": order, **details}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            raise TimeoutError("node does not answer")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("node has ended")
        answer = json.loads(line)
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer["value"]

    def ask(self, order: str, **details: object) -> Any:
        self.order(order, **details)
        return self.answer()


@contextmanager
def npm(url: str, retries: int = RETRIES, timeout: float = 0.0) -> Iterator[Npm]:
    """Connected to the nodes of that URL; the timeout is for each command, in seconds."""
    if not (PACKAGES / ".ready").exists() or shutil.which("node") is None:
        raise LookupError("node or its packages are not installed: `make bench` installs them")
    ports = [str(urlsplit(each).port) for each in node_urls(url)]
    process = subprocess.Popen(
        ["node", str(SCRIPT), str(retries), f"{timeout * 1000:.0f}", *ports],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"NODE_PATH": str(PACKAGES)},
    )
    with process:
        try:
            node = Npm(process)
            # With another key than those that are measured: what comes while a node does not know the scripts yet may
            # be done after what was asked later, and then keeps the key.
            node.ask("attempts", key="npm:warm-up", times=1)
            yield node
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(GOODBYE)
            except subprocess.TimeoutExpired:
                process.kill()
