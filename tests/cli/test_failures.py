"""Errors are one line that tells what to do next; never a traceback, never a password."""

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

import gripfast
from cli.commandline import GRIPFAST, Call, run_gripfast
from gripfast.cli.failure import explain, redacted
from gripfast.errors import StoreUnavailable

COMMANDS = [
    ["run", "nightly", "--wait", "0.1", "--", "echo", "no"],
    ["ls"],
    ["show", "nightly"],
    ["break", "nightly", "--yes"],
    ["wait", "nightly", "--wait", "0.1"],
]


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: args[0])
def test_a_store_that_can_not_be_asked_is_69(args: list[str], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "locks.db", isolation_level=None)) as someone:
        someone.execute("PRAGMA locking_mode = EXCLUSIVE")
        someone.execute("BEGIN EXCLUSIVE")
        ended = run_gripfast("--url", f"sqlite:///{tmp_path}/locks.db?request_timeout=0.1", *args)
    assert (ended.returncode, ended.stdout) == (69, "")
    assert ended.stderr.startswith("gripfast: ")
    assert ended.stderr.count("\n") == 1
    assert "locks.db" in ended.stderr


def test_a_store_whose_driver_logs_is_told_in_one_line_too() -> None:
    """kazoo logs each attempt to connect; the error says the same."""
    ended = run_gripfast("--url", "zookeeper://localhost:1", "ls")
    assert (ended.returncode, ended.stdout) == (69, "")
    assert ended.stderr.count("\n") == 1, ended.stderr


