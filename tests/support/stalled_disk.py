"""A disk that stalls: what one process has written does not get there until this is over.

    with stalled_disk(server.etcd, server.wal):
        ...

`strace` attaches itself to all of its threads, and each that calls fdatasync stays in there. When it detaches, they go
on. The process has to belong to the same user.
"""

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.waiting import until

FOR_EVER = 600_000_000
"""Microseconds."""


@contextlib.contextmanager
def stalled_disk(process: int, files: Sequence[Path] = ()) -> Iterator[None]:
    """`files`: the only ones that are on this disk; without them, all are."""
    what = ["-e", "trace=fdatasync", "-e", f"inject=fdatasync:delay_enter={FOR_EVER}"]
    for file in files:
        what += ["-P", str(file)]
    strace = subprocess.Popen(
        ["strace", "-f", "-qq", "-o", "/dev/null", *what, "-p", str(process)], stderr=subprocess.PIPE, text=True
    )
    try:
        until(lambda: strace.poll() is not None or _is_attached(process), within=20.0)
        assert strace.poll() is None, strace.stderr and strace.stderr.read()
        yield
    finally:
        _detach(strace)
    until(lambda: not any(map(_is_traced, _threads(process))), within=20.0)


def _detach(strace: "subprocess.Popen[str]") -> None:
    """Whoever is stopped by it when it ends goes on."""
    strace.send_signal(signal.SIGKILL)
    strace.communicate()


def _is_attached(process: int) -> bool:
    return all(map(_is_traced, _threads(process)))


def _threads(process: int) -> list[Path]:
    return list(Path(f"/proc/{process}/task").iterdir())


def _is_traced(thread: Path) -> bool:
    with contextlib.suppress(OSError):
        return "TracerPid:\t0\n" not in (thread / "status").read_text(encoding="utf-8")
    return False
