"""Where the embedded store's file may live, and that it is made for its owner alone."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
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
        base = _named_by("LOCALAPPDATA") or _home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = _home() / "Library" / "Application Support"
    else:
        base = _named_by("XDG_STATE_HOME") or _home() / ".local" / "state"
    return base / "gripfast" / "locks.db"


def _named_by(variable: str) -> Path | None:
    """A relative path is ignored, as the XDG specification wants it: it would be another store in each folder."""
    path = Path(os.environ.get(variable, ""))
    return path if path.is_absolute() else None


def _home() -> Path:
    try:
        home = Path.home()
    except RuntimeError:
        home = Path()
    if not home.is_absolute():
        raise ConfigurationError(
            "there is no home directory for the default store: set GRIPFAST_URL (or give a URL), or set HOME to an "
            "absolute path"
        )
    return home


def prepare(path: Path) -> None:
    """Make the file if it is missing, readable and writable by its owner only."""
    target = Path(os.path.realpath(path))  # a link that leads nowhere yet: SQLite would make its target, for everyone
    try:
        if _is_default(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_network(target)
        if not target.exists():
            _make_private(target)
    except FileNotFoundError as error:
        raise ConfigurationError(_nowhere(path, target.parent, error)) from None
    except OSError as error:
        raise StoreUnavailable(
            f"embedded store {path}: {error.strerror}; check the owner and mode of the file and its folder",
            {str(path): str(error)},
        ) from error
    if target.is_dir():
        raise ConfigurationError(f"{path} is a folder: the URL must name a file")


def _nowhere(path: Path, folder: Path, error: OSError) -> str:
    """Some folders, such as /proc, answer like this to whoever would make a file in them."""
    if folder.is_dir():
        return f"{path}: can't create a file in {folder} ({error.strerror}): choose a file in another folder"
    return f"{path}: the folder {folder} does not exist; make it first"


def _is_default(path: Path) -> bool:
    try:
        return path == default_path()
    except ConfigurationError:  # there is no home directory
        return False


def _make_private(path: Path) -> None:
    """Made under another name and linked: nobody but SQLite may ever open the file itself.

    POSIX drops all locks that a process has on a file when it closes any descriptor of it. Were this function to open
    the file, SQLite's locks of another thread's connection could go with it, and two processes would hold one lock.
    """
    other = path.parent / f".{path.name}-{os.urandom(6).hex()}"
    os.close(os.open(other, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(other, path)
    finally:
        os.unlink(other)


def refuse_network(path: Path) -> None:
    """SQLite's locks do not work on network file systems, and pids of other machines can't be looked up."""
    if kind := _network_file_system(str(path.parent.resolve())):
        raise ConfigurationError(
            f"{path} is on a network file system ({kind}), where SQLite's locks can't be trusted; "
            "use a local file, or a server (Redis, PostgreSQL, …) for several machines"
        )


@functools.lru_cache(maxsize=64)
def _network_file_system(folder: str) -> str:
    """The type of the file system that holds the folder; empty if it is a local one, or can't be told."""
    try:
        if sys.platform == "darwin" or sys.platform.startswith("freebsd"):
            return remote_filesystem_of(folder, _mounted())
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            kind = filesystem_of(folder, file.read())
    except OSError:
        return ""
    return kind if kind in _NETWORK.split() else ""


def _mounted() -> str:
    """It asks no server: what the kernel knows is printed. Empty if it can't be told."""
    import subprocess

    try:
        mount = subprocess.run(["/sbin/mount"], capture_output=True, check=True, timeout=5)
    except subprocess.SubprocessError:
        return ""
    return os.fsdecode(mount.stdout)


_MOUNT = re.compile(r"(?m)^.* on (/.*) \(([^()]*)\)$")


def remote_filesystem_of(folder: str, mounted: str) -> str:
    """From what `mount` prints on macOS and FreeBSD, which say of each file system whether it is local. Empty if so."""
    best, kind = "", ""
    for point, text in _MOUNT.findall(mounted):
        first, *flags = text.split(", ")
        if _is_below(folder, point) and len(point) >= len(best):
            best, kind = point, "" if "local" in flags else first
    return kind


def _is_below(folder: str, point: str) -> bool:
    return folder == point or folder.startswith(point.rstrip("/") + "/")


def filesystem_of(folder: str, mountinfo: str) -> str:
    best, kind = "", ""
    for line in mountinfo.splitlines():
        mount, _, rest = line.partition(" - ")
        point = _unescape(mount.split()[4])
        if _is_below(folder, point) and len(point) >= len(best):
            best, kind = point, rest.split()[0]
    return kind


def _unescape(point: str) -> str:
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(octal, char)
    return point