def test_a_file_that_is_no_database_is_told_and_left_as_it_is(tmp_path: Path, call: Call) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("this is not a database, it is a letter. " * 100)
    ended = call("--url", f"sqlite:///{letter}", "ls")
    assert (ended.returncode, ended.stdout) == (64, "")
    assert "letter.txt" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert letter.read_text().startswith("this is not")


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: args[0])
def test_a_url_that_makes_no_sense_is_64(args: list[str], call: Call) -> None:
    ended = call(*args[:1], "--url", "gopher://nowhere", *args[1:])
    assert (ended.returncode, ended.stdout) == (64, "")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ["--url", "gopher://me:hunter2@nowhere/0", "ls"],
        ["ls", "--url", "sqlite://me:hunter2@nowhere/x.db"],
        ["ls", "gopher://me:hunter2@nowhere/0"],
        ["gopher://me:hunter2@nowhere/0", "ls"],
        ["ls", "--url=memory://x?password=hunter2"],
    ],
)
@pytest.mark.parametrize("debug", ["", "1"])
def test_a_password_is_never_shown(args: list[str], debug: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIPFAST_DEBUG", debug)
    ended = call(*args)
    assert ended.returncode == 64
    assert ended.stderr
    assert "hunter2" not in ended.stdout + ended.stderr


def test_a_password_in_the_environment_is_never_shown(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIPFAST_URL", "gopher://me:hunter2@nowhere/0")
    monkeypatch.setenv("GRIPFAST_DEBUG", "1")
    ended = call("ls")
    assert ended.returncode == 64
    assert "hunter2" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("text", ["redis://:hunter2@a/0", "a://u:hunter2@b and c://v:hunter2@d", "x?password=hunter2"])
def test_passwords_are_taken_out_of_any_text(text: str) -> None:
    assert "hunter2" not in redacted(text)


def test_a_bug_is_told_in_one_line_too() -> None:
    code, message = explain(RuntimeError("all wrong"))
    assert code == 70
    assert "all wrong" in message


def test_a_store_that_can_not_be_asked_is_told_with_what_to_do() -> None:
    assert explain(StoreUnavailable("no answer"))[1].startswith("no answer. To use another store")


@pytest.mark.parametrize("args", [["frobnicate"], ["ls", "--frobnicate"], ["show"]])
def test_wrong_usage_is_64_and_points_to_the_help(args: list[str], call: Call) -> None:
    ended = call(*args)
    assert (ended.returncode, ended.stdout) == (64, "")
    assert "--help" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_reader_who_has_seen_enough_is_no_error(url: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([*GRIPFAST, "ls", "--json"], stdout=writer, stderr=subprocess.PIPE, timeout=30)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_gripfast_alone_prints_its_help(call: Call) -> None:
    ended = call()
    assert (ended.returncode, ended.stdout) == (64, "")
    assert "run" in ended.stderr
    assert "Exit codes:" in ended.stderr


def test_every_command_has_a_help_with_an_example(call: Call) -> None:
    for command in ("run", "ls", "show", "break", "wait", "completion"):
        ended = call(command, "--help")
        assert ended.returncode == 0
        assert f"gripfast {command} " in ended.stdout.partition("\n")[2]


def test_the_version_is_the_library_s(call: Call) -> None:
    assert call("--version").stdout == f"gripfast {gripfast.__version__}\n"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (
            ["run", "nightly", "--timeout", "5", "--", "true"],
            "--wait, how long to wait for the lock, or --ttl, how long",
        ),
        (["run", "nightly", "--nonblock", "--", "true"], "--no-wait"),
        (["run", "-n", "nightly", "--", "true"], "--no-wait"),
        (["run", "-w", "5", "nightly", "--", "true"], "--wait"),
        (["run", "nightly", "--expire=5", "--", "true"], "--ttl"),
        (["wait", "nightly", "--timeout", "5"], "write --wait, how long to wait for the lock. Try"),
        (["break", "nightly", "--force"], "--yes"),
        (["run", "api", "--kind", "semaphore", "--", "true"], "--limit, how many may have a permit"),
        (["acquire", "x", "--no-wait"], "write --wait 0, not to wait for the lock"),
        (["acquire", "x", "-n"], "write --wait 0, not to wait for the lock"),
        (["lead", "x", "--no-wait", "--", "true"], "gripfast run NAME --no-wait -- CMD. Try: gripfast lead --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_of_other_tools_is_told_by_its_name_here(args: list[str], told: str, call: Call) -> None:
    """Not by the one that is spelt alike."""
    ended = call(*args)
    assert (ended.returncode, ended.stdout) == (64, "")
    assert told in ended.stderr
    assert "Did you mean" not in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (
            ["run", "x", "--wait", "--", "true"],
            "--wait needs a duration: write --wait 60 (seconds), or --wait 5m. Try: ",
        ),
        (["run", "x", "--wait", "--", "true"], "Try: gripfast run --help"),
        (["acquire", "x", "--ttl"], "write --ttl 60 (seconds), or --ttl 5m. Try: gripfast acquire --help"),
        (["run", "x", "--label", "--", "true"], "Option '--label' requires an argument. Try: gripfast run --help"),
        (["ls", "redis://h"], "Got unexpected extra argument (redis://h): write --url before a URL. Try: gripfast ls"),
        (["release", "deploy"], 'is read from standard input: write echo "$key" | gripfast release -. Try'),
        (["renew"], 'write echo "$key" | gripfast renew -. Try'),
    ],
)
def test_what_is_missing_is_told_with_what_to_write(args: list[str], told: str, call: Call) -> None:
    ended = call(*args)
    assert (ended.returncode, ended.stdout) == (64, "")
    assert told in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_typing_error_is_told_as_click_tells_it(call: Call) -> None:
    told = call("run", "nightly", "--wiat", "5", "--", "true").stderr
    assert ("Did you mean" in told, "'--wait'" in told) == (True, True)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("list", "gripfast ls"),
        ("lock", "gripfast run NAME -- CMD"),
        ("unlock", "gripfast break NAME"),
        ("status", "gripfast show NAME"),
        ("exec", "gripfast run NAME -- CMD"),
        ("flock", "gripfast run NAME -- CMD"),
        ("version", "gripfast --version"),
        ("semaphore", "gripfast run NAME --limit 3 -- CMD"),
    ],
)
def test_a_command_of_other_tools_is_told_by_its_name_here(name: str, told: str, call: Call) -> None:
    for args in ([name], [name, "nightly", "--force"], [name, "--help"]):
        ended = call(*args)
        assert (ended.returncode, ended.stdout) == (64, "")
        assert told in ended.stderr
    assert f"\n  {name}" not in call("--help").stdout
