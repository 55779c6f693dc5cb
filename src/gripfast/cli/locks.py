"""`gripfast ls`, `show`, `break` and `wait`: for people who want to know about a lock, or to free it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import click

import gripfast
from gripfast.api.rows import CANT_COUNT, Row, break_holders, listed, look_up, row_of
from gripfast.cli import codes, held, text
from gripfast.cli.failure import Failure, say
from gripfast.cli.kinds import NAMES, AnyKind, kinds_of, to_list, to_show, words_of
from gripfast.cli.options import (
    any_kind_option,
    json_option,
    kind_option,
    name_argument,
    open_client,
    url_option,
    wait_option,
)
from gripfast.cli.signals import listening
from gripfast.cli.waiting import obtain


@click.command(short_help="List what is held: locks, semaphores, read/write locks.")
@url_option
@json_option
@click.option("--prefix", default="", metavar="TEXT", help="Only names that start with TEXT.")
@any_kind_option
@click.pass_context
def ls(ctx: click.Context, in_json: bool, prefix: str, kind: AnyKind | Literal["all"]) -> None:
    """List the locks, semaphores and read/write locks that are held: who holds them, for how long, and how many wait.

    \b
    gripfast ls --prefix report:
    gripfast ls --json
    gripfast ls --kind semaphore

    On a terminal it prints a table with headings. If the terminal is too narrow, long texts are cut, and columns are
    left out. Into a pipe it prints one line for each holder, without headings: name, label, host, pid, since, seconds
    until the lock expires unless it is renewed, waiters, token, state, kind. A space inside one of these fields is
    written as \\x20. Later versions may add fields at the end. If the store can't tell how many wait (PostgreSQL,
    MariaDB, MySQL), waiters is ?, and null with --json.

    The state is held, or done (recorded by gripfast run --once, or once(): nobody is at work), or min_hold (released,
    but not free yet), or foreign (other software holds it). With --json, an entry that is done or min_hold has the
    field kept.

    With --kind semaphore or --kind rwlock it prints one line for each name: name, kind, limit, permits in use (or read,
    or write), their slots, the number of holders, waiters. gripfast show tells who the holders are.
    """
    if kind == "all":
        _list_all(ctx, in_json, prefix)
        return
    with open_client(ctx) as client:
        rows = sorted(listed(client, prefix, kind), key=lambda row: row.name)
    words = words_of(kind)
    if in_json:
        click.echo(text.as_json([words.row_as_dict(row) for row in rows]))
    elif rows:
        click.echo((words.human_table if sys.stdout.isatty() else words.plain_table)(rows))
        _say_what_is_missing(rows)
    else:
        _say_none(NAMES[kind], prefix)


def _list_all(ctx: click.Context, in_json: bool, prefix: str) -> None:
    with open_client(ctx) as client:
        rows = held.rows_in(client, prefix)
    if in_json:
        click.echo(text.as_json(held.as_dicts(rows)))
    elif rows:
        click.echo((held.human_table if sys.stdout.isatty() else held.plain_table)(rows))
        _say_what_is_missing(rows)
    else:
        _say_none("lock, semaphore or read/write lock", prefix)


def _say_what_is_missing(rows: Sequence[Row]) -> None:
    if any(row.waiters is None for row in rows):
        say(CANT_COUNT)


def _say_none(what: str, prefix: str) -> None:
    if sys.stderr.isatty():
        say(f"no {what} is held{f' whose name begins with {prefix!r}' if prefix else ''}")


@click.command(short_help="Show who holds a lock.")
@name_argument
@url_option
@json_option
@any_kind_option
@click.pass_context
def show(ctx: click.Context, name: str, in_json: bool, kind: AnyKind | Literal["all"]) -> int:
    """Show who holds the lock, the semaphore or the read/write lock NAME: the first of these that is held.

    \b
    gripfast show nightly
    gripfast show nightly --json
    gripfast show api --kind semaphore

    The exit code is 66 if nobody holds it. It is 79 if nobody holds it, but it is recorded as done (gripfast run
    --once, or once()): then show tells who has done it. It is 0 while the name is kept for its min_hold: nobody can
    acquire it yet.
    """
    with open_client(ctx) as client:
        found = _first(client, name, kinds_of(client) if kind == "all" else [kind])
        nobody = None if found else _nobody(name, kind, client)
    if in_json:
        click.echo(text.as_json(words_of(found.kind).row_as_dict(found) if found else None))
    elif found:
        click.echo(words_of(found.kind).portrait(found))
        _say_what_is_missing([found])
    if nobody is not None:
        raise nobody
    return codes.DONE if found and found.holders[0].kept == "done" else 0


def _first(client: gripfast.Client, name: str, kinds: Sequence[AnyKind]) -> Row | None:
    """What is held under this name. Who has rights for locks alone is told about locks."""
    for kind in kinds:
        try:
            row = look_up(client, kind, name)
        except gripfast.StoreUnavailable:
            if kind == kinds[0]:
                raise
            continue
        if row is not None:
            return row
    return None


@click.command("break", short_help="Release a lock by force.")
@name_argument
@url_option
@json_option
@click.option("--yes", is_flag=True, help="Break the lock without asking. Required if stdin is not a terminal.")
@click.option("--reason", metavar="TEXT", help="Why. The old holder's error and log show it.")
@kind_option
@click.option("--owner", metavar="ID", help="With --kind: only the holder with this owner id.")
@click.option("--slot", type=int, metavar="N", help="With --kind semaphore: only the holder of this slot.")
@click.pass_context
def break_(
    ctx: click.Context,
    name: str,
    in_json: bool,
    yes: bool,
    reason: str | None,
    kind: AnyKind,
    owner: str | None,
    slot: int | None,
) -> None:
    """Release the lock NAME by force: take it away from its holder.

    \b
    gripfast break nightly
    gripfast break nightly --reason "the host is gone; ask ops"
    gripfast break api --kind semaphore --slot 2

    The next waiter gets the lock at once, but the old holder may still be at work. The old holder notices only at its
    next renewal. Until then both may write, and only fencing tokens protect the data. So first make sure that the
    holder is gone.

    Where a lock lives in a database session (mode=row, mode=advisory), breaking it ends the session, and the old holder
    does not get the reason.

    If NAME is a semaphore or read/write lock, all holders lose their permits. With --owner or --slot, only that holder
    does. A holder that gets a permit in the meantime keeps it.
    """
    _check_whom(ctx, kind, owner, slot)
    if not (yes or sys.stdin.isatty()):
        raise click.UsageError("Without a terminal gripfast can't ask you; add --yes if you are sure.", ctx)
    with open_client(ctx) as client:
        if kind == "lock":
            info: gripfast.LockInfo | gripfast.PermitInfo = _break_lock(client, name, yes, reason)
        else:
            info = _break_permits(client, _permits(client, name, kind), owner, slot, yes, reason)
        able = client.capabilities
        is_told = bool(reason) and able.tells_reason
    words = words_of(kind)
    if in_json:
        told = {"name": name, "broken": True, **words.holders_as_dict(row_of(info, able.waiters_seen))}
        click.echo(text.as_json(told | ({"reason": reason, "told": is_told} if reason else {})))
    else:
        click.echo(words.broken(info))
    if reason and not is_told:
        say("this store can't tell the old holder the reason")


def _check_whom(ctx: click.Context, kind: AnyKind, owner: str | None, slot: int | None) -> None:
    if kind == "lock" and (owner is not None or slot is not None):
        raise click.UsageError("A lock has one holder: --owner and --slot need --kind.", ctx)
    if owner is not None and slot is not None:
        raise click.UsageError("Use --owner or --slot, not both.", ctx)
    if kind == "rwlock" and slot is not None:
        raise click.UsageError("A read/write lock has no slots: use --owner.", ctx)


def _break_lock(client: gripfast.Client, name: str, yes: bool, reason: str | None) -> gripfast.LockInfo:
    info = client.inspect(name)
    if info is None:
        raise _nobody(name, "lock", client)
    if info.kept == "done":
        raise Failure(
            codes.DECLINED, f"{name!r} was {text.holder(info)}. To have it done again: {text.to_forget(name)}"
        )
    row = row_of(info, client.capabilities.waiters_seen)
    if not yes:
        _ask(text.portrait(row), "Release this lock by force? Its holder may still be at work.")
    if not break_holders(client, row, reason):
        raise _nobody(name, "lock", client) if client.inspect(name) is None else _another(name)
    return info


def _permits(client: gripfast.Client, name: str, kind: Literal["semaphore", "rwlock"]) -> gripfast.PermitInfo:
    info = client.inspect(name, kind)
    if info is None:
        raise _nobody(name, kind, client)
    return info


def _break_permits(
    client: gripfast.Client,
    info: gripfast.PermitInfo,
    owner: str | None,
    slot: int | None,
    yes: bool,
    reason: str | None,
) -> gripfast.PermitInfo:
    """By owner ids, so that nobody loses it who came after the question. The result has those who lost it."""
    chosen = [each for each in info.holders if owner in (None, each.owner) and (slot is None or slot in each.slots)]
    if not chosen:
        whom = f"slot {slot} of {info.name!r}" if owner is None else f"{info.name!r} as {owner!r}"
        raise Failure(codes.NOT_FOUND, f"nobody holds {whom}. See who does: {to_show(info.name, info.kind)}")
    sees_waiters = client.capabilities.waiters_seen
    some = row_of(replace(info, holders=tuple(chosen)), sees_waiters)
    if not yes:
        question = "Release the permits of these holders by force? They may still be at work."
        _ask(words_of(info.kind).portrait(row_of(info, sees_waiters), some.holders), question)
    hit = {each.owner for each in break_holders(client, some, reason)}
    if not hit:
        raise _nobody(info.name, info.kind, client)
    return replace(info, holders=tuple(each for each in chosen if each.owner in hit))


@click.command(short_help="Forget that something was done, so that it is done again.")
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


def _ask(portrait: str, question: str) -> None:
    click.echo(portrait, err=True)
    if not click.confirm(question, err=True):
        raise Failure(codes.DECLINED, "nothing was changed")


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
        sees_waiters = client.capabilities.waiters_seen
        click.echo(text.as_json(_verdict(name, time.monotonic() - began, busy, sees_waiters)))
    if busy:
        what_next = text.advice(text.to_forget(name), busy.holder, f"Wait longer with --wait, or see: {to_show(name)}")
        say(f"{name!r} is still {text.holder(busy.holder)}. {what_next}")
    return codes.BUSY if busy else 0


def _verdict(name: str, waited: float, busy: gripfast.LockTimeout | None, sees_waiters: bool) -> dict[str, object]:
    verdict: dict[str, object] = {"name": name, "free": busy is None, "waited": round(waited, 3)}
    if busy:
        verdict["holder"] = text.row_as_dict(row_of(busy.holder, sees_waiters)) if busy.holder else None
    return verdict


def _another(name: str) -> Failure:
    words = f"the lock has another holder by now; nothing was changed. Look again: {to_show(name)}"
    return Failure(codes.DECLINED, words)


def _nobody(name: str, kind: AnyKind | Literal["all"], client: gripfast.Client) -> Failure:
    """Another kind of the same name may be held, and meant."""
    if kind == "all":
        return Failure(codes.NOT_FOUND, f"nobody holds {name!r}. List what is held: gripfast ls")
    held_as = _first(client, name, [each for each in kinds_of(client) if each != kind])
    if held_as is None:
        return Failure(codes.NOT_FOUND, f"nobody holds {name!r}. List the held {NAMES[kind]}s: {to_list(kind)}")
    other = held_as.kind
    words = f"nobody holds the {NAMES[kind]} {name!r}, but there is a {NAMES[other]} of that name: add --kind {other}"
    return Failure(codes.NOT_FOUND, words)
