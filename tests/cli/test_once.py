"""`gripfast run --once`, `gripfast forget` and `gripfast run --min-hold`."""

import json

import pytest

import gripfast
from cli.commandline import Call, run_gripfast
from gripfast.cli.waiting import Telling

pytestmark = pytest.mark.usefixtures("url")

ONCE = ("run", "digest", "--once", "--keep", "7d")


def test_a_command_that_was_done_is_not_run_again(client: gripfast.Client) -> None:
    first = run_gripfast(*ONCE, "--", "sh", "-c", 'echo "$GRIPFAST_TOKEN"')
    assert (first.returncode, first.stderr) == (0, "")
    info = client.inspect("digest")
    assert info is not None
    assert (info.kept, info.token) == ("done", int(first.stdout))
    assert 6 * 86400 < info.expires_in <= 7 * 86400
    again = run_gripfast(*ONCE, "--", "echo", "again")
    assert (again.returncode, again.stdout) == (79, "")
    assert "'digest' was done by" in again.stderr
    assert "gripfast forget digest" in again.stderr
    assert run_gripfast(*ONCE, "--done-exit-code", "0", "--", "echo", "again").returncode == 0


def test_a_command_that_fails_may_be_run_again(client: gripfast.Client) -> None:
    assert run_gripfast(*ONCE, "--", "sh", "-c", "exit 3").returncode == 3
    assert client.inspect("digest") is None
    assert run_gripfast(*ONCE, "--", "true").returncode == 0


def test_a_command_that_runs_elsewhere_is_busy(client: gripfast.Client) -> None:
    with client.lock("digest", label="at work"):
        ended = run_gripfast(*ONCE, "--no-wait", "--", "true")
    assert ended.returncode == 75
    assert "at work" in ended.stderr


def test_what_was_done_can_be_forgotten(client: gripfast.Client, call: Call) -> None:
    with client.once("digest", keep=600) as run:
        assert run
    assert call("break", "digest", "--yes").returncode == 1
    assert "gripfast forget digest" in call("break", "digest", "--yes").stderr
    assert "done" in call("show", "digest").stdout
    assert json.loads(call("show", "digest", "--json").stdout)["kept"] == "done"
    assert call("forget", "digest").stdout.startswith("'digest' may be done again; it was done by")
    assert client.inspect("digest") is None
    ended = call("forget", "digest")
    assert (ended.returncode, ended.stdout) == (66, "")
    with client.lock("digest"):
        assert "held by pid" in call("forget", "digest").stderr


def test_a_min_hold_outlasts_the_command(client: gripfast.Client, call: Call) -> None:
    assert run_gripfast("run", "nightly", "--min-hold", "10m", "--", "true").returncode == 0
    info = client.inspect("nightly")
    assert info is not None
    assert info.kept == "min_hold"
    ended = run_gripfast("run", "nightly", "--no-wait", "--", "true")
    assert (ended.returncode, "min_hold" in ended.stderr) == (75, True)
    assert "min_hold" in call("show", "nightly").stdout
    assert call("break", "nightly", "--yes").returncode == 0
    assert client.inspect("nightly") is None


@pytest.mark.parametrize(
    "options", [["--once"], ["--keep", "7d"], ["--once", "--keep", "7d", "--min-hold", "1"], ["--once", "--keep", "0"]]
)
def test_options_that_make_no_sense_are_refused(call: Call, options: list[str]) -> None:
    assert call("run", "digest", *options, "--", "true").returncode == 64


# -- a record is no holder ---------------------------------------------------------------------------------------------


@pytest.fixture
def done(client: gripfast.Client) -> None:
    with client.once("digest", keep=7 * 86400) as run:
        assert run


@pytest.mark.usefixtures("done")
def test_show_of_what_is_done_says_when_and_has_its_own_exit_code(call: Call) -> None:
    ended = call("show", "digest")
    assert (ended.returncode, ended.stderr) == (79, "")
    assert "done at" in ended.stdout
    assert "held since" not in ended.stdout
    assert call("show", "digest", "--json").returncode == 79
    assert "79     it is recorded as done" in call("--help").stdout


@pytest.mark.usefixtures("done")
def test_a_slow_look_at_what_is_done_is_not_told_as_waiting(client: gripfast.Client) -> None:
    assert Telling(client, "digest", once=True)._who() == ""
    assert Telling(client, "digest")._who().startswith("done ")  # whoever wants the lock itself does wait for it


@pytest.mark.usefixtures("done")
def test_ls_tells_a_record_and_a_detached_lock_apart(client: gripfast.Client, call: Call) -> None:
    """Both have no process."""
    client.lock("deploy").acquire().detach()
    client.lock("kept", min_hold=600).acquire().release()
    lines = {line.split()[0]: line.split() for line in call("ls").stdout.splitlines()}
    assert {name: line[8] for name, line in lines.items()} == {"deploy": "held", "digest": "done", "kept": "min_hold"}
    assert {line[3] for line in lines.values()} == {"0"}
    assert "released at" in call("show", "kept").stdout
    assert call("show", "kept").returncode == 0


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize("args", [["run", "digest", "--no-wait", "--", "true"], ["acquire", "digest", "--wait", "0"]])
def test_nobody_is_advised_to_wait_for_a_record(args: list[str]) -> None:
    ended = run_gripfast(*args)
    assert ended.returncode == 75
    assert "--wait" not in ended.stderr
    assert "use another name, or have it done again: gripfast forget digest" in ended.stderr


@pytest.mark.usefixtures("done")
def test_the_text_of_an_info_says_why_the_name_is_taken(client: gripfast.Client) -> None:
    info = client.inspect("digest")
    assert repr(info).endswith(", trace=None, kept='done')")
    with client.lock("nightly") as lease:
        shown = repr(client.inspect("nightly"))
    assert shown.startswith(f"LockInfo(name='nightly', owner={lease.owner!r}, token={lease.token}, label=None, ")
    assert shown.endswith(", trace=None, kept=None)")
