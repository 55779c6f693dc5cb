"""Real workers and schedulers for tests: started, killed with all that they started, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
END_PATIENCE = 15.0


class Program:
    """One process with a group of its own: a machine, so to speak."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                cwd=folder,
                env={**os.environ, **environment},
                stdout=out,
                stderr=out,
                process_group=0,
            )
        self.pid = self._process.pid

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """SIGKILL to it and to its children, as if the machine lost its power."""
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def ask_to_end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        if self._process.poll() is None:
            self.ask_to_end()
            try:
                self._process.wait(END_PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def program(
    *words: str, log: Path, folder: Path = HERE, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """Python with these words; what it says goes to the log."""
    running = Program(words, folder, environment or {}, log)
    try:
        yield running
    finally:
        running.end()
