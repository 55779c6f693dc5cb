"""Projects as `alembic init` makes them, with the lines of the page in their env.py; and the command `alembic`."""

import contextlib
import io
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config

from support.waiting import until

PATIENCE = 60.0
IMPORT = "from gripfast.contrib.alembic import migration_lock\n"
ONLINE = "else:\n    run_migrations_online()\n"
LOCKED = "else:\n    with migration_lock({arguments}):\n        run_migrations_online()\n"

REVISION = '''
"""{id}"""
import os
import sqlalchemy as sa
from alembic import op
from gripfast.testing.waiting import until

revision, down_revision = {id!r}, {down!r}


def ran(what):
    with open({diary!r}, "a") as file:
        file.write(f"{{what}} {{os.getpid()}}\\n")


def gate(name):
    ran("at " + name)
    until(lambda: os.path.exists(os.path.join({folder!r}, name)), within={patience})


def upgrade():
{body}


def downgrade():
    pass
'''


class Project:
    def __init__(self, folder: Path, url: str, template: str = "generic") -> None:
        self.folder = folder
        self._diary = folder / "diary"
        self._diary.touch()
        self._revisions: list[str] = []
        with contextlib.redirect_stdout(io.StringIO()):
            command.init(Config(folder / "alembic.ini"), str(folder / "migrations"), template)
        self.env = folder / "migrations" / "env.py"
        self.use(url)

    def use(self, url: str) -> None:
        settings = self.folder / "alembic.ini"
        lines = settings.read_text(encoding="utf-8").splitlines()
        told = [
            f"sqlalchemy.url = {url.replace('%', '%%')}" if line.startswith("sqlalchemy.url") else line
            for line in lines
        ]
        settings.write_text("\n".join(told) + "\n", encoding="utf-8")

    def edit(self, old: str, new: str) -> None:
        """The last such text in env.py."""
        before, found, after = self.env.read_text(encoding="utf-8").rpartition(old)
        assert found
        self.env.write_text(before + new + after, encoding="utf-8")

    def lock(self, arguments: str = "") -> "Project":
        """The two lines."""
        self.edit(ONLINE, LOCKED.format(arguments=arguments))
        self.edit("\nfrom alembic import context\n", f"\nfrom alembic import context\n{IMPORT}")
        return self

    def revise(self, body: str) -> None:
        """One more revision; its body may tell the diary by `ran`, and wait at a `gate`."""
        number = f"r{len(self._revisions) + 1}"
        text = REVISION.format(
            id=number,
            down=self._revisions[-1] if self._revisions else None,
            diary=str(self._diary),
            folder=str(self.folder),
            patience=PATIENCE,
            body=textwrap.indent(textwrap.dedent(body).strip(), "    "),
        )
        (self.folder / "migrations" / "versions" / f"{number}.py").write_text(text, encoding="utf-8")
        self._revisions.append(number)

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    @property
    def diary(self) -> list[str]:
        """What has run, by whom."""
        return self._diary.read_text(encoding="utf-8").splitlines()

    def has_run(self, what: str) -> int:
        return sum(line.startswith(f"{what} ") for line in self.diary)

    def run(self, *words: str) -> "Command":
        """To its end."""
        with self.started(*words) as started:
            started.ended()
        return started

    @contextmanager
    def started(self, *words: str) -> Iterator["Command"]:
        started = Command(self.folder, words)
        try:
            yield started
        finally:
            started.kill()


class Command:
    """An `alembic …` that runs."""

    def __init__(self, folder: Path, words: tuple[str, ...]) -> None:
        self._log = folder / f"log-{len(list(folder.glob('log-*')))}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "alembic", *words], cwd=folder, stdout=log, stderr=log, env=dict(os.environ)
            )
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def says(self, words: str) -> None:
        try:
            until(lambda: words in self.log or self._process.poll() is not None, within=PATIENCE)
        finally:
            assert words in self.log, self.log

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def ended(self) -> int:
        return self._process.wait(PATIENCE)

    def kill(self) -> None:
        """SIGKILL, and gone on return."""
        self._process.kill()
        self._process.wait()
