"""`manage.py locked NAME -- COMMAND`: what `gripfast run` does, in a store of the setting `GRIPFAST`.

The command is a program, or another command of manage.py, and runs as a process of its own: only a process can be
stopped before somebody else gets the lock.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management import get_commands
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gripfast import durations
from gripfast.cli.failure import explain
from gripfast.cli.run import Settings, run_holding
from gripfast.cli.signals import listening
from gripfast.contrib.django.clients import DEFAULT, locks
from gripfast.errors import GripfastError

_USAGE = "Write the command after two dashes: manage.py locked NAME -- clearsessions, or -- ./backup.sh"
BUSY_CODE = 75


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
        parser.add_argument("--wait", metavar="DURATION", help="Wait at most this long: 30, 5m. [default: for ever]")
        parser.add_argument("--no-wait", action="store_true", help="The same as --wait 0.")
        parser.add_argument("--ttl", metavar="DURATION", help="How long the lock stays held if this process dies.")
        parser.add_argument("--grace", metavar="DURATION", help="Send TERM this long before the lock would be lost.")
        parser.add_argument("--label", help="Tells others who holds the lock.")
        parser.add_argument("--busy-exit-code", type=int, default=BUSY_CODE, metavar="CODE", help="[default: 75]")
        parser.add_argument("--quiet", "-q", action="store_true", help="Do not tell who holds the lock.")

    def handle(self, *, name: str, using: str, **given: Any) -> None:
        words = _command(given.get("words") or self.__dict__.get("_words", ()))
        wait = 0.0 if given["no_wait"] else _seconds("--wait", given["wait"])
        grace, quiet = _seconds("--grace", given["grace"]), given["quiet"]
        settings = Settings(name, words, wait, given["busy_exit_code"], grace, quiet, look="manage.py locks")
        try:
            client = locks[using]
            lock = client.lock(name, _seconds("--ttl", given["ttl"]), label=given["label"])
            status = run_holding(client, lock, settings, listening())
        except GripfastError as error:
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


def _seconds(option: str, text: str | None) -> float | None:
    try:
        return None if text is None else durations.read(str(text))
    except ValueError as error:
        raise CommandError(f"{option} {error}") from None
