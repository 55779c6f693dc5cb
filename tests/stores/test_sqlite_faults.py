"""A database that is locked, read-only, full, newer, no database or damaged gives a clear error and loses nothing."""

import asyncio
import contextlib
import gc
import json
import logging
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gripfast
from support.processes import Worker
from support.waiting import until

ADVICE = re.compile(
    r"\b(wait|close|stop|end|check|free|make|move|use|choose|upgrade|update|install|give|delete|remove|restore|see|find|name|point|set)\b",
    re.IGNORECASE,
)

Attempt = Callable[[Path], Exception | None]


def try_blocking(path: Path) -> Exception | None:
    try:
        with gripfast.connect(f"sqlite:///{path}", request_timeout=0.3) as client:
            lease = client.lock("job").try_acquire()
            assert lease is not None
    except gripfast.GripfastError as error:
        return error
    return None


def try_asyncio(path: Path) -> Exception | None:
    async def main() -> None:
        async with gripfast.connect_async(f"sqlite:///{path}", request_timeout=0.3) as client:
            lease = await client.lock("job").try_acquire()
            assert lease is not None

    try:
        asyncio.run(main())
    except gripfast.GripfastError as error:
        return error
    return None


@pytest.fixture(params=[try_blocking, try_asyncio], ids=["blocking", "asyncio"])
def attempt(request: pytest.FixtureRequest) -> Attempt:
    return request.param


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with some history, closed properly: one file, nothing beside it."""
    path = tmp_path / "locks.db"
    with gripfast.connect(f"sqlite:///{path}") as client:
        for number in range(50):
            client.lock(f"job-{number}-{'x' * 300}").acquire().release()
        client.lock("job").acquire().release()
    return path


@pytest.fixture(autouse=True)
def nothing_unexpected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever is wrong with the file, no thread in the background stumbles over it."""
    yield
    stumbles = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert stumbles == []


def assert_clear(error: Exception | str | None, path: Path, says: str) -> None:
    """It names the file, says what is wrong, and what to do."""
    assert error is not None, "nothing was raised"
    if isinstance(error, Exception):
        assert isinstance(error, gripfast.StoreUnavailable | gripfast.ConfigurationError), repr(error)
    message = str(error)
    assert str(path) in message
    assert re.search(says, message, re.IGNORECASE), message
    assert ADVICE.search(message.replace(str(path), "")), f"it does not say what to do: {message}"


@contextlib.contextmanager
def locked_by_another_program(path: Path) -> Iterator[Worker]:
    with Worker("block.py", path) as program:
        program.expect("locked")
        yield program


# Not a database we can use: refused, and left as it is --------------------------------------------------------------


def test_a_database_of_a_newer_version_is_refused_and_left_alone(path: Path, attempt: Attempt) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE gripfast_meta SET value = value + 1 WHERE key = 'schema'")
        connection.commit()
    before = path.read_bytes()
    assert_clear(attempt(path), path, r"newer")
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"hello\n", b"These are my notes.\n" * 1000], ids=["short", "long"])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, attempt: Attempt, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert_clear(attempt(path), path, r"not a (\w+ )?database")
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_database_of_another_program_keeps_everything_that_is_in_it(tmp_path: Path, attempt: Attempt) -> None:
    path = tmp_path / "accounts.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)")
        connection.execute("INSERT INTO account VALUES (1, 100)")
        connection.execute("PRAGMA user_version = 7")
        connection.commit()
    attempt(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM account").fetchall() == [(1, 100)]
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)


@pytest.mark.parametrize("keep", [0.5, 0.25, 0.03], ids=["half", "a quarter", "less than a page"])
def test_a_truncated_database_is_refused_and_left_alone(path: Path, attempt: Attempt, keep: float) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    before = path.read_bytes()
    assert_clear(attempt(path), path, r"damaged|malformed|corrupt|not a (\w+ )?database")
    assert path.read_bytes() == before
    path.write_bytes(whole)
    assert attempt(path) is None


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path, attempt: Attempt) -> None:
    assert_clear(attempt(tmp_path), tmp_path, r"folder|directory|open")
    assert os.listdir(tmp_path) == []


