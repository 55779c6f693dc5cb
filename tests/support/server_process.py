"""The process of a real server for tests: on loopback, on a port of its own, its data in a temporary folder.

No server outlives the process that started it, and one that is shared not the last of those that share it. Nothing of
the system's own servers is used or touched: not their ports, their configuration, or their data.
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from support.local import needs
from support.ports import give_back_port, reserved_port
from support.run_wide import once, watched, workers_in
from support.waiting import until

HOST = "127.0.0.1"
ATTEMPTS = 50
S = TypeVar("S", bound="ServerProcess")


class ServerProcess:
    """One server that answers from the moment this is made. `settings` are its own: `max_connections=20`."""

    package_user: ClassVar[str | None]
    """Whom root runs it as; None: as root."""
    program: ClassVar[str]
    ends_at: ClassVar[signal.Signals]
    """The signal by which an operator would stop it."""

    def __init__(self, *settings: str, shared_folder: Path | None = None) -> None:
        """`shared_folder`: where it runs already, or is to run, for all who know the folder."""
        needs(self.program)
        self.folder = shared_folder or Path(tempfile.mkdtemp(prefix=f"{self.program}-"))
        self.port = self.pid = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = None if shared_folder else watched(self.folder)
        try:
            if not self._joins():
                self._make_data()
                self._start_somewhere()
        except BaseException:
            self.close()
            raise

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def running(self) -> bool:
        return bool(workers_in(self.folder))

    # What is done to it -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """As an operator would; gone on return."""
        assert self._process is not None
        self.resume()
        self._process.send_signal(self.ends_at)
        self._process.wait(timeout=30)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, its helpers too; gone on return."""
        until(self._kill_all, within=30)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP, and stopped on return, all of its processes: connections stay open, nobody answers."""
        until(self._stop_all)

    def resume(self) -> None:
        """SIGCONT."""
        for worker in workers_in(self.folder):
            _signal(worker, signal.SIGCONT)

    def restart(self) -> None:
        """Killed if it runs, then started at the same address, with the data that it had."""
        self.kill()
        assert self._start(), f"{self.program} did not start again on port {self.port}:\n{self.log}"

    def restart_empty(self) -> None:
        """The same after the loss of its disk."""
        self.kill()
        self._make_data()
        self.restart()

    def close(self) -> None:
        """Killed, and its folder removed."""
        self.kill()
        give_back_port(self.port)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._keeper is not None:
            os.close(self._keeper)
            self._keeper = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # What the engines say ---------------------------------------------------------------------------------------------

    def _make_data(self) -> None:
        """Make `folder`/data anew, where the server works; and the folder, if it is a shared one."""
        raise NotImplementedError

    def _command_line(self) -> list[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        """Whether it can be used: this one, not somebody else's server at the same port."""
        raise NotImplementedError

    # Starting and ending ----------------------------------------------------------------------------------------------

    def _joins(self) -> bool:
        """Whether it runs already."""
        with contextlib.suppress(FileNotFoundError):
            self.port, self.pid = json.loads((self.folder / "address").read_text(encoding="utf-8"))
        return self.port != 0

    def _start_somewhere(self) -> None:
        """Other programs of the machine may have a port: one is tried after the other until the server has it."""
        for _ in range(ATTEMPTS):
            give_back_port(self.port)
            self.port = reserved_port()
            if self._start():
                (self.folder / "address").write_text(json.dumps([self.port, self.pid]), encoding="utf-8")
                return
            if "address already in use" not in self.log.lower():
                break
        raise AssertionError(f"{self.program} could not be started:\n{self.log}")

    def _start(self) -> bool:
        """Whether it answers now; False if it ended instead."""
        with open(self.folder / "log", "wb") as log:
            # A session of its own: Ctrl-C in the terminal is for the tests, which then end their servers in order.
            self._process = process = subprocess.Popen(
                self._command_line(),
                cwd=self.folder / "data",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **as_user(self.package_user),
            )
        self.pid = process.pid
        until(lambda: process.poll() is not None or self._answers(), within=30)
        if process.poll() is not None:
            self.kill()
            return False
        return True

    def _kill_all(self) -> bool:
        """Whether there was none left."""
        workers = workers_in(self.folder)
        for worker in workers:
            _signal(worker, signal.SIGKILL)
        return not workers

    def _stop_all(self) -> bool:
        """Whether all had stopped: one that is not yet stopped may start another."""
        running = [worker for worker in workers_in(self.folder) if _state(worker) != "T"]
        for worker in running:
            _signal(worker, signal.SIGSTOP)
        return not running


_started: list[ServerProcess] = []
"""By this process, for all: never closed, because the run's watcher ends them."""


def shared(kind: type[S]) -> S:
    """The one of this kind that all processes of a test run use, started by the first that asks."""
    needs(kind.program)
    return kind(shared_folder=once(kind.program, lambda folder: _started.append(kind(shared_folder=folder))))


def as_user(name: str | None) -> dict[str, Any]:
    """For Popen: some servers refuse to run as root, so root runs them as the package's user, others as themselves."""
    if name is None or os.getuid() != 0:
        return {}
    user = pwd.getpwnam(name)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def give(folder: Path, name: str) -> None:
    """What is directly in the folder, and the folder, to the user that the server runs as."""
    if os.getuid() == 0:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, name)


def _signal(process: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, what)


def _state(process: int) -> str:
    """A letter, as in ps; T is stopped. One that has just ended counts as stopped."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return "T"
