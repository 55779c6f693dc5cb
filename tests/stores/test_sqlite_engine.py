"""What only the embedded store has to get right: other boots, dead processes, deaf waiters, idle names, its file."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gripfast
from gripfast import machine
from gripfast.core.ports import Broken, Claim, Granted, Hold, Inbox, Keep, Taken
from gripfast.stores.inboxes import BlockingInbox
from gripfast.stores.sqlite.engine import SqliteEngine
from gripfast.stores.sqlite.files import filesystem_of
from support.waiting import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def engine(path: Path) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(path, "normal", 5.0)
    yield engine
    engine.close()


def claim(engine: SqliteEngine, owner: str, ttl: float = 30.0, inbox: Inbox | None = None) -> Granted | Taken:
    return engine.claim(Claim("job", owner, ttl, None, inbox))


def change(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    connection.close()


def count(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    (number,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    connection.close()
    return int(number)


# -- other boots ------------------------------------------------------------------------------------------------------


def test_a_row_of_another_boot_counts_as_held_until_it_was_watched_for_its_ttl(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted = claim(engine, "a", ttl=5.0)
    assert isinstance(granted, Granted)
    # Written by another boot, long ago on our clock: only watching it tells anything.
    change(path, "UPDATE gripfast_lock SET boot = 'another', expires = 0, card = ''")
    assert isinstance(claim(engine, "b"), Taken)
    began = machine.shared_boottime()
    monkeypatch.setattr(machine, "shared_boottime", lambda: began + 4.9)
    assert isinstance(claim(engine, "b"), Taken)
    monkeypatch.setattr(machine, "shared_boottime", lambda: began + 5.1)
    answer = claim(engine, "b")
    assert isinstance(answer, Granted)
    assert answer.token > granted.token


def test_a_row_of_another_boot_that_changes_is_watched_anew(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(engine, "a", ttl=5.0)
    change(path, "UPDATE gripfast_lock SET boot = 'another', expires = 0, card = ''")
    assert isinstance(claim(engine, "b"), Taken)
    change(path, "UPDATE gripfast_lock SET expires = 7, watched_by = NULL")  # what a renewal over there does
    began = machine.shared_boottime()
    monkeypatch.setattr(machine, "shared_boottime", lambda: began + 5.1)
    assert isinstance(claim(engine, "b"), Taken)


def test_waiters_of_another_boot_have_left(engine: SqliteEngine, path: Path) -> None:
    claim(engine, "a")
    claim(engine, "b", inbox=BlockingInbox())
    change(path, "UPDATE gripfast_waiter SET boot = 'another', card = ''")
    assert engine.release(Hold("job", "a", 30.0)) is None
    assert isinstance(claim(engine, "c"), Granted)


# -- dead and unknown processes ---------------------------------------------------------------------------------------


def dead_process() -> machine.Process:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    here = machine.this_process()
    return machine.Process(here.machine, here.boot, here.namespace, child.pid, "1")


def test_a_process_that_has_ended_is_gone() -> None:
    assert machine.is_gone(dead_process())


def test_this_process_is_not_gone() -> None:
    assert not machine.is_gone(machine.this_process())


@pytest.mark.parametrize("field", ["machine", "boot", "namespace"])
def test_a_process_that_can_not_be_compared_is_unknown(field: str) -> None:
    dead = dead_process()
    fields = {name: getattr(dead, name) for name in ("machine", "boot", "namespace", "pid", "started")}
    assert not machine.is_gone(machine.Process(**(fields | {field: "another"})))


def test_a_pid_that_was_given_to_someone_else_is_gone() -> None:
    here, parent = machine.this_process(), os.getppid()
    other = machine.Process(here.machine, here.boot, here.namespace, parent, "1")
    assert machine.is_gone(other)
    assert not machine.is_gone(machine.Process(here.machine, here.boot, here.namespace, parent, ""))


def test_a_process_one_may_not_look_at_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(pid: int, signal: int) -> None:
        raise PermissionError

    dead = dead_process()
    monkeypatch.setattr(os, "kill", forbidden)
    assert not machine.is_gone(dead)


def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = machine.this_process()
    process = machine.Process(here.machine, here.boot, here.namespace, child.pid, machine.start_time(child.pid) or "")
    assert not machine.is_gone(process)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert machine.is_gone(process)
    child.communicate()


def test_a_lock_whose_holder_was_vouched_for_is_free_only_when_both_are_gone(engine: SqliteEngine, path: Path) -> None:
    claim(engine, "a")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    engine.vouch(Hold("job", "a", 30.0), child.pid)
    here = machine.this_process()
    dead = dead_process()
    change(path, "UPDATE gripfast_lock SET card = replace(card, ?, ?)", f"{here.pid}, ", f"{dead.pid}, ")
    assert isinstance(claim(engine, "b"), Taken)
    child.communicate()
    assert isinstance(claim(engine, "b"), Granted)


# -- waking ------------------------------------------------------------------------------------------------------------


def test_a_hand_over_reaches_the_waiter_in_its_inbox(engine: SqliteEngine) -> None:
    first = claim(engine, "a")
    inbox = BlockingInbox()
    claim(engine, "b", inbox=inbox)
    engine.release(Hold("job", "a", 30.0))
    pushed = inbox.get(timeout=5)
    assert isinstance(first, Granted)
    assert pushed is not None
    assert pushed.token > first.token


def test_a_waiter_whose_address_is_dead_is_passed_over_and_keeps_its_place(engine: SqliteEngine, path: Path) -> None:
    claim(engine, "a")
    deaf, other = BlockingInbox(), BlockingInbox()
    claim(engine, "deaf", inbox=deaf)
    claim(engine, "other", inbox=other)
    change(path, "UPDATE gripfast_waiter SET address = ? WHERE owner = 'deaf'", str(path) + "-nobody")
    engine.release(Hold("job", "a", 30.0))
    assert other.get(timeout=5) is not None
    claim(engine, "late", inbox=BlockingInbox())
    claim(engine, "deaf", inbox=deaf)  # it queries again, with an address that works
    engine.release(Hold("job", "other", 30.0))
    assert deaf.get(timeout=5) is not None


def test_a_waiter_that_never_hears_its_push_finds_the_grant_by_asking(engine: SqliteEngine) -> None:
    claim(engine, "a")
    claim(engine, "b", inbox=BlockingInbox())  # the inbox is dropped: nobody hears
    engine.release(Hold("job", "a", 30.0))
    assert isinstance(claim(engine, "b", inbox=BlockingInbox()), Granted)


def test_sockets_of_killed_processes_are_cleared_away(engine: SqliteEngine, path: Path) -> None:
    folder = path.with_name(path.name + "-wake")
    claim(engine, "a")
    claim(engine, "b", inbox=BlockingInbox())
    (left,) = folder.iterdir()
    script = f"import socket, os; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind({str(folder / 'dead')!r})"
    subprocess.run([sys.executable, "-c", script], check=True)
    another = SqliteEngine(path, "normal", 5.0)
    claim(another, "c", inbox=BlockingInbox())
    assert not (folder / "dead").exists()
    assert left.exists()
    another.close()
    until(lambda: list(folder.iterdir()) == [left])


def test_a_path_too_long_for_an_address_still_gets_wake_ups(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    engine = SqliteEngine(folder / "locks.db", "normal", 5.0)
    inbox = BlockingInbox()
    claim(engine, "a")
    claim(engine, "b", inbox=inbox)
    engine.release(Hold("job", "a", 30.0))
    assert inbox.get(timeout=5) is not None
    engine.close()


# -- idle names and the file -------------------------------------------------------------------------------------------


def test_idle_names_are_forgotten_after_a_day_and_not_before(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        engine.claim(Claim(f"job {number}", "a", 30.0, None, None))
        engine.release(Hold(f"job {number}", "a", 30.0))
    claim(engine, "holder")
    engine._connections.run(engine._sweep)
    assert count(path, "gripfast_lock") == 21
    tomorrow = machine.wall_us() + 86_500_000_000
    monkeypatch.setattr(machine, "wall_us", lambda: tomorrow)
    engine._connections.run(engine._sweep)
    assert count(path, "gripfast_lock") == 1


def test_the_reason_of_a_force_release_is_forgotten_after_a_day(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(engine, "a")
    before = count(path, "gripfast_meta")
    assert engine.force_release("job", "deploy of v2")
    engine._connections.run(engine._sweep)
    assert engine.renew([Hold("job", "a", 30.0)]) == [Broken("deploy of v2")]
    tomorrow = machine.wall_us() + 86_500_000_000
    monkeypatch.setattr(machine, "wall_us", lambda: tomorrow)
    engine._connections.run(engine._sweep)
    assert count(path, "gripfast_meta") == before + 1  # how far it has swept
    assert engine.release(Hold("job", "a", 30.0)) in ("broken", "taken")


def test_a_clock_that_jumped_back_does_not_make_a_smaller_token(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = claim(engine, "a")
    engine.release(Hold("job", "a", 30.0))
    monkeypatch.setattr(machine, "wall_us", lambda: 1)
    second = claim(engine, "b")
    assert isinstance(first, Granted)
    assert second == Granted(first.token + 1, 30.0)


def test_only_its_owner_can_read_the_file(engine: SqliteEngine, path: Path) -> None:
    claim(engine, "a")
    for file in path.parent.glob("locks.db*"):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_a_file_that_was_deleted_under_it_is_noticed(engine: SqliteEngine, path: Path) -> None:
    claim(engine, "a")
    for file in [path, *path.parent.glob("locks.db-*")]:
        if file.is_file():
            file.unlink()
    fresh = SqliteEngine(path, "normal", 5.0)
    assert isinstance(claim(fresh, "b"), Granted)
    until(lambda: isinstance(claim(engine, "c"), Taken))
    fresh.close()


def test_the_line_is_known_to_the_fast_path(engine: SqliteEngine, path: Path) -> None:
    """The fast path must neither pass a line nor leave one waiting for its slow ask."""
    claim(engine, "a")
    waiting = BlockingInbox()
    claim(engine, "b", inbox=waiting)
    assert engine._connections.run(engine._release_alone, Hold("job", "a", 30.0)) is False
    engine.abandon([Hold("job", "b", 30.0)])
    assert engine._connections.run(engine._release_alone, Hold("job", "a", 30.0)) is True


MOUNTS = """
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 21 0:35 / /srv/share rw shared:2 - nfs4 server:/share rw
41 21 0:36 / /srv/with\\040space rw shared:2 - cifs //server/x rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/home/me", "ext4"), ("/srv/share/locks", "nfs4"), ("/srv/shared", "ext4"), ("/srv/with space", "cifs")],
)
def test_the_file_system_of_a_folder_is_that_of_its_nearest_mount(folder: str, kind: str) -> None:
    assert filesystem_of(folder, MOUNTS.strip()) == kind


