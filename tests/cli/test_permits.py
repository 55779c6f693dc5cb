"""`gripfast run --limit`, `--read` and `--write`; `gripfast ls`, `show` and `break` with `--kind`."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from datetime import datetime

import pytest

import gripfast
from cli.commandline import GRIPFAST, Call, Log, end, is_alive, run_gripfast, started
from cli.terminal import on_terminal
from cli.test_completion import Bash, bash, path  # noqa: F401 # fixtures
from cli.test_death import undying
from gripfast.cli.waiting import Telling
from support.waiting import until

pytestmark = pytest.mark.usefixtures("url")

SEMAPHORE = ("--kind", "semaphore")
RWLOCK = ("--kind", "rwlock")
TELL_SLOTS = ("sh", "-c", 'echo "$GRIPFAST_NAME:$GRIPFAST_SLOTS:$GRIPFAST_TOKEN"')


@pytest.fixture
def full(client: gripfast.Client) -> list[gripfast.SemaphoreLease]:
    """All three permits of a semaphore, which a test may break."""
    return [
        client.semaphore("api", 3, label="by hand").acquire(),
        client.semaphore("api", 3).acquire(2),
    ]


@pytest.fixture
def readers(client: gripfast.Client, url: str) -> Iterator[list[gripfast.Lease]]:
    with gripfast.connect(url) as other:
        yield [each.rwlock("config", label="a reader").read().acquire() for each in (client, other)]


def test_run_takes_a_permit_and_tells_its_slot(client: gripfast.Client) -> None:
    with client.semaphore("api", 3).acquire() as lease:
        assert lease.slots == (0,)
        ended = run_gripfast("run", "api", "--limit", "3", "--", *TELL_SLOTS)
    name, slots, token = ended.stdout.strip().split(":")
    assert (ended.returncode, name, slots, int(token) > lease.token) == (0, "api", "1", True)
    assert client.inspect("api", "semaphore") is None


def test_the_slots_of_an_outer_run_are_not_those_of_a_lock() -> None:
    assert run_gripfast("run", "a", "--", *TELL_SLOTS, env={"GRIPFAST_SLOTS": "7"}).stdout.startswith("a::")


def test_the_limit_is_changed_for_everybody(client: gripfast.Client, call: Call) -> None:
    with client.semaphore("api", 3).acquire():
        ended = call("resize", "api", "2")
        assert (ended.returncode, ended.stdout) == (0, "the limit of the semaphore 'api' is 2; it was 3\n")
        told = json.loads(call("resize", "api", "4", "--json").stdout)
        assert told == {"name": "api", "limit": 4, "before": 2}
        with pytest.raises(gripfast.ConfigurationError, match=r"has a limit of 4, .*or gripfast resize in the shell"):
            client.semaphore("api", 3).acquire()
        client.semaphore("api", 4).acquire(3).release()


def test_the_limit_of_a_semaphore_that_nobody_holds_is_changed_too(client: gripfast.Client, call: Call) -> None:
    assert call("resize", "api", "2").stdout == "the limit of the semaphore 'api' is 2\n"
    with pytest.raises(gripfast.ConfigurationError, match="has a limit of 2"):
        client.semaphore("api", 3).acquire()


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_a_limit_that_makes_no_sense_is_refused(call: Call, limit: str) -> None:
    ended = call("resize", "api", "--", limit)
    assert (ended.returncode, ended.stdout) == (64, "")


@pytest.mark.usefixtures("full")
def test_a_semaphore_without_a_free_permit_is_busy() -> None:
    ended = run_gripfast("run", "api", "--limit", "3", "--no-wait", "--", "true")
    assert ended.returncode == 75
    assert ended.stderr.startswith(f"gripfast: 'api' is held by \"by hand\", pid {os.getpid()} on ")
    assert "and 1 other: 3 of 3 permits. Wait for it" in ended.stderr
    assert ended.stderr.endswith("see: gripfast show api --kind semaphore\n")
    assert run_gripfast("run", "api", "--limit", "3", "--no-wait", "-q", "--", "true").stderr == ""


@pytest.mark.usefixtures("full")
def test_another_limit_is_wrong_usage() -> None:
    ended = run_gripfast("run", "api", "--limit", "4", "--no-wait", "--", "true")
    assert (ended.returncode, "limit of 3" in ended.stderr) == (64, True)


def test_readers_come_together_and_a_writer_alone(client: gripfast.Client) -> None:
    with client.rwlock("config").read():
        assert run_gripfast("run", "config", "--read", "--no-wait", "--", "true").returncode == 0
        ended = run_gripfast("run", "config", "--write", "--no-wait", "--", "true")
        assert (ended.returncode, ": 1 reader. Wait" in ended.stderr) == (75, True)
    with client.rwlock("config").write():
        ended = run_gripfast("run", "config", "--read", "--no-wait", "--", "true")
        assert (ended.returncode, ": 1 writer. Wait" in ended.stderr) == (75, True)
    assert run_gripfast("run", "config", "--write", "--no-wait", "--", *TELL_SLOTS).stdout.startswith("config::")


def test_whoever_waits_learns_for_whom(client: gripfast.Client) -> None:
    lease = client.rwlock("config", label="the importer").write().acquire()
    with started("run", "config", "--read", "--", "true") as running:
        assert running.process.stderr
        line = running.process.stderr.readline()
        lease.release()
        assert running.ended() == (0, "", "")
    assert line.startswith("gripfast: waiting for 'config', held by \"the importer\", pid ")
    assert ": 1 writer" in line


def test_a_holder_that_leaves_room_is_not_waited_for(client: gripfast.Client) -> None:
    with client.semaphore("api", 2):
        assert Telling(client, "api", "semaphore")._who() == ""
        with client.semaphore("api", 2):
            assert Telling(client, "api", "semaphore")._who().endswith("and 1 other: 2 of 2 permits")


@pytest.mark.parametrize("option", [["--limit", "1"], ["--write"]])
def test_a_command_that_lives_on_keeps_its_permit(option: list[str], client: gripfast.Client, log: Log) -> None:
    lock = client.semaphore("job", 1) if "--limit" in option else client.rwlock("job").write()
    with started("run", "job", *option, "--", *undying(log)) as running:
        pid = log.pid()
        running.send(signal.SIGKILL)
        until(lambda: not is_alive(running.pid))
        try:
            assert lock.try_acquire() is None
        finally:
            end(pid)
        lock.acquire(wait=5).release()


def test_a_permit_that_is_broken_is_lost_and_called_by_its_name(client: gripfast.Client, log: Log) -> None:
    with started("run", "api", "--limit", "2", "--ttl", "1", "--", *log.puppet()) as running:
        log.pid()
        assert client.force_release("api", kind="semaphore")
        status, _, err = running.ended()
    assert (status, "lost the permit of the semaphore 'api': " in err) == (76, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--limit", "3", "--read"], "Use --limit or --read, not both."),
        (["--read", "--write"], "Use --read or --write, not both."),
        (["--write", "--once", "--keep", "7d"], "Use --write or --once, not both."),
        (["--limit", "3", "--min-hold", "5"], "Use --limit or --min-hold, not both."),
        (["--limit", "0"], "limit must be a whole number from 1"),
        (["--limit", "many"], "--limit"),
    ],
)
def test_options_that_make_no_sense_are_refused(call: Call, options: list[str], words: str) -> None:
    ended = call("run", "api", *options, "--", "true")
    assert (ended.returncode, words in ended.stderr) == (64, True)


@pytest.mark.usefixtures("full", "readers")
def test_ls_prints_seven_words_a_line_into_a_pipe(client: gripfast.Client, call: Call) -> None:
    with client.semaphore("a b", 5), client.rwlock("index").write():
        assert [line.split() for line in call("ls", *SEMAPHORE).stdout.splitlines()] == [
            [r"a\x20b", "semaphore", "5", "1", "0", "1", "0"],
            ["api", "semaphore", "3", "3", "0,1,2", "2", "0"],
        ]
        assert [line.split() for line in call("ls", *RWLOCK).stdout.splitlines()] == [
            ["config", "rwlock", "-", "read", "-", "2", "0"],
            ["index", "rwlock", "-", "write", "-", "1", "0"],
        ]
    assert call("ls", "--kind", "lock").stdout == ""


@pytest.mark.usefixtures("full")
def test_ls_prints_a_table_on_a_terminal() -> None:
    with on_terminal(*GRIPFAST, "ls", *SEMAPHORE) as terminal:
        assert terminal.status() == 0
    heading, line = terminal.screen().splitlines()
    assert heading.split("  ")[0].strip() == "NAME"
    assert line[heading.index("SLOTS") :].startswith("0,1,2")
    with on_terminal(*GRIPFAST, "ls", *RWLOCK, "--prefix", "x") as terminal:
        assert terminal.status() == 0
    assert "no read/write lock is held whose name begins with 'x'" in terminal.screen()


def test_show_leaves_nothing_out_on_a_narrow_terminal(
    full: list[gripfast.SemaphoreLease], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with on_terminal(*GRIPFAST, "show", "api", columns=80) as terminal:
        assert terminal.status() == 0
    name, *lines = terminal.screen().splitlines()
    assert name == "api"
    assert [line.split()[-1] for line in lines if line.startswith("  token ")] == [str(each.token) for each in full]
    assert len([line for line in lines if line.startswith("  slots ")]) == len(full)
    assert all(len(line) <= 80 for line in lines)


def test_show_tells_all_holders(full: list[gripfast.SemaphoreLease], call: Call) -> None:
    name, *facts, heading, first, second = call("show", "api", *SEMAPHORE).stdout.splitlines()
    assert (name, [fact.split(maxsplit=1)[0] for fact in facts]) == ("api", ["kind", "in", "waiting"])
    assert "3 of 3 permits" in facts[1]
    assert heading.split()[0] == "SLOTS"
    assert first.split()[:3] == ["0", "by", "hand"]
    assert second.split()[:4] == ["1,2", "-", socket.gethostname(), str(os.getpid())]
    assert [line.split()[-1] for line in (first, second)] == [lease.owner for lease in full]


def test_show_in_json_has_every_field(full: list[gripfast.SemaphoreLease], call: Call) -> None:
    shown = json.loads(call("show", "api", *SEMAPHORE, "--json").stdout)
    first = shown["holders"][0]
    assert datetime.fromisoformat(first.pop("since")).tzinfo is not None
    assert 0 < first.pop("expires_in") <= 30
    assert first == {
        "owner": full[0].owner,
        "token": full[0].token,
        "label": "by hand",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "n": 1,
        "slots": [0],
        "trace": None,
    }
    assert [each["slots"] for each in shown.pop("holders")] == [[0], [1, 2]]
    assert shown == {"name": "api", "kind": "semaphore", "limit": 3, "in_use": 3, "waiters": 0}
    assert json.loads(call("ls", *SEMAPHORE, "--json").stdout)[0]["name"] == "api"


@pytest.mark.usefixtures("readers")
def test_a_read_write_lock_is_shown_without_its_inner_limit(call: Call) -> None:
    shown = json.loads(call("show", "config", *RWLOCK, "--json").stdout)
    assert {(each["mode"], each["label"]) for each in shown.pop("holders")} == {("read", "a reader")}
    assert shown == {"name": "config", "kind": "rwlock", "mode": "read", "waiters": 0}
    printed = call("show", "config", *RWLOCK).stdout
    assert "2 readers" in printed
    assert "MODE" in printed


@pytest.mark.parametrize("kind", ["semaphore", "rwlock"])
def test_what_nobody_holds_is_66(kind: str, client: gripfast.Client, call: Call) -> None:
    with client.lock("api"):
        ended = call("show", "api", "--kind", kind)
        assert (ended.returncode, ended.stdout) == (66, "")
        assert ended.stderr.endswith("but there is a lock of that name: add --kind lock\n")
        assert json.loads(call("show", "api", "--kind", kind, "--json").stdout) is None
        assert call("break", "api", "--kind", kind, "--yes").returncode == 66
    assert call("show", "api", "--kind", kind).stderr.endswith(f"gripfast ls --kind {kind}\n")


def test_a_store_without_semaphores_is_wrong_usage(call: Call) -> None:
    ended = call("ls", *SEMAPHORE, "--url", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
    assert (ended.returncode, "can't keep semaphores" in ended.stderr) == (64, True)


def test_break_frees_all_permits(full: list[gripfast.SemaphoreLease], client: gripfast.Client, call: Call) -> None:
    ended = call("break", "api", *SEMAPHORE, "--yes", "--reason", "deploy of v2")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("'api' is no longer held by \"by hand\", pid ")
    assert ended.stdout.endswith(" and 1 other: 3 of 3 permits\n")
    assert client.inspect("api", "semaphore") is None
    with pytest.raises(gripfast.LeaseLost) as caught:
        full[1].extend()
    assert caught.value.note == "deploy of v2"


def test_break_by_slot_leaves_the_others(
    full: list[gripfast.SemaphoreLease], client: gripfast.Client, call: Call
) -> None:
    told = json.loads(call("break", "api", *SEMAPHORE, "--slot", "2", "--yes", "--json").stdout)
    assert [each["owner"] for each in told.pop("holders")] == [full[1].owner]
    assert told == {"name": "api", "kind": "semaphore", "broken": True}
    info = client.inspect("api", "semaphore")
    assert info is not None
    assert [each.owner for each in info.holders] == [full[0].owner]
    ended = call("break", "api", *SEMAPHORE, "--slot", "2", "--yes")
    assert (ended.returncode, "nobody holds slot 2 of 'api'" in ended.stderr) == (66, True)


def test_break_by_owner_leaves_the_others(readers: list[gripfast.Lease], client: gripfast.Client, call: Call) -> None:
    assert call("break", "config", *RWLOCK, "--owner", readers[0].owner, "--yes").returncode == 0
    info = client.inspect("config", "rwlock")
    assert info is not None
    assert [each.owner for each in info.holders] == [readers[1].owner]
    ended = call("break", "config", *RWLOCK, "--owner", "nobody", "--yes")
    assert (ended.returncode, "nobody holds 'config' as 'nobody'" in ended.stderr) == (66, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--slot", "1"], "A lock has one holder"),
        (["--owner", "x"], "A lock has one holder"),
        ([*SEMAPHORE, "--slot", "1", "--owner", "x"], "Use --owner or --slot, not both."),
        ([*RWLOCK, "--slot", "1"], "A read/write lock has no slots"),
        ([*SEMAPHORE], "--yes"),
    ],
)
def test_break_refuses_what_makes_no_sense(call: Call, options: list[str], words: str) -> None:
    yes = [] if words == "--yes" else ["--yes"]
    ended = call("break", "api", *options, *yes)
    assert (ended.returncode, words in ended.stderr) == (64, True)


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1)])
def test_break_asks_first(
    answer: str, status: int, full: list[gripfast.SemaphoreLease], client: gripfast.Client
) -> None:
    """Whoever comes while it asks keeps the permit."""
    with on_terminal(*GRIPFAST, "break", "api", *SEMAPHORE) as terminal:
        terminal.shows(r"by hand[^?]*\? [^?]*\[y/N\]: ")
        full[1].release()
        newcomer = client.semaphore("api", 3).acquire()
        terminal.type(answer)
        assert terminal.status() == status
    info = client.inspect("api", "semaphore")
    assert info is not None
    assert {each.owner for each in info.holders} == {newcomer.owner, *([full[0].owner] if status else [])}


@pytest.mark.usefixtures("full", "readers")
def test_bash_completes_names_of_the_kind(bash: Bash) -> None:  # noqa: F811
    assert bash.completes("gripfast show --kind semaphore a") == ["api"]
    assert bash.completes("gripfast run --read c") == ["config"]
    assert bash.completes("gripfast break a") == []
    assert bash.completes("gripfast ls --kind s") == ["semaphore"]
