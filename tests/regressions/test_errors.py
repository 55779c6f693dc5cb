"""What must be refused with a clear error, and what must not fail at all."""

from __future__ import annotations

import asyncio
import pwd
import tempfile
from pathlib import Path

import pytest

import gripfast
from gripfast.core.ports import Claim, Granted, Hold
from gripfast.stores.inboxes import BlockingInbox
from gripfast.stores.memory.engine import MemoryEngine
from gripfast.stores.sqlite.engine import SqliteEngine

# -- the wake folder ---------------------------------------------------------------------------------------------------


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private folder with a file in it; temporary files of the test stay in the test's own folder."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    (folder / "key").write_text("precious")
    return folder


def while_someone_waits(path: Path, look_at: Path) -> list[str]:
    """What is in a folder after a waiter has made the wake folder and cleared away what was left there."""
    engine = SqliteEngine(path, "normal", 5.0)
    engine.claim(Claim("job", "a", 30.0, None, None))
    engine.claim(Claim("job", "b", 30.0, None, BlockingInbox()))
    found = sorted(file.name for file in look_at.iterdir())
    engine.close()
    return found


def test_a_file_in_the_wake_folder_that_is_no_socket_is_left_alone(tmp_path: Path, private: Path) -> None:
    wake = private.rename(tmp_path / "locks.db-wake")
    assert "key" in while_someone_waits(tmp_path / "locks.db", look_at=wake)


def test_a_link_in_the_place_of_the_wake_folder_is_not_followed(tmp_path: Path, private: Path) -> None:
    (tmp_path / "locks.db-wake").symlink_to(private)
    assert while_someone_waits(tmp_path / "locks.db", look_at=private) == ["key"]


# -- where locks are kept ----------------------------------------------------------------------------------------------


def test_a_path_that_was_given_works_without_any_home_directory(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with gripfast.connect(sqlite_url) as client, client.lock("job") as lease:
        assert lease.held


def test_a_state_directory_that_can_not_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with (
        gripfast.connect(request_timeout=0.05) as client,
        pytest.raises((gripfast.StoreUnavailable, gripfast.ConfigurationError), match=str(tmp_path / "file")),
    ):
        client.lock("job").try_acquire()


# -- loops and lines ---------------------------------------------------------------------------------------------------


def test_a_client_is_not_closed_from_another_event_loop(url: str) -> None:
    client = gripfast.connect_async(url)

    async def use() -> None:
        async with client.lock("job"):
            pass

    asyncio.run(use())
    with pytest.raises(gripfast.ConfigurationError, match="event loop"):
        asyncio.run(client.aclose())


def test_a_long_line_of_waiters_who_are_gone_is_passed_over() -> None:
    engine = MemoryEngine()
    engine.claim(Claim("job", "holder", 30.0, None, None))
    for number in range(1500):
        engine.claim(Claim("job", f"gone {number}", 30.0, None, BlockingInbox()))  # nobody keeps its inbox
    assert engine.release(Hold("job", "holder", 30.0)) is None
    assert isinstance(engine.claim(Claim("job", "next", 30.0, None, None)), Granted)
