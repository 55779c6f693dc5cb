"""Where the embedded store's file is, who may read it, and what is said where there can be none."""

import pwd
import stat
from pathlib import Path
from urllib.parse import quote

import pytest

import gripfast
from gripfast.stores.sqlite import files
from gripfast.stores.sqlite.files import default_path, remote_filesystem_of


def acquire(url: str | Path | None) -> None:
    with gripfast.connect(f"sqlite:///{url}" if url else None) as client:
        client.lock("job").acquire(wait=1).release()


def test_a_file_made_through_a_dangling_link_is_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to("other.db")
    (tmp_path / "other.db").symlink_to(tmp_path / "real" / "locks.db")
    with gripfast.connect(f"sqlite:///{tmp_path}/link.db") as client, client.lock("job"):
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "real").iterdir()}
    assert modes == {"locks.db": 0o600, "locks.db-wal": 0o600, "locks.db-shm": 0o600}


def test_a_link_into_a_folder_that_is_missing_says_which(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "missing" / "locks.db")
    with pytest.raises(gripfast.ConfigurationError, match=f"the folder {tmp_path}/missing does not exist"):
        acquire(tmp_path / "link.db")


def test_a_link_to_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "share").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "share" / "locks.db")
    monkeypatch.setattr(files, "_network_file_system", lambda folder: "nfs4" if folder.endswith("/share") else "")
    with pytest.raises(gripfast.ConfigurationError, match="nfs4"):
        acquire(tmp_path / "link.db")


def test_a_file_that_vanishes_before_it_is_opened_is_not_made_for_everyone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gripfast.stores.sqlite.connections.files.prepare", lambda path: None)
    with (
        gripfast.connect(f"sqlite:///{tmp_path}/locks.db", request_timeout=0.1) as client,
        pytest.raises(gripfast.StoreUnavailable),
    ):
        client.lock("job").try_acquire()
    assert not (tmp_path / "locks.db").exists()


@pytest.mark.parametrize("name", ["50% ?mode=memory#1 &x=y.db", "ümläut.db"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    acquire(quote(str(tmp_path / name)))
    assert (tmp_path / name).exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_folder_that_takes_no_files_is_not_said_to_be_missing() -> None:
    with pytest.raises(gripfast.ConfigurationError, match=r"can't create a file in /proc .*: choose a file"):
        acquire("/proc/locks.db")


def test_a_relative_state_directory_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert default_path() == tmp_path / ".local/state/gripfast/locks.db"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert default_path() == tmp_path / "state/gripfast/locks.db"


@pytest.mark.parametrize("home", [None, "relative"])
def test_without_a_home_directory_it_is_said_what_to_set(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    if home:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(gripfast.ConfigurationError, match=r"no home directory.*GRIPFAST_URL"):
        gripfast.connect()


ON_MACOS = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse, protect, root data)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
//me@server/share on /Volumes/share (smbfs, nodev, nosuid, mounted by me)
server:/a (b) on /Volumes/a on b (nfs, nodev, nosuid, mounted by me)
me@host: on /Volumes/ssh (macfuse, nodev, nosuid, synchronous, mounted by me)
/dev/disk5s1 on /Volumes/share/inner (exfat, local, nodev, nosuid, noowners)
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/Users/me", ""),
        ("/System/Volumes/Data/home/me", "autofs"),
        ("/Volumes/share/locks", "smbfs"),
        ("/Volumes/shared", ""),
        ("/Volumes/a on b", "nfs"),
        ("/Volumes/ssh/x", "macfuse"),
        ("/Volumes/share/inner", ""),
    ],
)
def test_macos_says_which_file_systems_are_not_local(folder: str, kind: str) -> None:
    assert remote_filesystem_of(folder, ON_MACOS) == kind
