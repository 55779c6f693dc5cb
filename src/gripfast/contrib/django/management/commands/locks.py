"""`manage.py locks`: what is held in the stores of the setting `GRIPFAST`, as `gripfast ls` tells it. With `--break` it
takes a lock away from its holder, as `gripfast break` does, and records that as the admin does."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gripfast.api.rows import AnyKind, Holder, Row, Scan, look_up, matching, scan
from gripfast.cli import codes
from gripfast.cli.held import human_table
from gripfast.cli.kinds import NAMES, kinds_of
from gripfast.cli.text import held_by, occupant
from gripfast.contrib.django.breaking import break_recorded, has_history
from gripfast.contrib.django.clients import DEFAULT, locks
from gripfast.errors import GripfastError, visible

OF_A_BREAK = ("kind", "owner", "reason", "user", "yes")
SOMEBODY = "somebody who ran manage.py"


class Command(BaseCommand):
    help = (
        "Lists the locks that are held: who holds them, for how long, and how many wait. With --break it releases one "
        "by force."
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--using",
            metavar="ALIAS",
            help="Only this store of the setting GRIPFAST. [default: all stores; with --break: the store 'default']",
        )
        parser.add_argument("--prefix", default="", help="Only names that start with this text.")
        parser.add_argument(
            "--filter", default="", help="Only rows with all these words in a name, label, host or pid."
        )
        parser.add_argument("--json", action="store_true", dest="in_json", help="Print JSON.")
        self._add_break(parser.add_argument_group("to release a lock by force"))

    def _add_break(self, group: Any) -> None:
        group.add_argument(
            "--break",
            dest="break_name",
            metavar="NAME",
            help="Take this lock away from its holder, who may still be at work. The next waiter gets it at once.",
        )
        group.add_argument("--kind", choices=list(NAMES), help="What NAME is. [default: lock]")
        group.add_argument("--owner", metavar="ID", help="With --kind: only the holder with this owner id.")
        group.add_argument("--reason", metavar="TEXT", help="Why. The old holder's error and log show it.")
        group.add_argument("--user", metavar="NAME", help="Who breaks it: the history of the admin needs this name.")
        group.add_argument("--yes", "--no-input", "--noinput", action="store_true", help="Do not ask.")

    def handle(self, *, using: str | None, break_name: str | None, **options: Any) -> None:
        try:
            if break_name is None:
                self._list(using, **options)
            else:
                self._break(using or DEFAULT, break_name, **{option: options[option] for option in OF_A_BREAK})
        except GripfastError as error:
            raise CommandError(str(error)) from error

    # -- the list ------------------------------------------------------------------------------------------------------

    def _list(self, using: str | None, *, prefix: str, filter: str, in_json: bool, **others: Any) -> None:
        if wrong := [option for option in OF_A_BREAK if others[option]]:
            raise CommandError(f"--{wrong[0]} is for --break NAME")
        found = {alias: self._scan(alias, prefix, filter) for alias in ([using] if using else list(locks))}
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

    # -- a break -------------------------------------------------------------------------------------------------------

    def _break(
        self,
        using: str,
        name: str,
        *,
        kind: AnyKind | None,
        owner: str | None,
        reason: str | None,
        user: str | None,
        yes: bool,
    ) -> None:
        if not (yes or sys.stdin.isatty()):
            raise CommandError("without a terminal nobody can be asked: add --yes if you are sure")
        who = _user(user)
        row = _row(using, kind or "lock", name)
        holders = tuple(each for each in row.holders if owner in (None, each.owner))
        if not holders:
            raise CommandError(f"nobody holds {visible(name)!r} as {owner!r}", returncode=codes.NOT_FOUND)
        if not yes:
            self._ask(row)
        broken = break_recorded(who, using, row, holders, reason or "", "by manage.py locks")
        if not broken:
            raise CommandError(f"nothing was released: the holder of {visible(name)!r} has changed. Look again")
        self.stdout.write(f"{visible(name)!r} is released; it was {_held_by(broken)}")

    def _ask(self, row: Row) -> None:
        self.stdout.write(human_table([row]))
        try:
            answer = input("Release it by force? Its holder may still be at work. [y/N]: ")
        except EOFError:
            answer = ""
        if answer.strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was changed")


def _user(name: str | None) -> Any:
    """Of the project, because its history needs one. Without a history, the name alone."""
    if not has_history():
        return name or SOMEBODY
    from django.contrib.auth import get_user_model

    if name is None:
        raise CommandError("the history of the admin records who breaks a lock: add --user NAME")
    model = get_user_model()
    try:
        return model._default_manager.get_by_natural_key(name)
    except model.DoesNotExist:
        raise CommandError(f"there is no user {name!r}") from None


def _row(using: str, kind: AnyKind, name: str) -> Row:
    client = locks[using]
    row = look_up(client, kind, name)
    if row is not None and row.holders[0].kept == "done":
        raise CommandError(
            f"{visible(name)!r} is recorded as done, and nobody holds it. To have it done again, call "
            f"locks[{using!r}].forget({name!r}) in manage.py shell"
        )
    if row is not None:
        return row
    others = [each for each in kinds_of(client) if each != kind and look_up(client, each, name) is not None]
    hint = f", but there is a {NAMES[others[0]]} of that name: add --kind {others[0]}" if others else ""
    raise CommandError(f"nobody holds {visible(name)!r} in the store {using!r}{hint}", returncode=codes.NOT_FOUND)


def _held_by(broken: tuple[Holder, ...]) -> str:
    return "; ".join(held_by(each) if each.kept is None else occupant(each) for each in broken)
