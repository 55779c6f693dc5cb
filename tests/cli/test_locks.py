"""`gripfast ls`, `show`, `break` and `wait`."""

import json
import os
import socket
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime

import pytest

import gripfast
from cli.commandline import GRIPFAST, Call, run_gripfast, started, waiters
from cli.screen import on_screen
from cli.terminal import on_terminal
from support.waiting import until

pytestmark = pytest.mark.usefixtures("url")


def test_ls_prints_ten_words_a_line_into_a_pipe(client: gripfast.Client, call: Call) -> None:
    with client.lock("report:7", label="two words").acquire() as lease, client.lock("a").acquire():
        ended = call("ls")
    first, second = (line.split() for line in ended.stdout.splitlines())
    assert (first[0], first[1]) == ("a", "-")
    assert second[:4] == ["report:7", r"two\x20words", socket.gethostname(), str(os.getpid())]
    assert datetime.fromisoformat(second[4]).tzinfo is not None
    assert 0 < float(second[5]) <= 30
    assert second[6:] == ["0", str(lease.token), "held", "lock"]
    assert "\t" not in ended.stdout


def test_ls_prints_a_table_on_a_terminal(client: gripfast.Client) -> None:
    with client.lock("nightly", label="备份").acquire(), client.lock("x").acquire():
        with on_terminal(*GRIPFAST, "ls") as terminal:
            assert terminal.status() == 0
    heading, first, second = terminal.screen().splitlines()
    column = heading.index("HOST")
    assert heading.split()[:4] == ["NAME", "KIND", "LABEL", "HOST"]
    assert first.replace("备份", "备份..")[column:].startswith(socket.gethostname())
    assert second[column:].startswith(socket.gethostname())


@pytest.mark.parametrize("columns", [40, 80, 100])
def test_ls_fits_a_narrow_terminal(client: gripfast.Client, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))  # readline sets it, and it counts for more than the terminal
    names = ["deploy", "tenants/0f8fad5b-d9cb-469f/invoices/2026/export", "报表：每月对账（华东区）"]
    with ExitStack() as held:
        for name in names:
            held.enter_context(client.lock(name, label="a label that is longer than a column"))
        with on_screen(*GRIPFAST, "ls", columns=columns) as screen:
            headings = screen.sees("^NAME .*$").group().split()
            screen.sees("^tenants.*….*export ")
            screen.sees("^deploy +")
            assert [
                row for row in screen.rows() if row and not row.startswith(("NAME", "deploy", "tena", "报表"))
            ] == []
            assert ("LABEL" in headings, "TOKEN" in headings) == (columns > 40, False)


def test_ls_picks_by_prefix(client: gripfast.Client, call: Call) -> None:
    with client.lock("report:7").acquire(), client.lock("nightly").acquire():
        ended = call("ls", "--prefix", "report:", "--json")
    assert [info["name"] for info in json.loads(ended.stdout)] == ["report:7"]


def test_ls_without_locks_prints_nothing_into_a_pipe_and_a_word_on_a_terminal(call: Call) -> None:
    ended = call("ls")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert json.loads(call("ls", "--json").stdout) == []
    with on_terminal(*GRIPFAST, "ls") as terminal:
        assert terminal.status() == 0
    assert "no lock, semaphore or read/write lock is held" in terminal.screen()


def test_show_tells_who_holds_it(client: gripfast.Client, call: Call) -> None:
    with client.lock("nightly", label="by hand").acquire() as lease:
        ended = call("show", "nightly")
    assert ended.returncode == 0
    for word in ("nightly", "by hand", f"pid {os.getpid()} on {socket.gethostname()}", str(lease.token), "UTC"):
        assert word in ended.stdout


def test_show_in_json_has_every_field(client: gripfast.Client, call: Call) -> None:
    with client.lock("nightly", label="by hand").acquire() as lease:
        shown = json.loads(call("show", "--json", "nightly").stdout)
    assert datetime.fromisoformat(shown.pop("since")).tzinfo is not None
    assert 0 < shown.pop("expires_in") <= 30
    assert shown == {
        "name": "nightly",
        "owner": lease.owner,
        "token": lease.token,
        "label": "by hand",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "waiters": 0,
        "trace": None,
    }


