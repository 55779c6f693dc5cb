"""The process of a real SQL server for tests: on loopback, on a port of its own, its data in a temporary folder.

No server outlives the process that started it, and one that is shared not the last of those that share it. Nothing of
the system's own servers is used or touched: not their ports, their configuration, or their data.
"""

import contextlib
import json
import os
import pwd
import random
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import quote, urlencode

from support.certificates import certificate
from support.run_wide import once, watched, workers_in
from support.waiting import until

HOST = "127.0.0.1"
PORTS = range(20000, 32000)
"""Below the ports that systems give to outgoing connections: the port is still free when a server is restarted."""
ATTEMPTS = 50
USER = "holdfast"
PASSWORD = "p@ss/w:rd %41"
"""Of all users in URLs; nothing in it may stand there as it is."""
DATABASE = "holdfast"


class Session(NamedTuple):
    id: int
    database: str
    state: str
    query: str


class SqlServer:
    """One server that answers from the moment this is made. `settings` are its own: `max_connections=20`.

    It keeps what was committed when it is killed, but writes no more to the disk than that needs; a `durable` one
    works as it would in production.
    """

    package_user: ClassVar[str]
    program: ClassVar[str]
    scheme: ClassVar[str]
    ends_at: ClassVar[signal.Signals]
    """The signal by which an operator would stop it."""

    def __init__(
        self, *settings: str, durable: bool = False, tls: bool = False, shared_folder: Path | None = None
    ) -> None:
        """`shared_folder`: where it runs already, or is to run, for all who know the folder."""
        self.folder = shared_folder or Path(tempfile.mkdtemp(prefix=f"{self.program}-"))
        self.port = self.pid = 0
        self._settings = settings
        self._durable = durable
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = None if shared_folder else watched(self.folder)
        try:
            self._certificate = certificate(self.folder) if tls else None
            if not self._joins():
                self._make_data()
                self._start_somewhere()
        except BaseException:
            self.close()
            raise

    # Who it is --------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.url_with()

    def url_with(self, *, database: str = DATABASE, **options: object) -> str:
        """For `holdfast.connect`, with these options in its query."""
        query = urlencode({**self._tls_options(), **options}, safe="/:")
        base = f"{self.scheme}://{USER}:{quote(PASSWORD, safe='')}@{HOST}:{self.port}/{database}"
        return base + (f"?{query}" if query else "")

    def lock_space(self, **options: object) -> str:
        """The URL of locks in the common database that nobody else uses, by a prefix: a database takes far longer."""
        return self.url_with(prefix=f"{uuid.uuid4().hex}:", **options)

    @contextlib.contextmanager
    def fresh_database(self, **options: object) -> Iterator[str]:
        """The URL of an empty database, which is dropped afterwards, whoever still uses it."""
        name = f"fresh_{uuid.uuid4().hex}"
        self._create_database(name)
        try:
            yield self.url_with(database=name, **options)
        finally:
            if self.running:
                self._drop_database(name)

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def running(self) -> bool:
        return bool(workers_in(self.folder))

    # What is asked of it, as its administrator ------------------------------------------------------------------------

    def execute(self, sql: str, *values: object, database: str = DATABASE) -> list[tuple[Any, ...]]:
        """The rows of the answer; `%s` in the text stands for a value."""
        raise NotImplementedError

    def sessions(self, database: str | None = None) -> list[Session]:
        """Those of the user in the URL, oldest first."""
        raise NotImplementedError

    def kill_session(self, session: int) -> None:
        raise NotImplementedError

    def make_read_only(self) -> None:
        """As a replica is. PostgreSQL is restarted for that."""
        raise NotImplementedError

    def make_writable(self) -> None:
        raise NotImplementedError

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
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._keeper is not None:
            os.close(self._keeper)
            self._keeper = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # What the engines say ---------------------------------------------------------------------------------------------

    @classmethod
    def _new_data(cls, folder: Path) -> None:
        """Make `folder`/data as the package's tools do, with our user and database in it."""
        raise NotImplementedError

    def _command_line(self) -> list[str]:
        raise NotImplementedError

    def _tls_options(self) -> dict[str, object]:
        raise NotImplementedError

    def _answers(self) -> bool:
        """Whether it can be used, asked at its own socket: at the port there might be somebody else's server."""
        raise NotImplementedError

    def _create_database(self, name: str) -> None:
        raise NotImplementedError

    def _drop_database(self, name: str) -> None:
        raise NotImplementedError

    # Starting and ending ----------------------------------------------------------------------------------------------

    def _joins(self) -> bool:
        """Whether it runs already."""
        with contextlib.suppress(FileNotFoundError):
            self.port, self.pid = json.loads((self.folder / "address").read_text(encoding="utf-8"))
        return self.port != 0

    def _make_data(self) -> None:
        """A copy of what the package's tools made for the first server of this run; they are slow."""
        model = once(f"{self.program}-model", self._new_data)
        self.folder.mkdir(mode=0o711, exist_ok=True)
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", str(model / "data"), str(self.folder)], check=True)
        give(self.folder, self.package_user)

    def _start_somewhere(self) -> None:
        """Nobody can reserve a port for another process; so one is tried after the other until the server has it."""
        for _ in range(ATTEMPTS):
            self.port = random.choice(PORTS)
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


def as_user(name: str) -> dict[str, Any]:
    """For Popen: servers refuse to run as root, so root runs them as the package's user, others as themselves."""
    if os.getuid() != 0:
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
