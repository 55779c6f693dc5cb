"""A wall clock that a test sets while the process that lives by it runs: of a server, or of a client.

    clock = JumpingClock(folder / "clock")
    with RedisServer(environment=clock.environment) as server:
        clock.set(ahead=3600.0)

The process asks for the time as ever, and a small preloaded library (`jumping_clock.c`) adds to the answer. The clocks
that count from the start of the machine are as they were: those do not jump. Linux only.
"""

import atexit
import functools
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class JumpingClock:
    """Right at first. `path` is of a file that is made for it, and has to stay as long as the process runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(ahead=0.0)

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that is to live by this clock."""
        return {"LD_PRELOAD": str(_library()), "JUMPING_CLOCK": str(self._path)}

    def set(self, ahead: float) -> None:
        """So many seconds ahead of the true time, or behind it. In one step: nobody sees half of it."""
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT)
        os.pwrite(file, struct.pack("q", round(ahead * 1_000_000)), 0)
        os.close(file)


@functools.cache
def _library() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="clock-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "jumping_clock.so"
    made = subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return library
