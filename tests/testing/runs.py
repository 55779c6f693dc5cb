"""Test runs of users, as they would start them: pytest in a process of its own, in a folder of theirs."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

RESULT = re.compile(r"(\d+) (passed|failed|errors?|warnings?)")


class Ended(NamedTuple):
    output: str
    counts: dict[str, int]
    """By what pytest calls it: passed, failed, error."""


def run_pytest(folder: Path, *arguments: str) -> Ended:
    """With warnings as errors, and without the settings of this project."""
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "GRIPFAST"))}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    last = (done.stdout.strip().splitlines() or [""])[-1]
    return Ended(done.stdout + done.stderr, {kind.rstrip("s"): int(n) for n, kind in RESULT.findall(last)})


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