# Locked by another program ------------------------------------------------------------------------------------------


def test_a_database_locked_by_another_program_is_reported_when_the_request_has_had_its_time(
    path: Path, attempt: Attempt
) -> None:
    with locked_by_another_program(path):
        started = time.monotonic()
        error = attempt(path)
        assert 0.25 < time.monotonic() - started < 5.0
        assert isinstance(error, gripfast.StoreUnavailable)
        assert_clear(error, path, r"locked|busy")
    assert attempt(path) is None


def test_an_acquire_without_limit_gives_a_locked_database_its_connect_patience(path: Path) -> None:
    with (
        locked_by_another_program(path),
        gripfast.connect(f"sqlite:///{path}", request_timeout=0.1, connect_patience=0.5) as client,
    ):
        started = time.monotonic()
        with pytest.raises(gripfast.StoreUnavailable) as caught:
            client.lock("job").acquire()
        assert 0.45 < time.monotonic() - started < 3.0
    assert_clear(caught.value, path, r"locked|busy")


def test_an_acquire_that_waits_gets_the_lock_when_the_other_program_lets_go(path: Path) -> None:
    with (
        locked_by_another_program(path) as program,
        gripfast.connect(f"sqlite:///{path}", request_timeout=0.1) as client,
    ):
        with pytest.raises(gripfast.StoreUnavailable):
            client.lock("job").try_acquire()
        program.say("unlock")
        client.lock("job").acquire(wait=10.0).release()


def test_a_lease_outlives_a_database_that_was_locked_for_a_while(path: Path) -> None:
    """Renewals fail meanwhile; they go on afterwards, because the deadline was not reached."""
    with gripfast.connect(f"sqlite:///{path}", request_timeout=0.1) as client:
        lease = client.lock("job", ttl=3.0).acquire()
        with locked_by_another_program(path) as program:
            until(lambda: lease.remaining() < 1.5)
            program.say("unlock")
            program.expect("unlocked")
        until(lambda: lease.remaining() > 2.0)
        lease.release()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A dropped lease is given back when its last reference goes: that must not take the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def errors_kept_alive() -> list[Exception]:
    """Their tracebacks keep the frames in which they were raised, and everything those frames had in hand."""
    errors = [each for each in gc.get_objects() if isinstance(each, sqlite3.Error | gripfast.StoreUnavailable)]
    ours = (each for each in errors if isinstance(each, sqlite3.Error) or "sqlite" in str(each))
    return list(ours)  # tests of other stores may keep some of theirs


@pytest.mark.usefixtures("no_collector")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_lease_dropped_after_its_claim_found_the_file_locked_is_given_back(path: Path) -> None:
    with gripfast.connect(f"sqlite:///{path}") as client, gripfast.connect(f"sqlite:///{path}") as other:
        client.lock("warm-up").acquire().release()
        with locked_by_another_program(path) as program:
            unlock = threading.Timer(0.1, program.say, ["unlock"])
            unlock.start()
            client.lock("job").acquire(wait=10.0)
            unlock.join()
        other.lock("job").acquire(wait=1.0).release()
        assert errors_kept_alive() == []


@pytest.mark.usefixtures("no_collector")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_lease_dropped_after_a_renewal_that_failed_is_given_back_and_not_renewed_for_ever(path: Path) -> None:
    with (
        gripfast.connect(f"sqlite:///{path}", request_timeout=0.05) as client,
        gripfast.connect(f"sqlite:///{path}") as other,
    ):
        kept = [client.lock("job", ttl=3.0).acquire()]
        with locked_by_another_program(path) as program:
            until(lambda: kept[0].remaining() < 1.6)
            program.say("unlock")
            program.expect("unlocked")
        until(lambda: kept[0].remaining() > 2.5)
        kept.clear()
        other.lock("job").acquire(wait=1.0).release()


def test_a_release_while_the_database_is_locked_does_not_fail_and_is_made_good(path: Path) -> None:
    with gripfast.connect(f"sqlite:///{path}", request_timeout=0.1) as client:
        with contextlib.ExitStack() as stack:
            with client.lock("job"):
                program = stack.enter_context(locked_by_another_program(path))
            program.say("unlock")
            program.expect("unlocked")
        with gripfast.connect(f"sqlite:///{path}") as other:
            other.lock("job").acquire(wait=2.0).release()


