"""`manage.py locked NAME -- COMMAND`: what `gripfast run` does, in a store of the setting `GRIPFAST`.

The command is a program, or another command of manage.py, and runs as a process of its own: only a process can be
stopped before somebody else gets the lock.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.core.management import get_commands
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gripfast.cli.failure import Failure, explain
from gripfast.cli.run import OPTIONS, run_for
from gripfast.contrib.django.clients import DEFAULT, locks
from gripfast.errors import GripfastError

_USAGE = "Write the command after two dashes: manage.py locked NAME -- clearsessions, or -- ./backup.sh"


class Command(BaseCommand):
    help = """Runs a command while holding a lock, and exits with its status. The command is another one of manage.py,
or a program: manage.py locked NAME -- clearsessions, manage.py locked NAME -- ./backup.sh. If the lock is lost, the
command is stopped before somebody else can get it."""
    requires_system_checks: tuple[str, ...] = ()
    stealth_options = ("words",)
    """For `call_command("locked", name, words=[…])`."""

    def run_from_argv(self, argv: list[str]) -> None:
        """All that follows the first two dashes is the command's, whatever it looks like."""
        cut = argv.index("--") if "--" in argv else len(argv)
        self._words = argv[cut + 1 :]
        super().run_from_argv(argv[:cut])

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="The name of the lock.")
        parser.add_argument("--using", default=DEFAULT, metavar="ALIAS", help="A store of the setting GRIPFAST.")
        for option in OPTIONS:
            kind: Any = {"action": "store_true"} if option.is_flag else {"metavar": option.metavar}
            about = (option.help or "").replace("%", "%%")
            parser.add_argument(*option.opts, dest=option.name, help=about, default=None, **kind)

    def handle(self, *, name: str, using: str, **given: Any) -> None:
        words = _command(given.get("words") or self.__dict__.get("_words", ()))
        forget = f"call locks[{using!r}].forget({name!r}) in manage.py shell"
        try:
            told = [*_written(name, given), "--", *words]
            status = run_for(locks[using], "manage.py locked", told, "manage.py locks", forget)
        except (GripfastError, Failure) as error:
            code, message = explain(error)
            raise CommandError(message, returncode=code) from error
        if status:
            sys.exit(status)


def _command(words: Sequence[str]) -> list[str]:
    """A name that manage.py knows is its own command. A program with the same name has a path: /usr/bin/check."""
    if not words:
        raise CommandError(_USAGE)
    if words[0] not in get_commands():
        return list(words)
    script = sys.argv[0]
    is_of_the_project = script.endswith(".py") and os.path.basename(script) != "__main__.py" and os.path.isfile(script)
    return [sys.executable, *([script] if is_of_the_project else ["-m", "django"]), *words]


def _written(name: str, given: Mapping[str, Any]) -> Iterator[str]:
    """For the parser of `gripfast run`. What `call_command()` has passed may be numbers."""
    for option in OPTIONS:
        value = given.get(option.name or "")
        if value is not None and value is not False:
            yield from [option.opts[0]] if option.is_flag else [f"{option.opts[0]}={value}"]
    yield name
