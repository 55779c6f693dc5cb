"""Other processes for tests: a script is started, talks in lines, and is killed, stopped or waited for.

A worker prints what happened, one line each, words separated by spaces; a test waits for the line. Orders go to its
standard input the same way. Nothing here polls: every wait is for a line, or for the end of the process.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

WORKERS = Path(__file__).parent.parent / "processes" / "workers"
PATIENCE = 20.0
"""Seconds a worker may take for one line: far above what it needs, so that only a hang reaches it."""


class Worker:
    """One process that runs a script of `tests/processes/workers`."""

    def __init__(self, script: str, *arguments: object, wrapper: Sequence[str] = ()) -> None:
        """`wrapper` is a command that runs the command that follows it, such as `unshare --mount`."""
        self._process = subprocess.Popen(
            [*wrapper, sys.executable, "-u", str(WORKERS / script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_lines, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in self._process.stdout:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(ValueError):
            self._errors.extend(self._process.stderr)

    @property
    def errors(self) -> str:
        return "".join(self._errors)

    def line(self, within: float = PATIENCE) -> str:
        try:
            line = self._lines.get(timeout=within)
        except queue.Empty:
            raise AssertionError(f"worker {self.pid} said nothing for {within:g} s; {self.errors}") from None
        if line is None:
            self._process.wait(within)
            self._readers[1].join(within)
            raise AssertionError(f"worker {self.pid} ended with {self._process.returncode}; {self.errors}")
        return line

    def expect(self, word: str, within: float = PATIENCE) -> list[str]:
        """The words that follow `word`, which the next line must start with."""
        first, *rest = self.line(within).split(" ")
        assert first == word, f"expected {word!r}, but the worker said {first!r} {rest}; {self.errors}"
        return rest

    def say(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def ended(self, within: float = PATIENCE) -> int:
        """Its exit status, once it has ended and everything it said has been read."""
        self._process.wait(within)
        for reader in self._readers:
            reader.join(within)
        return self._process.returncode

    def ended_within(self, seconds: float) -> bool:
        """Give it this long; False is the usual answer, and the reason to ask is the moment in between."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            return True
        return False

    def kill(self) -> None:
        """SIGKILL, and gone (no zombie) on return."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGSTOP, and stopped on return."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()
        for reader in self._readers:
            reader.join(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def workers(count: int, script: str, *arguments: object) -> Iterator[list[Worker]]:
    """Several workers at once; each gets its number as its first argument."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Worker(script, number, *arguments)) for number in range(count)]
