"""What `gripfast doctor` finds at the embedded store's file.

Only SQLite may open the file (`files.py` says why): everything else is learned from the system.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gripfast.errors import StoreUnavailable
from gripfast.stores.doctor import Examination, Finding, Terms, advice, judged, problem, version_in
from gripfast.stores.sqlite.files import default_path, filesystem_of

if TYPE_CHECKING:
    from gripfast.stores.sqlite.factory import SqliteFactory

MB = 1024 * 1024
FREE_LEAST, FREE_LITTLE = 10 * MB, 100 * MB
WAL_LARGE = 64 * MB
FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""What Linux calls the one that the machine starts with."""
WAL_FIXED = (3, 51, 3)
WAL_FIXED_EARLIER = ((3, 44, 6), (3, 50, 7))
"""Older releases that were corrected, too."""

OTHERS_WRITE = problem(
    "sqlite-others-write",
    "other users may write {what} (mode {mode})",
    why="Whoever can write it can break locks, or put another file in its place: then two programs hold the same lock.",
    todo="{command}",
)
OTHERS_READ = advice(
    "sqlite-others-read",
    "other users may read the file (mode {mode})",
    why="They see the names and labels of locks. A reader can also keep SQLite from shortening its log.",
    todo="chmod 600 {path}",
)
OTHER_OWNER = advice(
    "sqlite-other-owner",
    "the file belongs to another user (uid {owner}; this is uid {user})",
    why="The file's mode may keep out one of the two users. Each of them also makes files beside it. If the other user "
    "may not open these, that user's requests fail.",
    todo="Run all programs that share locks as one user, or use a server",
)
NO_SPACE = problem(
    "sqlite-disk-full",
    "the file system has {free} MB left",
    why="When it is full, no lock can be acquired or renewed.",
    todo="Free some space, or move the file: sqlite:////another/path.db in all programs at once",
)
LITTLE_SPACE = advice(
    "sqlite-little-space",
    "the file system has {free} MB left",
    why="When it is full, no lock can be acquired or renewed.",
    todo="Free some space",
)
LARGE_WAL = advice(
    "sqlite-large-log",
    "the log {path} has {size} MB",
    why="Some program keeps a transaction open, so SQLite can't shorten its log. Requests become slower, and the disk "
    "fills.",
    todo="Find out which program has the file open (lsof {path}), and end this program",
)
TMPFS = advice(
    "sqlite-in-memory",
    "the file is in memory ({kind}) and gone after a reboot",
    why="Locks end with the machine, too. But tokens go on growing after that only if the clock was not set back.",
    todo="Use a file on a disk, if you check tokens where you write",
)
LAYER = advice(
    "sqlite-container-layer",
    "the file is in the container's own layer ({kind})",
    why="Other containers, and the next one of the same image, have a file of their own: each of them gets the lock.",
    todo="Put the file on a volume that all containers of this machine share, or use a server",
)
NAMESPACE = advice(
    "sqlite-pid-namespace",
    "this process is in a pid namespace of its own, as in a container",
    why="Processes of other containers can't be seen. If a holder dies there, its lock is free only after its ttl.",
    todo="Share the pid namespace (docker run --pid=host, shareProcessNamespace: true), use a short ttl, or use a "
    "server",
)
BY_DEFAULT = advice(
    "sqlite-default-file",
    "no URL is configured, so the locks are in {path}",
    why="Other machines, containers and users have a file of their own, and each of them gets the lock.",
    todo="If they have to exclude each other, set $GRIPFAST_URL to a store that they share. GRIPFAST_REQUIRE_URL=1 "
    "turns the default into an error",
)
CORRUPT = problem(
    "sqlite-corrupt",
    "the file is damaged: {said}",
    why="Locks may be lost, or stay taken.",
    todo="Stop all programs that use it, and delete {path}, {path}-wal and {path}-shm. All locks are free then, and "
    "tokens go on growing if the clock was not set back",
)
WAL_BUG = advice(
    "sqlite-wal-reset",
    "this Python uses SQLite {version}, which has the WAL-reset bug",
    why="In very rare cases, two programs that write at the same moment can damage the file. It is fixed in SQLite "
    "3.51.3 (and 3.44.6, 3.50.7).",
    todo="Use a Python with a newer SQLite, if your system has one. (Some systems have fixed the bug without a new "
    "version number)",
)


