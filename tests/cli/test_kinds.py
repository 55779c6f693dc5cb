"""`gripfast ls`, `show` and `break` when it is not said which kind is meant."""

import json
import os
import socket
from collections.abc import Iterator

import pytest

import gripfast
from cli.commandline import GRIPFAST, Call
from cli.terminal import on_terminal
from cli.test_completion import Bash, bash, path  # noqa: F401 # fixtures

pytestmark = pytest.mark.usefixtures("url")


@pytest.fixture
def one_of_each(client: gripfast.Client) -> Iterator[gripfast.Lease]:
    """A lock, a semaphore with two holders, and a read/write lock. The lease is that of the lock."""
    semaphore = client.semaphore("api", 3, label="fetch")
    with (
        client.lock("nightly", label="two words").acquire() as lease,
        semaphore.acquire(2),
        semaphore.acquire(),
        client.rwlock("config").write().acquire(),
    ):
        yield lease


def test_ls_lists_every_holder_of_every_kind_in_one_shape(one_of_each: gripfast.Lease, call: Call) -> None:
    lines = [line.split() for line in call("ls").stdout.splitlines()]
    assert [(line[0], line[9]) for line in lines] == [
        ("api", "semaphore"),
        ("api", "semaphore"),
        ("config", "rwlock"),
        ("nightly", "lock"),
    ]
    assert {len(line) for line in lines} == {10}
    here = [socket.gethostname(), str(os.getpid())]
    assert [line[1:4] for line in lines] == [["fetch", *here], ["fetch", *here], ["-", *here], [r"two\x20words", *here]]
    assert lines[-1][6:] == ["0", str(one_of_each.token), "held", "lock"]


def test_ls_of_locks_alone_prints_the_same_lines(one_of_each: gripfast.Lease, call: Call) -> None:
    """A script that reads the first eight words goes on working."""
    (only,) = call("ls", "--kind", "lock").stdout.splitlines()
    *_, last = call("ls").stdout.splitlines()
    assert [*only.split()[:5], *only.split()[6:]] == [*last.split()[:5], *last.split()[6:]]  # not what is left of it
    assert call("ls", "--kind", "all", "--prefix", "n").stdout.split()[0] == "nightly"


def test_ls_in_json_has_the_keys_of_a_lock_for_every_holder(one_of_each: gripfast.Lease, call: Call) -> None:
    (lock,) = json.loads(call("ls", "--json", "--kind", "lock").stdout)
    entries = json.loads(call("ls", "--json").stdout)
    assert [(each["name"], each["kind"]) for each in entries] == [
        ("api", "semaphore"),
        ("api", "semaphore"),
        ("config", "rwlock"),
        ("nightly", "lock"),
    ]
    assert all(each.keys() >= lock.keys() for each in entries)
    assert [each.get("slots") for each in entries[:2]] == [[0, 1], [2]]
    assert entries[2]["mode"] == "write"
    assert entries[3]["owner"] == one_of_each.owner


@pytest.mark.usefixtures("one_of_each")
def test_ls_prints_the_kinds_on_a_terminal() -> None:
    with on_terminal(*GRIPFAST, "ls") as terminal:
        assert terminal.status() == 0
    heading, *lines = terminal.screen().splitlines()
    assert heading.split()[:3] == ["NAME", "KIND", "LABEL"]
    assert [line.split()[:2] for line in lines] == [
        ["api", "semaphore"],
        ["api", "semaphore"],
        ["config", "write"],
        ["nightly", "lock"],
    ]


def test_ls_says_what_it_could_not_list(client: gripfast.Client, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with rights for locks alone sees those."""

    def refuse(*_: object) -> Iterator[gripfast.PermitInfo]:
        raise gripfast.StoreUnavailable("no rights to the table of permits")

    monkeypatch.setattr("gripfast.api.operators.Operators._list_permits", refuse)
    with client.lock("nightly"):
        ended = call("ls")
    assert (ended.returncode, ended.stdout.split()[0]) == (0, "nightly")
    assert "can't list semaphores: no rights to the table of permits" in ended.stderr
    assert call("ls", "--kind", "semaphore").returncode == 69


@pytest.mark.usefixtures("one_of_each")
def test_show_finds_what_is_held_under_the_name(call: Call) -> None:
    ended = call("show", "api")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "3 of 3 permits" in ended.stdout
    assert json.loads(call("show", "config", "--json").stdout)["kind"] == "rwlock"
    assert "two words" in call("show", "nightly").stdout


@pytest.mark.usefixtures("one_of_each")
def test_show_of_a_lock_comes_first(client: gripfast.Client, call: Call) -> None:
    with client.lock("api", label="a lock"):
        assert "a lock" in call("show", "api").stdout
        assert "3 of 3 permits" in call("show", "api", "--kind", "semaphore").stdout


@pytest.mark.usefixtures("one_of_each")
def test_who_asked_for_another_kind_is_told_which_one_is_held(call: Call) -> None:
    for args in (["show", "api", "--kind", "lock"], ["break", "api", "--yes"]):
        ended = call(*args)
        assert (ended.returncode, ended.stdout) == (66, "")
        assert (
            ended.stderr
            == "gripfast: nobody holds the lock 'api', but there is a semaphore of that name: add --kind semaphore\n"
        )
    assert (
        "the semaphore 'config', but there is a read/write lock" in call("show", "config", "--kind", "semaphore").stderr
    )


def test_nobody_holds_anything_of_that_name(call: Call) -> None:
    ended = call("show", "nightly")
    assert (ended.returncode, ended.stdout) == (66, "")
    assert ended.stderr == "gripfast: nobody holds 'nightly'. List what is held: gripfast ls\n"


@pytest.mark.usefixtures("one_of_each")
def test_a_store_without_semaphores_shows_its_locks(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripfast.api.base.AnyClient.capabilities", gripfast.Capabilities())
    assert [line.split()[0] for line in call("ls").stdout.splitlines()] == ["nightly"]
    assert call("show", "api").returncode == 66


@pytest.mark.usefixtures("one_of_each")
def test_a_shell_completes_the_names_of_all_kinds(bash: Bash) -> None:  # noqa: F811 # the fixture
    assert bash.completes("gripfast show ") == ["nightly", "api", "config"]
    assert bash.completes("gripfast break ") == ["nightly"]
