"""Where the embedded store's file may live, and that it is made for its owner alone."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
from pathlib import Path

from gripfast.errors import ConfigurationError, StoreUnavailable

_NETWORK = """
    9p afs beegfs ceph cifs coda davfs fuse.cephfs fuse.davfs2 fuse.gcsfuse fuse.glusterfs fuse.goofys fuse.juicefs
    fuse.moosefs fuse.rclone fuse.s3fs fuse.smbnetfs fuse.sshfs fuse.vmhgfs-fuse glusterfs gpfs lustre ncpfs nfs nfs4
    orangefs prl_fs smb3 smbfs vboxsf virtiofs vmhgfs
"""


def default_path() -> Path:
    """The user's state directory, as the system has it."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "gripfast" / "locks.db"


def prepare(path: Path) -> None:
    """Make the file if it is missing, readable and writable by its owner only."""
    try:
        if _is_default(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_network(path)
        if not path.exists():
            _make_private(path)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: the folder {path.parent} does not exist; make it first") from None
    except OSError as error:
        raise StoreUnavailable(
            f"embedded store {path}: {error.strerror}; check the owner and mode of the file and its folder",
            {str(path): str(error)},
        ) from error
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file")


def _is_default(path: Path) -> bool:
    try:
        return path == default_path()
    except RuntimeError:  # there is no home directory
        return False


def _make_private(path: Path) -> None:
    """Made under another name and linked: nobody but SQLite may ever open the file itself.

    POSIX drops all locks that a process has on a file when it closes any descriptor of it. Were this function to open
    the file, SQLite's locks of another thread's connection could go with it, and two processes would hold one lock.
    """
    descriptor, other = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(descriptor)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(other, path)
    finally:
        os.unlink(other)


def refuse_network(path: Path) -> None:
    """SQLite's locks do not work on network file systems, and pids of other machines can't be looked up."""
    kind = _filesystem(str(path.parent.resolve()))
    if kind and kind in _NETWORK.split():
        raise ConfigurationError(
            f"{path} is on a network file system ({kind}), where SQLite's locks can't be trusted; "
            "use a local file, or a server (Redis, PostgreSQL, …) for several machines"
        )


@functools.lru_cache(maxsize=64)
def _filesystem(folder: str) -> str:
    """The type of the file system that holds the folder; empty where it can't be told."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return filesystem_of(folder, file.read())
    except OSError:
        return ""


def filesystem_of(folder: str, mountinfo: str) -> str:
    best, kind = "", ""
    for line in mountinfo.splitlines():
        mount, _, rest = line.partition(" - ")
        point = _unescape(mount.split()[4])
        if len(point) >= len(best) and (folder == point or folder.startswith(point.rstrip("/") + "/")):
            best, kind = point, rest.split()[0]
    return kind


def _unescape(point: str) -> str:
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(octal, char)
    return point