def test_a_network_file_system_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gripfast.stores.sqlite.files._network_file_system", lambda folder: "nfs4")
    with gripfast.connect(f"sqlite:///{path}") as client, pytest.raises(gripfast.ConfigurationError, match="nfs4"):
        client.lock("job").acquire(wait=1)


def test_a_prefix_keeps_name_spaces_apart(path: Path) -> None:
    with (
        gripfast.connect(f"sqlite:///{path}", prefix="a:") as a,
        gripfast.connect(f"sqlite:///{path}?prefix=b:") as b,
        gripfast.connect(f"sqlite:///{path}") as bare,
        a.lock("job"),
        b.lock("job"),
    ):
        assert [info.name for info in a.list()] == ["job"]
        assert [info.name for info in bare.list()] == ["a:job", "b:job"]
        info = bare.inspect("b:job")
        assert info is not None
        assert a.inspect("job") is not None
        with pytest.raises(gripfast.LockTimeout) as caught:
            a.lock("job").acquire(wait=0)
        assert caught.value.holder is not None
        assert caught.value.holder.name == "job"


def test_opening_another_connection_keeps_the_locks_of_the_first(engine: SqliteEngine, path: Path) -> None:
    """Closing any descriptor of the file drops the process's locks on it, and the next one to leave removes the log."""
    claim(engine, "a")
    engine._connections._open().close()
    visit = "import gripfast, sys; gripfast.connect(sys.argv[1]).inspect('job')"
    subprocess.run([sys.executable, "-c", visit, f"sqlite:///{path}"], check=True)
    assert path.with_name("locks.db-wal").exists()


