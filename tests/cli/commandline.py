"""Real `gripfast` processes for the tests, and the puppet that they run."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import gripfast
from support.waiting import until

GRIPFAST = [sys.executable, "-W", "error", "-m", "gripfast"]
PUPPET = [sys.executable, "-I", "-S", str(Path(__file__).with_name("puppet.py"))]


def run_gripfast(*args: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run to the end, without a terminal."""
    return subprocess.run(
        [*GRIPFAST, *args], input=stdin, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=30
    )


class Outcome(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Call = Callable[..., Outcome]
"""`gripfast` called inside the test's own process, ten times as quick: for what needs no process of its own."""


class Started:
    """A `gripfast` process that is running, its stderr collected."""

    def __init__(self, args: Sequence[str]) -> None:
        # In a group of its own: in one whose leader's parent is gone (a detached test run) the system stops nobody.
        self.process = subprocess.Popen(
            args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
        )
        self.pid = self.process.pid

    def send(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def ended(self, within: float = 15.0) -> tuple[int, str, str]:
        """Exit status, stdout and stderr, once it has ended."""
        out, err = self.process.communicate(timeout=within)
        return self.process.returncode, out, err


@contextmanager
def started(*args: str, through: Sequence[str] = ()) -> Iterator[Started]:
    """`through` is a command that runs the command it is given."""
    running = Started([*through, *GRIPFAST, *args])
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


class Log:
    """What a puppet wrote down."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def puppet(self, *ends: str) -> list[str]:
        """The words of a command."""
        return [*PUPPET, str(self.path), *ends]

    def lines(self) -> list[list[str]]:
        # A line without its end is still being written.
        return [line.split() for line in self._text().splitlines(keepends=True) if line.endswith("\n")]

    def pid(self) -> int:
        """Of the puppet, as soon as it is ready."""
        return int(until(lambda: [line[1] for line in self.lines() if line[0] == "ready"], within=15)[-1])

    def signals(self) -> list[str]:
        return [line[0] for line in self.lines() if line[0] != "ready"]

    def has(self, *names: str) -> bool:
        return set(names) <= set(self.signals())

    def moment_of(self, name: str) -> float:
        return next(float(line[1]) for line in self.lines() if line[0] == name)

    def _text(self) -> str:
        return self.path.read_text() if self.path.exists() else ""


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def end(pid: int) -> None:
    """Kill a process that may be gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def waiters(client: gripfast.Client, name: str) -> int:
    info = client.inspect(name)
    return info.waiters if info else 0