@pytest.fixture
def sees_no_waiters(client: gripfast.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PostgreSQL, MariaDB and MySQL."""
    able = replace(client.capabilities, waiters_seen=False)
    monkeypatch.setattr("gripfast.api.base.AnyClient.capabilities", able)


CANT_COUNT = "gripfast: This store can't tell how many wait.\n"


@pytest.mark.usefixtures("sees_no_waiters")
@pytest.mark.parametrize("command", ["ls", "ls --kind lock", "show job"])
def test_a_number_of_waiters_that_nobody_knows_is_a_question_mark(
    client: gripfast.Client, call: Call, command: str
) -> None:
    with client.lock("job").acquire() as lease:
        shown, in_json = call(*command.split()), call(*command.split(), "--json")
    words = shown.stdout.split()
    assert words[words.index(str(lease.token)) - 1 if "show" not in command else words.index("waiting") + 1] == "?"
    assert shown.stderr == CANT_COUNT
    assert '"waiters": null' in in_json.stdout
    assert in_json.stderr == ""


@pytest.mark.usefixtures("sees_no_waiters")
@pytest.mark.parametrize("command", ["ls --kind semaphore", "show api"])
def test_so_is_that_of_a_semaphore(client: gripfast.Client, call: Call, command: str) -> None:
    with client.semaphore("api", 2).acquire():
        shown, in_json = call(*command.split()), call(*command.split(), "--json")
    assert "?" in shown.stdout.split()
    assert shown.stderr == CANT_COUNT
    assert '"waiters": null' in in_json.stdout


@pytest.mark.usefixtures("sees_no_waiters")
def test_what_is_broken_tells_no_number_that_nobody_knows(client: gripfast.Client, call: Call) -> None:
    lease = client.lock("job").acquire()
    told = json.loads(call("break", "job", "--yes", "--json").stdout)
    assert (told["holder"]["waiters"], told["holder"]["token"]) == (None, lease.token)


def test_show_of_a_free_lock_is_66(call: Call) -> None:
    ended = call("show", "nightly")
    assert (ended.returncode, ended.stdout) == (66, "")
    assert ended.stderr.startswith("gripfast: nobody holds 'nightly'")
    ended = call("show", "nightly", "--json")
    assert (ended.returncode, json.loads(ended.stdout)) == (66, None)


def test_break_without_a_terminal_needs_yes(client: gripfast.Client, call: Call) -> None:
    with client.lock("nightly").acquire() as lease:
        ended = call("break", "nightly")
        assert ended.returncode == 64
        assert "--yes" in ended.stderr
        assert lease.held


@pytest.fixture
def held(client: gripfast.Client) -> gripfast.Lease:
    """A lease that a test may break: it is not released, only closed with its client."""
    return client.lock("nightly", label="by hand").acquire()


@pytest.mark.usefixtures("held")
def test_break_with_yes_frees_the_lock(client: gripfast.Client, call: Call) -> None:
    ended = call("break", "--yes", "nightly")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "by hand" in ended.stdout
    assert client.inspect("nightly") is None


def test_break_in_json_tells_who_had_it(held: gripfast.Lease, call: Call) -> None:
    told = json.loads(call("break", "nightly", "--yes", "--json").stdout)
    assert (told["name"], told["broken"], told["holder"]["token"]) == ("nightly", True, held.token)


def test_break_tells_the_holder_the_reason(held: gripfast.Lease, call: Call) -> None:
    told = json.loads(call("break", "nightly", "--yes", "--json", "--reason", "deploy of v2").stdout)
    assert (told["reason"], told["told"]) == ("deploy of v2", True)
    with pytest.raises(gripfast.LeaseLost) as caught:
        held.extend()
    assert caught.value.note == "deploy of v2"


@pytest.mark.usefixtures("held")
def test_break_refuses_a_reason_that_is_too_long(client: gripfast.Client, call: Call) -> None:
    ended = call("break", "nightly", "--yes", "--reason", "x" * 1025)
    assert (ended.returncode, ended.stdout) == (64, "")
    assert "a reason must have at most 1024 UTF-8 bytes" in ended.stderr
    assert client.inspect("nightly") is not None


@pytest.mark.usefixtures("held")
def test_break_says_that_a_store_can_not_tell_the_reason(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripfast.api.base.AnyClient.capabilities", gripfast.Capabilities())
    ended = call("break", "nightly", "--yes", "--reason", "deploy of v2")
    assert ended.returncode == 0
    assert "can't tell the old holder the reason" in ended.stderr


def test_break_of_a_free_lock_is_66(call: Call) -> None:
    assert call("break", "nightly", "--yes").returncode == 66


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("\x03", 1), ("\x04", 1)])
@pytest.mark.usefixtures("held")
def test_break_asks_first(answer: str, status: int, client: gripfast.Client) -> None:
    with on_terminal(*GRIPFAST, "break", "nightly") as terminal:
        terminal.shows(r"by hand[^?]*\? [^?]*\[y/N\]: ")
        terminal.type(answer)
        assert terminal.status() == status
    assert (client.inspect("nightly") is None) == (status == 0)
    assert ("nothing was changed" in terminal.screen()) == (status == 1)


def test_break_does_not_hit_someone_who_came_meanwhile(client: gripfast.Client) -> None:
    lease = client.lock("nightly").acquire()
    with on_terminal(*GRIPFAST, "break", "nightly") as terminal:
        terminal.shows(r"\[y/N\]: ")
        lease.release()
        newcomer = client.lock("nightly").acquire()
        terminal.type("y\n")
        assert terminal.status() == 1
        assert newcomer.held
        newcomer.release()
    assert "another holder" in terminal.screen()


def test_wait_returns_at_once_if_the_lock_is_free() -> None:
    ended = run_gripfast("wait", "nightly")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert json.loads(run_gripfast("wait", "nightly", "--json").stdout)["free"] is True


def test_wait_returns_when_the_lock_is_free_and_does_not_keep_it(client: gripfast.Client) -> None:
    lease = client.lock("nightly").acquire()
    with started("wait", "nightly") as running:
        until(lambda: waiters(client, "nightly") == 1, within=15)
        lease.release()
        assert running.ended()[0] == 0
    assert client.inspect("nightly") is None


def test_wait_gives_up_with_75(client: gripfast.Client) -> None:
    with client.lock("nightly", label="by hand").acquire():
        ended = run_gripfast("wait", "nightly", "--wait", "0.1", "--json")
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["free"], told["holder"]["label"]) == (75, False, "by hand")
    assert told["waited"] >= 0.1
    assert "by hand" in ended.stderr


def test_the_name_may_look_like_an_option(client: gripfast.Client, call: Call) -> None:
    with client.lock("--odd").acquire():
        assert call("show", "--", "--odd").returncode == 0
