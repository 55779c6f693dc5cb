"""`manage.py locks`: what is held in the stores of the setting `GRIPFAST`, as `gripfast ls` tells it."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gripfast.api.rows import Scan, matching, scan
from gripfast.cli.held import human_table
from gripfast.contrib.django.clients import locks
from gripfast.errors import GripfastError, visible


class Command(BaseCommand):
    help = "Lists the locks that are held: who holds them, for how long, and how many wait."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--using", metavar="ALIAS", help="Only this store of the setting GRIPFAST. [default: all]")
        parser.add_argument("--prefix", default="", help="Only names that start with this text.")
        parser.add_argument(
            "--filter", default="", help="Only rows with all these words in a name, label, host or pid."
        )
        parser.add_argument("--json", action="store_true", dest="in_json", help="Print JSON.")

    def handle(self, *, using: str | None, prefix: str, filter: str, in_json: bool, **_: Any) -> None:
        aliases = [using] if using else list(locks)
        try:
            found = {alias: self._scan(alias, prefix, filter) for alias in aliases}
        except GripfastError as error:
            raise CommandError(str(error)) from error
        if in_json:
            self.stdout.write(json.dumps({alias: each.to_json() for alias, each in found.items()}, indent=2))
            return
        for alias, each in found.items():
            self._tell(alias, each)

    def _scan(self, alias: str, prefix: str, text: str) -> Scan:
        found = scan(locks[alias], prefix)
        return found._replace(rows=matching(found.rows, text))

    def _tell(self, alias: str, found: Scan) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(f"{alias}: {visible(found.where)}"))
        if found.rows:
            self.stdout.write(human_table(found.rows))
        else:
            self.stdout.write("Nothing is held.")
        for note in found.notes:
            self.stdout.write(self.style.NOTICE(note))
