"""A real SQL server for tests, as both engines are. `support/server_process.py` tells how servers start and end."""

import contextlib
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote, urlencode

from support.certificates import certificate
from support.run_wide import once
from support.server_process import HOST, ServerProcess, give

USER = "gripfast"
PASSWORD = "p@ss/w:rd %41"
"""Of all users in URLs; nothing in it may stand there as it is."""
DATABASE = "gripfast"


class Session(NamedTuple):
    id: int
    database: str
    state: str
    query: str


class SqlServer(ServerProcess):
    """It keeps what was committed when it is killed, but writes no more to the disk than that needs; a `durable` one
    works as it would in production.
    """

    package_user: ClassVar[str]
    scheme: ClassVar[str]

    def __init__(
        self, *settings: str, durable: bool = False, tls: bool = False, shared_folder: Path | None = None
    ) -> None:
        self._durable = durable
        self._has_tls = tls
        self._certificate: Path | None = None
        super().__init__(*settings, shared_folder=shared_folder)

    # Who it is --------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.url_with()

    def url_with(self, *, database: str = DATABASE, **options: object) -> str:
        """For `gripfast.connect`, with these options in its query."""
        query = urlencode({**self._tls_options(), **options}, safe="/:")
        base = f"{self.scheme}://{USER}:{quote(PASSWORD, safe='')}@{HOST}:{self.port}/{database}"
        return base + (f"?{query}" if query else "")

    def lock_space(self, **options: Any) -> str:
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

    # What the engines say ---------------------------------------------------------------------------------------------

    @classmethod
    def _new_data(cls, folder: Path) -> None:
        """Make `folder`/data as the package's tools do, with our user and database in it."""
        raise NotImplementedError

    def _tls_options(self) -> dict[str, object]:
        raise NotImplementedError

    def _create_database(self, name: str) -> None:
        raise NotImplementedError

    def _drop_database(self, name: str) -> None:
        raise NotImplementedError

    # Starting ---------------------------------------------------------------------------------------------------------

    def _make_data(self) -> None:
        """A copy of what the package's tools made for the first server of this run; they are slow."""
        model = once(f"{self.program}-model", self._new_data)
        self.folder.mkdir(mode=0o711, exist_ok=True)
        if self._has_tls:
            self._certificate = certificate(self.folder)
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", str(model / "data"), str(self.folder)], check=True)
        give(self.folder, self.package_user)
