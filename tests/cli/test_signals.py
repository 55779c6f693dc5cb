"""Signals that are sent to `gripfast run` reach the command, once; those it has already do not come again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gripfast
from cli.commandline import GRIPFAST, Log, end, is_alive, is_stopped, run_gripfast, started, waiters
from cli.terminal import CTRL_BACKSLASH, CTRL_C, CTRL_Z, on_terminal
from support.waiting import until

pytestmark = pytest.mark.usefixtures("url")

# As on systems where nothing tells who sent a signal.
WITHOUT_SIGWAITINFO = [
    sys.executable,
    "-c",
    "import signal, sys; del signal.sigwaitinfo; from gripfast.cli import main; sys.exit(main())",
]
WAYS = pytest.mark.parametrize("way", [GRIPFAST, WITHOUT_SIGWAITINFO], ids=["read", "handled"])
SENT = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH"]


def test_a_signal_sent_to_run_reaches_the_command(log: Log) -> None:
    with started("run", "nightly", "--", *log.puppet("SIGTERM")) as running:
        log.pid()
        for name in SENT[1:]:
            running.send(signal.Signals[name])
            until(lambda name=name: log.has(name))
        running.send(signal.SIGTERM)
        assert running.ended() == (40, "", "")
    assert sorted(log.signals()) == sorted(SENT)


def test_the_command_decides_what_a_signal_does(log: Log) -> None:
    with started("run", "nightly", "--", "sh", "-c", f"echo ready $$ > {log.path}; exec sleep 60") as running:
        log.pid()
        running.send(signal.SIGTERM)
        assert running.ended() == (143, "", "")


def test_a_pause_and_its_end_are_passed_on_while_the_lock_stays_held(client: gripfast.Client, log: Log) -> None:
    with started("run", "nightly", "--ttl", "0.6", "--", *log.puppet("SIGTERM")) as running:
        pid = log.pid()
        running.send(signal.SIGTSTP)
        until(lambda: is_stopped(pid))
        token = _token(client)
        seen = {client.inspect("nightly").expires_in}
        until(lambda: seen.add(_expires_in(client)) or _grew(seen))
        running.send(signal.SIGCONT)
        until(lambda: not is_stopped(pid))
        assert _token(client) == token
        running.send(signal.SIGTERM)
        assert running.ended()[0] == 40


def _token(client: gripfast.Client) -> int:
    info = client.inspect("nightly")
    assert info is not None
    return info.token


def _expires_in(client: gripfast.Client) -> float:
    info = client.inspect("nightly")
    assert info is not None
    return info.expires_in


def _grew(seen: set[float]) -> bool:
    return max(seen) - min(seen) > 0.15


LOOK = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
# The C library keeps these two for itself, and ignores them in what it spawns.
PRIVATE = 1 << 31 | 1 << 32


def blocked_and_ignored(text: str) -> list[int]:
    return [int(line.split()[1], 16) & ~PRIVATE for line in text.splitlines()]


def test_the_command_ignores_what_gripfast_was_told_to_ignore() -> None:
    ignoring = ["sh", "-c", "trap '' HUP USR1 CHLD INT; exec \"$@\"", "sh"]
    directly = subprocess.run([*ignoring, *LOOK], stdout=subprocess.PIPE, text=True, check=True).stdout
    with started("run", "nightly", "--", *LOOK, through=ignoring) as running:
        status, out, err = running.ended()
    assert (status, err) == (0, "")
    assert blocked_and_ignored(out) == blocked_and_ignored(directly)
    assert blocked_and_ignored(out)[1] != 0


def test_nothing_is_blocked_or_ignored_otherwise() -> None:
    assert blocked_and_ignored(run_gripfast("run", "nightly", "--", *LOOK).stdout) == [0, 0]


def test_nohup_keeps_its_meaning(log: Log) -> None:
    through = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]
    with started("run", "nightly", "--", *log.puppet("SIGTERM"), through=through) as running:
        log.pid()
        running.send(signal.SIGHUP)
        running.send(signal.SIGUSR1)
        until(lambda: log.has("SIGUSR1"))
        running.send(signal.SIGTERM)
        assert running.ended()[0] == 40
    assert log.signals() == ["SIGUSR1", "SIGTERM"]


@WAYS
def test_ctrl_c_reaches_the_command_once(way: list[str], log: Log) -> None:
    with on_terminal(*way, "run", "nightly", "--", *log.puppet("SIGTERM")) as terminal:
        log.pid()
        terminal.type(CTRL_C)
        until(lambda: log.has("SIGINT"))
        terminal.type(CTRL_BACKSLASH)
        until(lambda: log.has("SIGQUIT"))
        _send_and_wait(terminal.pid, signal.SIGUSR1, log)
        _send_and_wait(terminal.pid, signal.SIGTERM, log)
        assert terminal.status() == 40
    assert log.signals() == ["SIGINT", "SIGQUIT", "SIGUSR1", "SIGTERM"]


def _send_and_wait(pid: int, signum: signal.Signals, log: Log) -> None:
    """`run` reads signals in order: when this one has arrived, it has done with all before."""
    os.kill(pid, signum)
    until(lambda: log.has(signum.name))


def test_ctrl_c_reaches_a_command_that_left_the_process_group_when_sent_to_run(log: Log) -> None:
    with on_terminal(*GRIPFAST, "run", "nightly", "--", "setsid", *log.puppet("SIGINT")) as terminal:
        log.pid()
        terminal.type(CTRL_C)
        assert terminal.status() == 40


def test_signals_are_passed_on_where_nothing_tells_who_sent_them(log: Log) -> None:
    with on_terminal(*WITHOUT_SIGWAITINFO, "run", "nightly", "--", *log.puppet("SIGTERM")) as terminal:
        log.pid()
        for signum in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            _send_and_wait(terminal.pid, signum, log)
        assert terminal.status() == 40
    assert log.signals() == ["SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTERM"]


@WAYS
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_while_waiting_leaves_the_queue(
    way: list[str], signum: signal.Signals, status: int, client: gripfast.Client
) -> None:
    with client.lock("nightly").acquire(), on_terminal(*way, "run", "nightly", "--", "echo", "no") as terminal:
        until(lambda: waiters(client, "nightly") == 1, within=15)
        terminal.process.send_signal(signum)
        assert terminal.status() == status
        assert waiters(client, "nightly") == 0
        assert "Traceback" not in terminal.screen()


def test_ctrl_c_while_waiting_leaves_the_queue(client: gripfast.Client) -> None:
    with client.lock("nightly").acquire(), on_terminal(*GRIPFAST, "wait", "nightly") as terminal:
        until(lambda: waiters(client, "nightly") == 1, within=15)
        terminal.type(CTRL_C)
        assert terminal.status() == 130
        assert waiters(client, "nightly") == 0


def test_other_signals_do_not_disturb_the_waiting(client: gripfast.Client, log: Log) -> None:
    lease = client.lock("nightly").acquire()
    with started("run", "nightly", "--", *log.puppet("SIGTERM")) as running:
        until(lambda: waiters(client, "nightly") == 1, within=15)
        running.send(signal.SIGUSR1)
        running.send(signal.SIGWINCH)
        until(lambda: not has_pending_signals(running.pid))
        lease.release()
        log.pid()
        running.send(signal.SIGTERM)
        assert running.ended()[0] == 40


def has_pending_signals(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return any(int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd")))


def test_ctrl_z_hands_the_terminal_to_the_shell_and_fg_takes_it_back(log: Log) -> None:
    with on_terminal("bash", "--norc", "--noprofile", "-i") as shell:
        shell.type(" ".join([*GRIPFAST, "run", "nightly", "--", *log.puppet("SIGINT")]) + "\n")
        pid = log.pid()
        shell.type(CTRL_Z)
        shell.shows("Stopped")
        assert is_stopped(pid)
        shell.type("fg\n")
        until(lambda: not is_stopped(pid))
        shell.type(CTRL_C)
        until(lambda: not is_alive(pid))
        shell.type('echo "status=$?"\n')
        shell.shows("status=40")


def test_a_command_suspended_beyond_the_ttl_is_killed_on_waking(client: gripfast.Client, log: Log) -> None:
    with on_terminal("bash", "--norc", "--noprofile", "-i") as shell:
        shell.type(" ".join([*GRIPFAST, "run", "nightly", "--ttl", "0.5", "--", *log.puppet()]) + "\n")
        pid = log.pid()
        shell.type(CTRL_Z)
        shell.shows("Stopped")
        client.lock("nightly").acquire(wait=10).release()
        shell.type("fg\n")
        until(lambda: not is_alive(pid))
        shell.type('echo "status=$?"\n')
        shell.shows("status=76")


def test_term_that_ends_a_shell_reaches_what_the_shell_ran_and_the_lock_is_kept_until_that_has_ended(
    client: gripfast.Client, log: Log
) -> None:
    with started("run", "nightly", "--", "sh", "-c", f"{' '.join(log.puppet('SIGUSR1'))}; :") as running:
        pid = log.pid()
        running.send(signal.SIGTERM)
        until(lambda: log.has("SIGTERM"))
        assert client.inspect("nightly") is not None
        running.send(signal.SIGUSR1)
        assert running.ended() == (143, "", "")
    assert not is_alive(pid)
    assert log.signals() == ["SIGTERM", "SIGUSR1"]


def test_a_daemon_in_a_session_of_its_own_is_left_alone_by_term(client: gripfast.Client, log: Log) -> None:
    script = f"setsid {' '.join(log.puppet())} >&- 2>&- & exec sleep 60"
    with started("run", "nightly", "--", "sh", "-c", script) as running:
        pid = log.pid()
        running.send(signal.SIGTERM)
        ended = running.ended()
    was_alive = is_alive(pid)
    end(pid)
    assert (ended, was_alive, client.inspect("nightly")) == ((143, "", ""), True, None)