def test_the_event_loop_goes_on_while_the_database_is_locked(path: Path) -> None:
    async def main() -> int:
        turns = 0
        async with gripfast.connect_async(f"sqlite:///{path}", request_timeout=0.5) as client:
            asking = asyncio.create_task(client.lock("job").try_acquire())
            while not asking.done():
                await asyncio.sleep(0)
                turns += 1
            with pytest.raises(gripfast.StoreUnavailable):
                await asking
        return turns

    with locked_by_another_program(path):
        assert asyncio.run(main()) > 1000


# Not allowed to write -----------------------------------------------------------------------------------------------


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Unlike pytest's own folders, one that other users may enter."""
    folder = Path(tempfile.mkdtemp(prefix="gripfast-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def refused_outsider(path: Path, tmp_path: Path) -> str:
    with Worker("outsider.py", f"sqlite:///{path}", f"sqlite:///{tmp_path}/warm-up.db") as outsider:
        kind, message = json.loads(" ".join(outsider.expect("refused")))
        assert outsider.ended() == 0
    assert kind in ("StoreUnavailable", "ConfigurationError")
    return str(message)


def test_a_folder_that_may_not_be_written_gives_a_clear_error(public_folder: Path, tmp_path: Path) -> None:
    public_folder.chmod(0o555)
    path = public_folder / "locks.db"
    assert_clear(refused_outsider(path, tmp_path), path, r"writ|permission|open")
    assert os.listdir(public_folder) == []


@pytest.mark.parametrize("mode", [0o644, 0o600], ids=["may be read", "may not be read"])
def test_a_file_that_may_not_be_written_gives_a_clear_error_and_keeps_its_locks(
    public_folder: Path, tmp_path: Path, path: Path, mode: int
) -> None:
    theirs = Path(shutil.copy(path, public_folder / "locks.db"))
    theirs.chmod(0o444 if os.geteuid() and mode == 0o644 else mode)
    if os.geteuid():
        public_folder.chmod(0o555)
    before = theirs.read_bytes()
    assert_clear(refused_outsider(theirs, tmp_path), theirs, r"read-?only|writ|permission|open")
    assert theirs.read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user who may not write beside one who may: root and nobody")
def test_an_outsider_does_not_disturb_who_holds_the_lock(public_folder: Path, tmp_path: Path) -> None:
    path = public_folder / "locks.db"
    with gripfast.connect(f"sqlite:///{path}") as client, client.lock("job") as lease:
        path.chmod(0o644)
        assert_clear(refused_outsider(path, tmp_path), path, r"read-?only|writ|permission|open")
        lease.extend(20)
        info = client.inspect("job")
        assert info is not None
        assert info.token == lease.token


# No room left -------------------------------------------------------------------------------------------------------


def private_mounts() -> bool:
    """May this user mount a file system that nobody else sees?"""
    command = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


def assert_survived(worker: Worker, path: Path) -> None:
    kind, message = json.loads(" ".join(worker.expect("refused", within=40.0)))
    assert kind == "StoreUnavailable"
    assert_clear(message, path, r"full|space|room|I/O|grow")
    assert worker.expect("kept") == ["True", "True"]
    assert worker.expect("again") == ["True", "True"]
    worker.expect("closed")
    assert worker.ended() == 0


def test_a_file_that_may_not_grow_gives_a_clear_error_and_loses_no_lock(tmp_path: Path) -> None:
    with Worker("fill.py", "small files", tmp_path) as worker:
        assert_survived(worker, tmp_path / "locks.db")


@pytest.mark.skipif(not private_mounts(), reason="needs the right to mount a file system; the test above does not")
def test_a_full_disk_gives_a_clear_error_and_loses_no_lock(tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o size=512k none "{tmp_path}" && exec "$@"'
    with Worker("fill.py", "full disk", tmp_path, wrapper=["unshare", "--mount", "sh", "-c", mount, "-"]) as worker:
        assert_survived(worker, tmp_path / "locks.db")
