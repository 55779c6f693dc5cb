"""`gripfast run`: takes the lock, runs the command, passes on what it exits with."""

import os
import signal
from pathlib import Path

import pytest

import gripfast
from cli.commandline import Call, Log, run_gripfast, started, waiters
from support.waiting import until

pytestmark = pytest.mark.usefixtures("url")


def test_the_command_runs_and_its_output_is_its_own() -> None:
    ended = run_gripfast("run", "nightly", "--", "sh", "-c", "echo out; echo err >&2")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "out\n", "err\n")


@pytest.mark.parametrize("status", [0, 3, 255])
def test_the_exit_status_is_passed_on(status: int) -> None:
    assert run_gripfast("run", "nightly", "--", "sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_ended_by_a_signal_exits_with_128_more(signum: int) -> None:
    ended = run_gripfast("run", "nightly", "--", "sh", "-c", f"kill -{int(signum)} $$")
    assert (ended.returncode, ended.stderr) == (128 + signum, "")


def test_the_command_reads_what_gripfast_is_given() -> None:
    assert run_gripfast("run", "nightly", "--", "cat", stdin="words\n").stdout == "words\n"


def test_the_command_learns_the_name_and_a_growing_token() -> None:
    command = ["--", "sh", "-c", 'echo "$GRIPFAST_NAME $GRIPFAST_TOKEN"']
    first, second = (run_gripfast("run", "my job", *command).stdout.split() for _ in range(2))
    assert first[:2] == second[:2] == ["my", "job"]
    assert int(first[2]) < int(second[2])


def test_the_token_is_the_one_that_others_see(client: gripfast.Client, log: Log) -> None:
    command = f'echo "ready $GRIPFAST_TOKEN" > {log.path}; exec sleep 60'
    with started("run", "nightly", "--", "sh", "-c", command):
        token = log.pid()
        info = client.inspect("nightly")
        assert info is not None
        assert info.token == token


def test_the_lock_is_held_while_the_command_runs_and_free_afterwards(client: gripfast.Client, log: Log) -> None:
    with started("run", "nightly", "--label", "by hand", "--", *log.puppet("SIGTERM")) as running:
        log.pid()
        info = client.inspect("nightly")
        assert info is not None
        assert (info.pid, info.label) == (running.pid, "by hand")
        assert client.lock("nightly").try_acquire() is None
        running.send(signal.SIGTERM)
        assert running.ended()[0] == 40
    assert client.inspect("nightly") is None


@pytest.mark.parametrize(
    "args",
    [
        ["run", "--ttl", "20", "--label", "x", "nightly", "--", "echo", "done"],
        ["run", "nightly", "--ttl", "20", "--label", "x", "--", "echo", "done"],
        ["run", "--ttl=20", "nightly", "--label=x", "--", "echo", "done"],
    ],
)
def test_options_stand_before_or_after_the_name(args: list[str]) -> None:
    ended = run_gripfast(*args)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_everything_after_the_dashes_is_the_command() -> None:
    ended = run_gripfast("run", "nightly", "--", "echo", "--ttl", "--", "--help", "-x")
    assert (ended.returncode, ended.stdout) == (0, "--ttl -- --help -x\n")


@pytest.mark.parametrize("place", ["before the command", "after the command", "after the name", "in the environment"])
def test_the_url_stands_in_many_places(place: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    args = {
        "before the command": ["--url", url, "show", "nightly"],
        "after the command": ["show", "--url", url, "nightly"],
        "after the name": ["show", "nightly", "--url", url],
        "in the environment": ["show", "nightly"],
    }[place]
    if place == "in the environment":
        monkeypatch.setenv("GRIPFAST_URL", url)
    with gripfast.connect(url) as client, client.lock("nightly").acquire():
        assert call(*args).returncode == 0


def test_a_busy_lock_is_told_at_once_with_its_own_code(client: gripfast.Client) -> None:
    with client.lock("nightly", label="the other one").acquire():
        ended = run_gripfast("run", "nightly", "--no-wait", "--", "echo", "no")
    assert (ended.returncode, ended.stdout) == (75, "")
    assert "the other one" in ended.stderr
    assert str(os.getpid()) in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_busy_code_can_be_chosen(client: gripfast.Client) -> None:
    with client.lock("nightly").acquire():
        assert run_gripfast("run", "nightly", "--no-wait", "--busy-exit-code", "0", "--", "false").returncode == 0


def test_waiting_ends_when_patience_does(client: gripfast.Client) -> None:
    with client.lock("nightly").acquire():
        ended = run_gripfast("run", "nightly", "--wait", "0.3", "--", "echo", "no")
    assert (ended.returncode, ended.stdout) == (75, "")


def test_waiting_ends_when_the_lock_is_free(client: gripfast.Client) -> None:
    lease = client.lock("nightly").acquire()
    with started("run", "nightly", "--", "echo", "my turn") as running:
        until(lambda: waiters(client, "nightly") == 1, within=15)
        lease.release()
        status, out, _ = running.ended()
    assert (status, out) == (0, "my turn\n")


def test_a_command_that_does_not_exist_is_127() -> None:
    ended = run_gripfast("run", "nightly", "--", "no-such-command")
    assert (ended.returncode, ended.stderr) == (127, "gripfast: command not found: no-such-command\n")


def test_a_command_that_is_not_executable_is_126(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("only words")
    ended = run_gripfast("run", "nightly", "--", str(tmp_path / "notes.txt"))
    assert ended.returncode == 126
    assert "Permission denied" in ended.stderr


def test_a_file_without_an_interpreter_is_126(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo hi\n")
    (tmp_path / "script").chmod(0o700)
    ended = run_gripfast("run", "nightly", "--", str(tmp_path / "script"))
    assert ended.returncode == 126
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["nightly", "echo"], "--"),
        (["nightly"], "--"),
        (["nightly", "--"], "--"),
        (["--", "echo"], "NAME"),
        (["nightly", "extra", "--", "echo"], "extra"),
        (["nightly", "--wait", "soon", "--", "echo"], "soon"),
        (
            ["nightly", "--wait", "-1", "--", "echo"],
            "must be a duration like 30 (seconds)",
        ),
        (["nightly", "--wait", "nan", "--", "echo"], "nan"),
        (["nightly", "--wait", "1", "--no-wait", "--", "echo"], "--no-wait"),
        (["nightly", "--ttl", "4", "--grace", "3", "--", "echo"], "2 seconds"),
        (["nightly", "--grace", "16", "--", "echo"], "15 seconds"),
        (["nightly", "--ttl", "0", "--", "echo"], "ttl"),
        (["nightly", "--busy-exit-code", "256", "--", "echo"], "256"),
        (["", "--", "echo"], "name"),
    ],
)
def test_wrong_usage_is_told_in_one_line_and_is_64(args: list[str], word: str, call: Call) -> None:
    ended = call("run", *args)
    assert (ended.returncode, ended.stdout) == (64, "")
    assert ended.stderr.startswith("gripfast: ")
    assert word in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_help_names_the_exit_codes_and_shows_an_example(call: Call) -> None:
    ended = call("run", "--help")
    assert ended.returncode == 0
    for text in ("NAME -- CMD", "gripfast run nightly --", "Exit codes:", "66 ", "69 ", "75 ", "76 ", "126 ", "127 "):
        assert text in ended.stdout


def test_file_descriptors_that_were_handed_down_reach_the_command(tmp_path: Path) -> None:
    through = ["sh", "-c", f'exec 9> {tmp_path / "nine"}; exec "$@"', "sh"]
    with started("run", "nightly", "--", "sh", "-c", "echo here >&9", through=through) as running:
        assert running.ended()[0] == 0
    assert (tmp_path / "nine").read_text() == "here\n"


def test_no_file_descriptor_of_ours_reaches_the_command() -> None:
    # The fourth is the folder that ls reads.
    assert run_gripfast("run", "nightly", "--", "ls", "/proc/self/fd").stdout.split() == ["0", "1", "2", "3"]
