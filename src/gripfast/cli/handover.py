"""The commands `acquire`, `renew` and `release`: a lock that no process holds, for scripts that can't stay in one.

`renew` and `release` do not adopt the lock. They name the owner id of the text, and the store compares it: so the same
text serves again and again, until it is released, adopted, or has expired.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from gripfast.api import handover
from gripfast.cli import codes
from gripfast.cli.failure import Failure
from gripfast.cli.options import duration_option, name_argument, open_client, otel_option, url_option, wait_option
from gripfast.cli.signals import listening
from gripfast.cli.text import advice, holder, to_forget
from gripfast.cli.waiting import obtain
from gripfast.errors import LeaseLost, LockTimeout, why_lost

TTL_HELP = "The lock is free after this long, unless it is renewed or adopted. [default: 30, or what the URL says]"
RENEW_HELP = "The lock is free after this long, counted from now, unless it is renewed. [default: as before]"


if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # older versions of click can't subscript it


class _Dash(_Choice):
    """Where the text comes from: an argument of a command can be seen by all users of the machine."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "-":
            return "-"
        raise click.UsageError(f"the text of the lock is read from standard input: {_piped(ctx)}", ctx)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"To read the text of the lock from standard input, {_piped(ctx)}"


def _piped(ctx: click.Context | None) -> str:
    return f'write echo "$key" | {ctx.command_path if ctx else "gripfast release"} -'


_text_argument = click.argument("source", metavar="-", type=_Dash(["-"]))


@click.command(short_help="Acquire a lock, and print a text that is its key.")
@name_argument
@url_option
@duration_option("--ttl", TTL_HELP)
@wait_option
@click.option("--label", metavar="TEXT", help="Tells others who holds the lock; ls and show print this text.")
@duration_option("--min-hold", "The lock stays taken for this long, however early it is released.")
@otel_option
@click.pass_context
def acquire(
    ctx: click.Context, name: str, ttl: float | None, wait: float | None, label: str | None, min_hold: float | None
) -> int:
    """Acquire the lock NAME, print a text, and exit. The lock stays held until its ttl is over.

    \b
    key=$(gripfast acquire deploy --ttl 10m)
    ./build.sh && echo "$key" | gripfast renew - && ./deploy.sh
    echo "$key" | gripfast release -

    The text is a key: whoever has it, and may use the store, can renew or release the lock, or adopt it in Python with
    client.adopt(text). It has no password. The lock is not renewed unless you call gripfast renew, and nothing stops
    your work when the lock has expired. If one command is all you need, use gripfast run.
    """
    with open_client(ctx) as client:
        try:
            lease = obtain(client, client.lock(name, ttl=ttl, label=label, min_hold=min_hold), wait, listening())
        except LockTimeout as busy:
            what_next = advice(to_forget(name), busy.holder, "Wait longer with --wait")
            raise Failure(codes.BUSY, f"{name!r} is {holder(busy.holder)}. {what_next}") from None
        click.echo(lease.detach())
    return 0


@click.command(short_help="Renew a lock that gripfast acquire took.")
@_text_argument
@url_option
@duration_option("--ttl", RENEW_HELP)
@click.pass_context
def renew(ctx: click.Context, source: str, ttl: float | None) -> None:
    """Renew the lock whose text, printed by gripfast acquire, is on standard input. The text stays valid.

    \b
    echo "$key" | gripfast renew - --ttl 10m

    The exit code is 76 if the lock was lost, or adopted: then stop the work that needs it.
    """
    with open_client(ctx) as client:
        _check(client._drive(handover.renew(client, sys.stdin.read(), ttl)))


@click.command(short_help="Release a lock that gripfast acquire took.")
@_text_argument
@url_option
@click.pass_context
def release(ctx: click.Context, source: str) -> None:
    """Release the lock whose text, printed by gripfast acquire, is on standard input.

    \b
    echo "$key" | gripfast release -

    The exit code is 76 if the lock was not held any more: it may have expired while you still worked.
    """
    with open_client(ctx) as client:
        _check(client._drive(handover.release(client, sys.stdin.read())))


def _check(lost: LeaseLost | None) -> None:
    if lost is not None:
        raise Failure(codes.LOST, f"lost the lock {lost.name!r}: {lost.args[2] or why_lost(lost)}")
