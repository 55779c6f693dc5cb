"""Which commands there are. A command is loaded when it is called, and all of them for the help.

Other packages add commands. Each is a `click.Command`, found by an entry point of such a package:

[project.entry-points."gripfast.commands"]
lab = "gripfast_lab.command:lab"

Nobody looks for them as long as one of our own commands is called: that would cost every call some milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from gripfast.cli import codes
from gripfast.cli.failure import Failure

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

OWN = {
    "acquire": "handover:acquire",
    "break": "locks:break_",
    "completion": "completion:completion",
    "doctor": "doctor:doctor",
    "lead": "lead:lead",
    "forget": "locks:forget",
    "init": "init:init",
    "ls": "locks:ls",
    "release": "handover:release",
    "renew": "handover:renew",
    "resize": "resize:resize",
    "run": "run:run",
    "schema": "schema:schema",
    "serve": "serve:serve",
    "show": "locks:show",
    "top": "top.command:top",
    "wait": "locks:wait",
}
"""Command to module and name."""
GROUP = "gripfast.commands"
_IN_THE_LAB = (
    "is in a package of its own: in a clone of Gripfast run pip install . ./lab "
    "(once it is published: pip install gripfast-lab)"
)
NOT_HERE = {"lab": f"the lab {_IN_THE_LAB}", "verify": f"gripfast verify {_IN_THE_LAB}"}
"""What to say to who calls a command that is known, but not installed."""


class Commands(click.Group):
    """Our own commands first, then those of others."""

    def invoke(self, ctx: click.Context) -> Any:
        """click's parser does not say which command lacks the value of an option."""
        try:
            return super().invoke(ctx)
        except click.BadOptionUsage as error:
            if error.ctx is None and (name := ctx.invoked_subcommand) and (command := self.get_command(ctx, name)):
                error.ctx = click.Context(command, ctx, name)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*OWN, *_found().names})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in OWN:
            module, _, attribute = OWN[name].partition(":")
            own: click.Command = getattr(import_module(f"gripfast.cli.{module}"), attribute)
            return own
        for point in _found().select(name=name):
            return _loaded(point)
        return _failing(name, NOT_HERE[name]) if name in NOT_HERE else _of_other_tools(name)


def _of_other_tools(name: str) -> click.Command | None:
    from gripfast.cli.mistakes import COMMANDS  # for who makes one

    return _failing(name, f"there is no command {name!r}: {COMMANDS[name]}") if name in COMMANDS else None


def _found() -> EntryPoints:
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _loaded(point: EntryPoint) -> click.Command:
    """One that can't be loaded must not take the help of all others with it."""
    try:
        command: object = point.load()
    except Exception as error:
        return _unfit(point, f"{point.value} can't be loaded, {type(error).__name__}: {error}")
    return command if isinstance(command, click.Command) else _unfit(point, f"{point.value} is not a click.Command")


def _unfit(point: EntryPoint, why: str) -> click.Command:
    return _failing(point.name, f"can't use the command {point.name}: {why}. Reinstall or remove its package")


def _failing(name: str, why: str) -> click.Command:
    """Fails whatever it is called with."""

    def fail(**_: Any) -> None:
        raise Failure(codes.USAGE, why)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=fail, context_settings=anything, short_help=why, add_help_option=False)
