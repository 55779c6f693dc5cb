"""A command that `gripfast run` may not signal (`sudo …`): said, waited for, and the lock is not free before it ends.

Here the command changes to another user, and `run` is without the right to signal others: as a plain user beside sudo.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

import gripfast
from cli.commandline import Log, end, is_alive, started
from support.waiting import until

WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill", "--"]
AS_ANOTHER = ["setpriv", "--reuid=65534", "--clear-groups", "--"]


def _can_change_users() -> bool:
    """Root that may give up rights: a container's root may not be one."""
    try:
        tried = subprocess.run([*WITHOUT_RIGHTS, *AS_ANOTHER, "true"], capture_output=True)
    except FileNotFoundError:
        return False
    return os.geteuid() == 0 and tried.returncode == 0


pytestmark = pytest.mark.skipif(not _can_change_users(), reason="needs root, to start a process of another user")


def stranger(log: Log, seconds: str = "60") -> str:
    """Shell text: a process of another user that can't be signalled."""
    log.path.touch()
    return f"{' '.join(AS_ANOTHER)} sh -c 'echo ready $$; exec sleep {seconds}' >> {log.path}"


def run_without_rights(log: Log) -> list[str]:
    """What it says can be read while it runs."""
    return [*WITHOUT_RIGHTS, "sh", "-c", f'exec "$@" 2> {log.path.with_suffix(".err")}', "sh"]


@pytest.fixture
def inner(tmp_path: Path) -> Log:
    return Log(tmp_path / "inner.log")


def test_term_for_a_command_of_another_user_is_refused_and_the_lock_kept_until_it_ends(
    client: gripfast.Client, log: Log
) -> None:
    command = ["sh", "-c", f"exec {stranger(log)}"]
    with started("run", "nightly", "--ttl", "0.9", "--", *command, through=run_without_rights(log)) as running:
        pid = log.pid()
        token = _token(client)
        running.send(signal.SIGTERM)
        _said(log, f"can't send SIGTERM to process {pid}")
        assert (is_alive(pid), is_alive(running.pid), _token(client)) == (True, True, token)
        end(pid)
        assert running.ended()[0] == 128 + signal.SIGKILL
    assert _err(log).count("\n") == 1
    assert client.inspect("nightly") is None


def test_a_shell_that_term_ended_does_not_free_the_lock_while_its_sudo_runs(client: gripfast.Client, log: Log) -> None:
    command = ["sh", "-c", f"{stranger(log)}; :"]
    with started("run", "nightly", "--", *command, through=run_without_rights(log)) as running:
        pid = log.pid()
        running.send(signal.SIGTERM)
        _said(log, f"can't send SIGTERM to process {pid}")
        assert client.inspect("nightly") is not None
        end(pid)
        assert running.ended()[0] == 128 + signal.SIGTERM
    assert client.inspect("nightly") is None


def test_on_a_lost_lock_all_that_can_be_killed_is_and_the_rest_waited_for(
    client: gripfast.Client, log: Log, inner: Log
) -> None:
    script = f"{stranger(log)} & {' '.join(inner.puppet())} & wait"
    with started(
        "run", "nightly", "--ttl", "0.9", "--", "sh", "-c", script, through=run_without_rights(log)
    ) as running:
        strange, own = log.pid(), inner.pid()
        client.force_release("nightly")
        assert "nightly is lost" in _said(log, f"can't send SIGKILL to process {strange}")
        until(lambda: not is_alive(own))
        assert (is_alive(strange), is_alive(running.pid)) == (True, True)
        end(strange)
        assert running.ended()[0] == 76
    assert "lost the lock 'nightly'" in _err(log)
    assert "could not kill all its processes" in _err(log)


def test_on_a_lost_lock_a_command_of_another_user_is_waited_for(client: gripfast.Client, log: Log) -> None:
    command = ["sh", "-c", f"exec {stranger(log)}"]
    with started("run", "nightly", "--ttl", "0.9", "--", *command, through=run_without_rights(log)) as running:
        pid = log.pid()
        client.force_release("nightly")
        _said(log, f"can't send SIGKILL to process {pid}")
        end(pid)
        assert running.ended()[0] == 76
    assert "internal error" not in _err(log)


def _said(log: Log, text: str) -> str:
    """All that it has said, as soon as this is part of it."""
    return until(lambda: text in _err(log) and _err(log), within=15)


def _err(log: Log) -> str:
    return log.path.with_suffix(".err").read_text()


def _token(client: gripfast.Client) -> int | None:
    info = client.inspect("nightly")
    return info.token if info else None
