"""kill -9 of `gripfast run`: the command dies with it, and the lock is not free before."""

import os
import signal
import sys
from collections.abc import Container
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gripfast
from cli.commandline import Log, is_alive, started, waiters
from gripfast.cli.spawn import CHILD
from support.sweeping import FULL
from support.waiting import until

TRIALS = 50 if FULL else 16
IN_LINE = 4

# Takes a lock of the kernel's that ends with the process: whoever finds it taken is not alone.
WITNESS = """\
import fcntl, os, signal, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
alone = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT, 0o600)
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    os.write(log, b"overlap %d\\n" % os.getpid())
os.write(log, b"ready %d %d\\n" % (os.getpid(), os.getppid()))
signal.pause()
"""


def test_the_command_dies_with_run(client: gripfast.Client, log: Log) -> None:
    with started("run", "nightly", "--", *log.puppet()) as running:
        pid = log.pid()
        running.send(signal.SIGKILL)
        until(lambda: not is_alive(pid))
        until(lambda: client.inspect("nightly") is None)


def test_the_next_command_starts_after_the_last_one_is_gone(client: gripfast.Client, log: Log, tmp_path: Path) -> None:
    """Every other holder is killed as soon as the lock is its own, while its command is still coming into being."""
    witness = [sys.executable, "-I", "-S", "-c", WITNESS, str(log.path), str(tmp_path / "alone")]
    with ExitStack() as stack:
        running: dict[int, Any] = {}
        for trial in range(TRIALS):
            while len(running) < IN_LINE:
                newcomer = stack.enter_context(started("run", "nightly", "--", *witness))
                running[newcomer.pid] = newcomer
            pid = until(lambda: waiters(client, "nightly") and holder_among(running, client), within=15)
            if trial % 2:
                until(partial(has_begun, pid, log), within=15)
            running[pid].send(signal.SIGKILL)
            running.pop(pid).ended()
    assert [line for line in log.lines() if line[0] == "overlap"] == []
    assert len(log.lines()) >= TRIALS // 2


def holder_among(running: Container[int], client: gripfast.Client) -> int | None:
    info = client.inspect("nightly")
    return info.pid if info and info.pid in running else None


def has_begun(run: int, log: Log) -> bool:
    """The command of this `run` is at work."""
    return any(line[0] == "ready" and line[2] == str(run) for line in log.lines())


def undying(log: Log) -> list[str]:
    """A setuid program is not killed with its parent; here the command itself says that it will not be."""
    undo = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 0, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-I", "-S", "-c", undo, *log.puppet()]


@pytest.mark.usefixtures("url")
def test_a_command_that_lives_on_keeps_the_lock(client: gripfast.Client, log: Log) -> None:
    with started("run", "nightly", "--", *undying(log)) as running:
        pid = log.pid()
        running.send(signal.SIGKILL)
        until(lambda: not is_alive(running.pid))
        assert client.lock("nightly").try_acquire() is None
        os.kill(pid, signal.SIGKILL)
        client.lock("nightly").acquire(wait=5).release()


@pytest.mark.usefixtures("url")
def test_a_command_that_lives_on_keeps_the_lock_until_its_ttl_is_over(client: gripfast.Client, log: Log) -> None:
    with started("run", "nightly", "--ttl", "1", "--", *undying(log)) as running:
        pid = log.pid()
        running.send(signal.SIGKILL)
        until(lambda: not is_alive(running.pid))
        client.lock("nightly").acquire(wait=15).release()
        assert is_alive(pid)
        os.kill(pid, signal.SIGKILL)


def test_a_launcher_whose_gate_stays_shut_never_becomes_the_command(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    words = [str(reader), str(os.getpid()), "", "", "touch", str(tmp_path / "done")]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", str(CHILD), *words], os.environ)
    os.close(reader)
    os.close(writer)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 125
    assert not (tmp_path / "done").exists()


def test_a_launcher_whose_parent_is_gone_never_becomes_the_command(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    os.write(writer, b"1")
    words = [str(reader), "1", "", "", "touch", str(tmp_path / "done")]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", str(CHILD), *words], os.environ)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 125
    os.close(reader)
    os.close(writer)
    assert not (tmp_path / "done").exists()
