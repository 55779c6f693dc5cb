"""`gripfast ls`, `show`, `break` and `wait`: for people who want to know about a lock, or to free it."""

from __future__ import annotations

import shlex
import sys
import time

import click

import gripfast
from gripfast.cli import codes, text
from gripfast.cli.failure import Failure, say
from gripfast.cli.options import json_option, name_argument, open_client, url_option, wait_option
from gripfast.cli.signals import listening
from gripfast.cli.waiting import obtain


@click.command(short_help="List the locks that are held.")
@url_option
@json_option
@click.option("--prefix", default="", metavar="TEXT", help="Only locks whose names start with TEXT.")
@click.pass_context
def ls(ctx: click.Context, in_json: bool, prefix: str) -> None:
    """List the held locks: who holds them, for how long, and how many wait.

    \b
    gripfast ls --prefix report:
    gripfast ls --json

    On a terminal it prints a table with headings. Into a pipe it prints one line for each lock, without headings: name,
    label, host, pid, since, seconds until the lock expires unless it is renewed, waiters, token. A blank inside one of
    these is written as \\x20.
    """
    with open_client(ctx) as client:
        infos = sorted(client.list(prefix), key=lambda info: info.name)
    if in_json:
        click.echo(text.as_json([text.info_as_dict(info) for info in infos]))
    elif infos:
        click.echo((text.human_table if sys.stdout.isatty() else text.plain_table)(infos))
    elif sys.stderr.isatty():
        say(f"no lock is held{f' whose name begins with {prefix!r}' if prefix else ''}")


@click.command(short_help="Show who holds a lock.")
@name_argument
@url_option
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, in_json: bool) -> None:
    """Show who holds the lock NAME. The exit code is 66 if nobody does.

    \b
    gripfast show nightly
    gripfast show nightly --json
    """
    with open_client(ctx) as client:
        info = client.inspect(name)
    if in_json:
        click.echo(text.as_json(text.info_as_dict(info) if info else None))
    elif info:
        click.echo(text.portrait(info))
    if info is None:
        raise _nobody(name)


@click.command("break", short_help="Release a lock by force.")
@name_argument
@url_option
@json_option
@click.option("--yes", is_flag=True, help="Break the lock without asking. Required if stdin is not a terminal.")
@click.option("--reason", metavar="TEXT", help="Why. The old holder's error and log show it.")
@click.pass_context
def break_(ctx: click.Context, name: str, in_json: bool, yes: bool, reason: str | None) -> None:
    """Release the lock NAME by force: take it away from its holder.

    \b
    gripfast break nightly
    gripfast break nightly --reason "the host is gone; ask ops"

    The next waiter gets the lock at once, but the old holder may still be at work. The old holder notices only at its
    next renewal. Until then both may write, and only fencing tokens protect the data. So first make sure that the
    holder is gone.

    Where a lock lives in a database session (mode=row, mode=advisory), breaking it ends the session, and the old holder
    can't be told the reason.
    """
    if not (yes or sys.stdin.isatty()):
        raise click.UsageError("Without a terminal gripfast can't ask you; add --yes if you are sure.", ctx)
    with open_client(ctx) as client:
        info = client.inspect(name)
        if info is None:
            raise _nobody(name)
        if info.kept == "done":
            raise Failure(codes.DECLINED, f"{name!r} is {text.holder(info)}. To have it done again: {_forget(name)}")
        if not yes:
            _confirm(client, info)
        if not client.force_release(name, reason):
            raise _nobody(name)
        is_told = bool(reason) and client.capabilities.tells_reason
    if in_json:
        told = {"name": name, "broken": True, "holder": text.info_as_dict(info)}
        click.echo(text.as_json(told | ({"reason": reason, "told": is_told} if reason else {})))
    else:
        click.echo(f"{name!r} is released; it was {text.holder(info)}")
    if reason and not is_told:
        say("this store can't tell the old holder the reason")


@click.command(short_help="Have something done again that was done once.")
@name_argument
@url_option
@json_option
@click.pass_context
def forget(ctx: click.Context, name: str, in_json: bool) -> None:
    """Forget that NAME was done, so that the next gripfast run --once, or client.once(), does it again.

    \b
    gripfast forget digest:2026-11-15

    A lock that somebody holds is left alone; see gripfast break.
    """
    with open_client(ctx) as client:
        info = client.inspect(name)
        was_done = client.forget(name)
    if in_json:
        click.echo(text.as_json({"name": name, "forgotten": was_done}))
    if not was_done:
        but = f"; it is {text.holder(info)}" if info else ""
        raise Failure(codes.NOT_FOUND, f"{name!r} is not recorded as done{but}")
    if not in_json:
        click.echo(f"{name!r} may be done again; it was {text.holder(info)}")


def _confirm(client: gripfast.Client, info: gripfast.LockInfo) -> None:
    click.echo(text.portrait(info), err=True)
    if not click.confirm("Release this lock by force? Its holder may still be at work.", err=True):
        raise Failure(codes.DECLINED, "nothing was changed")
    now = client.inspect(info.name)
    if now is not None and now.owner != info.owner:
        raise Failure(
            codes.DECLINED, f"the lock has another holder by now; nothing was changed. Look again: {_show(info.name)}"
        )


@click.command(short_help="Wait until a lock is free.")
@name_argument
@url_option
@wait_option
@json_option
@click.pass_context
def wait(ctx: click.Context, name: str, wait: float | None, in_json: bool) -> int:
    """Wait until the lock NAME is free, without keeping it. The exit code is 75 if it stays held for --wait seconds.

    \b
    gripfast wait nightly --wait 3600 && echo "the backup is done"

    gripfast waits in the queue like everybody else. When it gets the lock, it releases it at once.
    """
    began = time.monotonic()
    busy: gripfast.LockTimeout | None = None
    with open_client(ctx) as client:
        try:
            if client.inspect(name) is not None:
                obtain(client, client.lock(name, label="gripfast wait"), wait, listening()).release()
        except gripfast.LockTimeout as error:
            busy = error
    if in_json:
        click.echo(text.as_json(_verdict(name, time.monotonic() - began, busy)))
    if busy:
        say(f"{name!r} is still {text.holder(busy.holder)}. Wait longer with --wait, or see: {_show(name)}")
    return codes.BUSY if busy else 0


def _verdict(name: str, waited: float, busy: gripfast.LockTimeout | None) -> dict[str, object]:
    verdict: dict[str, object] = {"name": name, "free": busy is None, "waited": round(waited, 3)}
    if busy:
        verdict["holder"] = text.info_as_dict(busy.holder) if busy.holder else None
    return verdict


def _show(name: str) -> str:
    return f"gripfast show {shlex.quote(name)}"


def _forget(name: str) -> str:
    return f"gripfast forget {shlex.quote(name)}"


def _nobody(name: str) -> Failure:
    return Failure(codes.NOT_FOUND, f"nobody holds {name!r}. List the held locks: gripfast ls")
