"""What all processes of one test run share: a folder, and the servers in it, that are gone once the last has ended.

However the processes end: a watcher waits for the end of a pipe that all of them hold open. Then it kills whatever
works in the folder (a process is known by its working directory, so that no other can be meant), and removes it.
"""

import contextlib
import fcntl
import os
import pickle
import shutil
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
RUN = "PYTEST_XDIST_TESTRUNUID"
"""In the environment of all workers of a run; elsewhere each process is a run of its own."""
WATCH = """
read -r _
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    pids=$(find /proc -maxdepth 2 -name cwd -lname "$1/*" 2>/dev/null | cut -d / -f 3)
    [ -n "$pids" ] || break
    kill -9 $pids
    sleep 0.1
done
rm -rf "$1"
"""

_folder: Path | None = None
_entering = threading.Lock()
_made: list[Any] = []
"""By this process, for all: never closed, because the run's watcher ends what belongs to it."""


def once(name: str, make: Callable[[Path], None]) -> Path:
    """The path of this name in the run's folder, made by the first process that asks for it; the others wait."""
    folder = _run_folder()
    path, made = folder / name, folder / f"{name}.made"
    with _locked(folder / f"{name}.lock"):
        if not made.exists():
            shutil.rmtree(path, ignore_errors=True)
            make(path)
            made.touch()
    return path


def made_once(name: str, make: Callable[[Path], T]) -> T:
    """What the first process that asks makes, in a folder of this name; each process gets a copy of its own."""

    def make_and_tell(folder: Path) -> None:
        folder.mkdir(mode=0o711)
        _made.append(made := make(folder))
        (folder / "made").write_bytes(pickle.dumps(made))

    copy: T = pickle.loads((once(name, make_and_tell) / "made").read_bytes())
    return copy


def watched(folder: Path) -> int:
    """A descriptor that keeps the folder and what works in it; they go when it is closed, or this process ends."""
    reader, writer = os.pipe()
    _watch(folder, reader)
    return writer


def workers_in(folder: Path) -> list[int]:
    """The processes that work in the folder, or in one below it."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd").startswith(f"{folder}/"):
                found.append(int(entry))
    return found


def _run_folder() -> Path:
    global _folder
    with _entering:
        if _folder is None:
            run = os.environ.get(RUN) or uuid.uuid4().hex
            _folder = Path(tempfile.gettempdir()).absolute() / f"gripfast-tests-{os.getuid()}-{run}"
            _folder.mkdir(mode=0o711, exist_ok=True)  # servers run as users of their own
            _hold(_folder)
        return _folder


def _hold(folder: Path) -> None:
    """Open the run's pipe, and never close it: the end of this process does."""
    pipe = folder / "in-use"
    with _locked(folder / "in-use.lock"):
        if pipe.exists():
            os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            return
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        os.open(pipe, os.O_WRONLY)
        os.set_blocking(reader, True)
        _watch(folder, reader)


def _watch(folder: Path, reader: int) -> None:
    """Takes the descriptor. In the background, and in a session of its own: Ctrl-C is for the tests."""
    subprocess.run(
        ["sh", "-c", f"exec 3<&0; ({WATCH}) <&3 3<&- &", "sh", str(folder)],
        stdin=reader,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        check=True,
    )
    os.close(reader)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
