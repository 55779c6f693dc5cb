"""What several commands take: where the locks are, which lock, how long."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

import gripfast
from gripfast import durations
from gripfast.cli.kinds import ALL, NAMES, kind_in

_URL = "gripfast.cli.url"
_OBSERVERS = "gripfast.cli.observers"

Callback = TypeVar("Callback", bound=Callable[..., Any])


def _in_seconds(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    try:
        seconds = None if text is None else durations.read(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    if seconds == math.inf:
        raise click.BadParameter("is too long.")
    return seconds


def duration_option(name: str, explanation: str) -> Callable[[Callback], Callback]:
    return click.option(name, callback=_in_seconds, metavar="DURATION", help=explanation)


def _remember_url(ctx: click.Context, _: click.Parameter, url: str | None) -> None:
    """The option may stand before the command and after it; the later one counts."""
    if url is not None:
        ctx.meta[_URL] = url


class _UrlOption(click.Option):
    """`gripfast --help` also lists the schemes: only then are the specs of all engines loaded."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or ctx.parent is not None:
            return record
        from gripfast.stores import schemes

        return record[0], f"{record[1]} A URL starts with one of {', '.join(schemes())}."


url_option = click.option(
    "--url",
    cls=_UrlOption,
    metavar="URL",
    callback=_remember_url,
    expose_value=False,
    help="Where the locks are. [default: $GRIPFAST_URL, or a file in your home directory] "
    "If the URL has a password, set $GRIPFAST_URL: other users of the machine can see the arguments of a command.",
)
url_argument = click.argument("target", required=False, metavar="[URL]", callback=_remember_url, expose_value=False)
"""The same without --url, for commands that are about a store."""
kind_option = click.option(
    "--kind",
    type=click.Choice(list(NAMES)),
    default="lock",
    help="What to look for: a lock, a semaphore or a read/write lock. [default: lock]",
)
any_kind_option = click.option(
    "--kind",
    type=click.Choice([*NAMES, ALL]),
    default=ALL,
    help="What to look for: locks, semaphores, read/write locks, or all of them. [default: all]",
)
json_option = click.option("--json", "in_json", is_flag=True, help="Print JSON.")
wait_option = duration_option("--wait", "Wait at most this long: 30 (seconds), 500ms, 2m, 1h. [default: for ever]")


def _be_quiet(_: click.Context, __: click.Parameter, quiet: bool) -> bool:
    """What the library warns about is not printed either, except that nobody can lead."""
    if quiet:
        logging.getLogger("gripfast").setLevel(logging.ERROR)
        logging.getLogger("gripfast.election").setLevel(logging.WARNING)
    return quiet


quiet_option = click.option(
    "--quiet",
    "-q",
    is_flag=True,
    callback=_be_quiet,
    help="Print only errors. Do not print who holds the lock, while gripfast waits or when it gives up.",
)


def _complete_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from gripfast.cli.completion import held_names

    kinds = list(NAMES) if ctx.params.get("kind") == ALL else [kind_in(ctx.params)]
    return held_names(ctx.meta.get(_URL), incomplete, kinds)


name_argument = click.argument("name", shell_complete=_complete_names)


def url_of(ctx: click.Context) -> str | None:
    """What the command was told, if it was told anything."""
    return ctx.meta.get(_URL) or os.environ.get("GRIPFAST_URL")


OTEL_HELP = """Send metrics and traces with OpenTelemetry, as the variables OTEL_… say: the same as
GRIPFAST_OBSERVERS=otel. It needs opentelemetry-sdk and an exporter."""


def _remember_otel(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta[_OBSERVERS] = ["otel"]


otel_option = click.option("--otel", is_flag=True, callback=_remember_otel, expose_value=False, help=OTEL_HELP)


def open_client(ctx: click.Context) -> gripfast.Client:
    """With the observers of $GRIPFAST_OBSERVERS and of the command's options."""
    named = os.environ.get("GRIPFAST_OBSERVERS", "").split(",")
    names = [*filter(None, map(str.strip, named)), *ctx.meta.get(_OBSERVERS, ())]
    if not names:
        return gripfast.connect(ctx.meta.get(_URL))
    from gripfast.cli.observers import observers

    return gripfast.connect(ctx.meta.get(_URL), observers=observers(dict.fromkeys(names)))
