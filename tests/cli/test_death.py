"""kill -9 of `holdfast run`: the command dies with it, and the lock is not free before."""

import os
import signal
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import holdfast
from cli.commandline import Log, Started, is_alive, started, waiters
from holdfast.cli.spawn import CHILD
from support.waiting import until

TRIALS = 50

# Takes a lock of the kernel's that ends with the process: whoever finds it taken is not alone.
WITNESS = """\
import fcntl, os, signal, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
alone = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT, 0o600)
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    os.write(log, b"overlap %d\\n" % os.getpid())
os.write(log, b"ready %d\\n" % os.getpid())
signal.pause()
"""


def test_the_command_dies_with_run(client: holdfast.Client, log: Log) -> None:
    with started("run", "nightly", "--", *log.puppet()) as running:
        pid = log.pid()
        running.send(signal.SIGKILL)
        until(lambda: not is_alive(pid))
        until(lambda: client.inspect("nightly") is None)


def test_the_next_command_starts_after_the_last_one_is_gone(client: holdfast.Client, log: Log, tmp_path: Path) -> None:
    """Every other holder is killed as soon as the lock is its own, while its command is still coming into being."""
    witness = [sys.executable, "-I", "-S", "-c", WITNESS, str(log.path), str(tmp_path / "alone")]
    command = ["run", "nightly", "--", *witness]
    with ExitStack() as stack:
        holder = stack.enter_context(started(*command))
        for trial in range(TRIALS):
            following = stack.enter_context(started(*command))
            until(lambda: waiters(client, "nightly") == 1, within=15)
            until(partial(_holds, client, holder), within=15)
            if trial % 2:
                until(lambda: log.lines() and is_alive(int(log.lines()[-1][1])), within=15)
            holder.send(signal.SIGKILL)
            holder.ended()
            holder = following
        until(lambda: _holds(client, holder), within=15)
        until(lambda: log.lines() and is_alive(int(log.lines()[-1][1])), within=15)
    assert [line for line in log.lines() if line[0] == "overlap"] == []
    assert len(log.lines()) > TRIALS // 2


def _holds(client: holdfast.Client, running: Started) -> bool:
    info = client.inspect("nightly")
    return info is not None and info.pid == running.pid


@pytest.mark.usefixtures("url")
def test_a_command_that_lives_on_keeps_the_lock(client: holdfast.Client, log: Log) -> None:
    """A setuid program is not killed with its parent; here the command itself says that it will not be."""
    undo = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 0, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-I", "-S", "-c", undo, *log.puppet()]
    with started("run", "nightly", "--", *command) as running:
        pid = log.pid()
        running.send(signal.SIGKILL)
        until(lambda: not is_alive(running.pid))
        assert client.lock("nightly").try_acquire() is None
        os.kill(pid, signal.SIGKILL)
        client.lock("nightly").acquire(wait=5).release()


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