class Facts(NamedTuple):
    path: Path
    is_default: bool
    kind: str
    """Of the file system; empty if it can't be told."""
    mode: int
    owner: int
    user: int
    folder_mode: int
    free: int
    """Bytes."""
    wal: int
    """Bytes."""
    library: str
    pid_namespace: int
    """0 if the system has none."""
    check: str = "ok"
    """What SQLite says about the file."""


def examine(factory: SqliteFactory, terms: Terms) -> Examination:
    facts = gather(Path(factory.where))
    kind = f" on {facts.kind}" if facts.kind else ""
    return Examination(f"SQLite {facts.library}, a file{kind} for the processes of this machine", [*judge(facts)])


# -- facts ---------------------------------------------------------------------------------------------------------


def gather(path: Path) -> Facts:
    """Raises StoreUnavailable if there is no file."""
    try:
        file, folder, space = path.stat(), path.parent.stat(), os.statvfs(path.parent)
    except OSError as error:
        said = f"{path}: {error.strerror}; check the owner and mode of the file and its folder"
        raise StoreUnavailable(said, {str(path): said}) from None
    return Facts(
        path,
        is_default=not os.environ.get("GRIPFAST_URL") and path == default_path(),
        kind=_file_system(path),
        mode=stat.S_IMODE(file.st_mode),
        owner=file.st_uid,
        user=os.geteuid(),
        folder_mode=stat.S_IMODE(folder.st_mode),
        free=space.f_bavail * space.f_frsize,
        wal=_size(path.with_name(f"{path.name}-wal")),
        library=sqlite3.sqlite_version,
        pid_namespace=_pid_namespace(),
        check=_checked(path),
    )


def _file_system(path: Path) -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return filesystem_of(str(path.parent.resolve()), file.read())
    except OSError:
        return ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _checked(path: Path) -> str:
    try:
        with closing(sqlite3.connect(path)) as connection:
            return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:  # somebody is at work, or this user may not: the scratch lock tells that
        return "ok"
    except sqlite3.DatabaseError as error:
        return str(error)


# -- judging -------------------------------------------------------------------------------------------------------


def judge(facts: Facts) -> Iterator[Finding]:
    return judged(facts, (_judge_rights, _judge_space, _judge_place, _judge_library))


def _judge_rights(facts: Facts) -> Iterator[Finding]:
    mode = f"{facts.mode:04o}"
    if facts.mode & 0o022:
        yield OTHERS_WRITE(what="the file", mode=mode, command=f"chmod 600 {facts.path}")
    elif facts.mode & 0o044:
        yield OTHERS_READ(mode=mode, path=facts.path)
    if facts.folder_mode & 0o022 and not facts.folder_mode & stat.S_ISVTX:
        folder = facts.path.parent
        yield OTHERS_WRITE(what=f"its folder {folder}", mode=f"{facts.folder_mode:04o}", command=f"chmod go-w {folder}")
    if facts.owner != facts.user:
        yield OTHER_OWNER(owner=facts.owner, user=facts.user)


def _judge_space(facts: Facts) -> Iterator[Finding]:
    if facts.free < FREE_LITTLE:
        yield (NO_SPACE if facts.free < FREE_LEAST else LITTLE_SPACE)(free=f"{facts.free / MB:.1f}")
    if facts.wal > WAL_LARGE:
        yield LARGE_WAL(path=f"{facts.path}-wal", size=facts.wal // MB)


def _judge_place(facts: Facts) -> Iterator[Finding]:
    if facts.kind in ("tmpfs", "ramfs"):
        yield TMPFS(kind=facts.kind)
    if facts.kind in ("overlay", "aufs"):
        yield LAYER(kind=facts.kind)
    if facts.pid_namespace not in (0, FIRST_PID_NAMESPACE):
        yield NAMESPACE()
    if facts.is_default:
        yield BY_DEFAULT(path=facts.path)


def _judge_library(facts: Facts) -> Iterator[Finding]:
    if facts.check != "ok":
        yield CORRUPT(said=facts.check, path=facts.path)
    version = version_in(facts.library)
    is_fixed = any(version[:2] == fixed[:2] and version >= fixed for fixed in WAL_FIXED_EARLIER)
    if version < WAL_FIXED and not is_fixed:
        yield WAL_BUG(version=facts.library)