# -- what is kept after a release ------------------------------------------------------------------------------------


def kept(engine: SqliteEngine, seconds: float) -> None:
    claim(engine, "mine")
    assert engine.release(Hold("job", "mine", 5.0, keep=Keep("kept:mine", seconds))) is None


def test_what_is_kept_survives_a_reboot(engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time runs on the wall clock, and no process has to live for it."""
    kept(engine, 60.0)
    wall = machine.wall_us()
    monkeypatch.setattr(machine, "boot_id", lambda: "another boot")
    monkeypatch.setattr(machine, "shared_boottime", lambda: 5.0)
    after = SqliteEngine(path, "normal", 5.0)
    for passed, left in ((50, 10), (59, 1)):
        monkeypatch.setattr(machine, "wall_us", lambda passed=passed: wall + passed * 1_000_000)
        info = after.inspect("job")
        assert info is not None
        assert info.expires_in == pytest.approx(left, abs=0.5)
        assert isinstance(claim(after, "other"), Taken)
    monkeypatch.setattr(machine, "wall_us", lambda: wall + 61_000_000)
    assert isinstance(claim(after, "other"), Granted)
    after.close()


def test_a_kept_row_names_no_process(engine: SqliteEngine) -> None:
    kept(engine, 60.0)
    info = engine.inspect("job")
    assert info is not None
    assert (info.pid, info.kept) == (0, "min_hold")
    assert info.host


def test_a_version_that_does_not_know_markers_waits_at_least_as_long(engine: SqliteEngine, path: Path) -> None:
    """It takes the row for one of another boot."""
    kept(engine, 60.0)
    connection = sqlite3.connect(path)
    boot, ttl = connection.execute("SELECT boot, ttl FROM gripfast_lock WHERE name = 'job'").fetchone()
    connection.close()
    assert boot != machine.boot_id()
    assert ttl == 60.0


def test_a_repeated_request_to_keep_is_recognised(engine: SqliteEngine) -> None:
    kept(engine, 60.0)
    assert engine.release(Hold("job", "mine", 5.0, keep=Keep("kept:mine", 60.0))) is None
    assert engine.release(Hold("job", "mine", 5.0)) == "taken"
    assert engine.release(Hold("job", "another", 5.0, keep=Keep("kept:another", 60.0))) == "taken"


def test_what_was_kept_is_forgotten_like_any_other_name(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(engine, 60.0)
    wall = machine.wall_us()
    monkeypatch.setattr(machine, "wall_us", lambda: wall + 2 * 24 * 3600 * 1_000_000)
    engine._connections.run(engine._sweep)
    assert count(path, "gripfast_lock") == 0
