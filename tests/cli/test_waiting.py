"""While a command waits, whoever looks at it learns for whom."""

import os
import socket

import pytest

import gripfast
from cli.commandline import GRIPFAST, started, waiters
from cli.terminal import on_terminal
from gripfast.cli import waiting
from support.waiting import until


def test_a_terminal_shows_who_holds_the_lock_and_how_long_it_has_waited(client: gripfast.Client) -> None:
    lease = client.lock("nightly", label="the big backup").acquire()
    with on_terminal(*GRIPFAST, "run", "nightly", "--", "echo", "my", "turn") as terminal:
        line = terminal.shows(r"\r\x1b\[Kgripfast: waiting (\S+) for 'nightly', held by ([^\r\n]*UTC\))")
        assert "the big backup" in line[2]
        assert f"pid {os.getpid()} on {socket.gethostname()}" in line[2]
        terminal.shows(r"waiting 1s for 'nightly'")
        lease.release()
        assert terminal.status() == 0
    screen = terminal.screen()
    assert "\n" not in screen.partition("my turn")[0]
    assert screen.endswith("\r\x1b[Kmy turn\n")


def test_the_line_fits_a_narrow_terminal(client: gripfast.Client) -> None:
    with client.lock("nightly", label="备份" * 30).acquire():
        with on_terminal(*GRIPFAST, "run", "nightly", "--", "true", columns=56) as terminal:
            line = terminal.shows(r"\r\x1b\[K(gripfast: waiting [^\r]*…)")[1]
            assert "备份" in line
            assert len(line) + line.count("备") + line.count("份") <= 55


def test_a_label_can_not_steer_the_terminal(client: gripfast.Client) -> None:
    with client.lock("nightly", label="\x1b[2Jboo\n").acquire():
        with on_terminal(*GRIPFAST, "run", "nightly", "--", "true") as terminal:
            terminal.shows(r"\\x1b\[2Jboo\\n")


def test_without_a_terminal_it_says_so_once(client: gripfast.Client) -> None:
    lease = client.lock("nightly", label="the big backup").acquire()
    with started("run", "nightly", "--", "true") as running:
        assert running.process.stderr
        line = running.process.stderr.readline()
        until(lambda: waiters(client, "nightly") == 1)
        lease.release()
        assert running.ended() == (0, "", "")
    assert line.startswith("gripfast: waiting for 'nightly', held by \"the big backup\", pid ")


def test_a_lock_that_is_free_is_taken_without_a_word(client: gripfast.Client) -> None:
    with on_terminal(*GRIPFAST, "run", "nightly", "--", "echo", "done") as terminal:
        assert terminal.status() == 0
        assert terminal.screen() == "done\n"


def test_a_free_lock_that_takes_its_time_is_not_worth_a_line_in_a_log(
    client: gripfast.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a machine with too much to do: whoever asks for a free lock is not waiting for anybody."""
    looked: list[str] = []
    monkeypatch.setattr(waiting, "SILENT_FOR", 0.0)
    monkeypatch.setattr(waiting, "REFRESH", 0.01)
    monkeypatch.setattr(client, "inspect", lambda name, kind: looked.append(name))
    with waiting.Telling(client, "nightly"):
        until(lambda: len(looked) > 1)
    assert capsys.readouterr().err == ""
