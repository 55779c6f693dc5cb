"""`gripfast run`: holds a lock while a command runs, and not a moment less."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict, cast

import click

import gripfast
from gripfast.cli import codes
from gripfast.cli.failure import Failure, explain, say
from gripfast.cli.kinds import AnyKind, called, kind_in, to_show, words_of
from gripfast.cli.options import (
    duration_option,
    name_argument,
    open_client,
    otel_option,
    quiet_option,
    url_option,
    wait_option,
)
from gripfast.cli.signals import Signals, listening
from gripfast.cli.spawn import Command, start
from gripfast.cli.supervise import KEPT, Ending, Supervisor, end_family, sane_grace
from gripfast.cli.text import advice, holder, to_forget
from gripfast.cli.waiting import campaigning
from gripfast.errors import why_lost

if TYPE_CHECKING:
    from typing import Unpack

GRACE = 5.0
SLOTS = "GRIPFAST_SLOTS"

TTL_HELP = """How long the lock stays held if gripfast dies and the store does not notice (the embedded store,
sqlite://, notices at once). gripfast renews it while the command runs. [default: 30, or what the URL says]"""
GRACE_HELP = f"""If the lock can't be renewed, send TERM this long before the lease ends, and KILL just before it ends;
at most half the ttl. [default: {GRACE:g}, or half the ttl if that is less]"""
MIN_HOLD_HELP = "The lock stays taken for this long from its acquisition, even if the command ends earlier or fails."
ONCE_HELP = """Run the command only if it was not done before. If it ends with status 0, that is recorded for as long as
--keep says. If it fails or is killed, it may be run again."""
KEEP_HELP = "With --once: for how long the store remembers that the command was done, such as 7d."
DONE_HELP = f"With --once: exit code if it was done before. [default: {codes.DONE}]"
LIMIT_HELP = """Take a permit of the semaphore NAME, which has N permits: at most N commands run at the same time. All
programs must use the same limit."""
READ_HELP = "Take the read/write lock NAME for reading: others may read at the same time, and nobody writes."
WRITE_HELP = "Take the read/write lock NAME for writing: nobody else reads or writes."
GROUP_HELP = """The name that metrics use for this lock and others like it. Metrics never contain the names of locks,
because there may be any number of them."""
BUSY_HELP = f"Exit code if someone else holds the lock. [default: {codes.BUSY}]"


class Settings(NamedTuple):
    name: str
    words: Sequence[str]
    wait: float | None
    busy_code: int
    grace: float | None
    quiet: bool
    done_code: int
    kind: AnyKind
    look: str
    """The command that shows who holds it."""
    forget: str
    """What has it done again."""


class How(TypedDict):
    """The arguments and options of `run`, but for the URL."""

    name: str
    words: Sequence[str]
    wait: float | None
    no_wait: bool
    busy_exit_code: int
    grace: float | None
    quiet: bool
    done_exit_code: int
    ttl: float | None
    label: str | None
    group: str | None
    limit: int | None
    read: bool
    write: bool
    min_hold: float | None
    once: bool
    keep: float | None


class RunCommand(click.Command):
    """Everything after the first -- is the command, whatever it looks like; before it come NAME and options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        cut = args.index("--") if "--" in args else len(args)
        if not (args[cut + 1 :] or ctx.resilient_parsing or set(ctx.help_option_names) & set(args[:cut])):
            example = f"gripfast {self.name} NAME -- ./backup.sh"
            raise click.UsageError(f"No command. Write it after two dashes: {example}", ctx)
        rest = super().parse_args(ctx, args[:cut])
        ctx.params["words"] = args[cut + 1 :]
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "--", "CMD…"]


@click.command(cls=RunCommand, short_help="Run a command while holding a lock.", epilog=codes.listing())
@name_argument
@url_option
@duration_option("--ttl", TTL_HELP)
@wait_option
@click.option("--no-wait", is_flag=True, help="Do not wait at all: the same as --wait 0.")
@click.option("--label", metavar="TEXT", help="Tells others who holds the lock; ls and show print this text.")
@click.option("--busy-exit-code", type=click.IntRange(0, 255), default=codes.BUSY, metavar="CODE", help=BUSY_HELP)
@duration_option("--grace", GRACE_HELP)
@quiet_option
@click.option("--group", metavar="TEXT", help=GROUP_HELP)
@otel_option
@click.option("--limit", type=int, metavar="N", help=LIMIT_HELP)
@click.option("--read", is_flag=True, help=READ_HELP)
@click.option("--write", is_flag=True, help=WRITE_HELP)
@duration_option("--min-hold", MIN_HOLD_HELP)
@click.option("--once", is_flag=True, help=ONCE_HELP)
@duration_option("--keep", KEEP_HELP)
@click.option("--done-exit-code", type=click.IntRange(0, 255), default=codes.DONE, metavar="CODE", help=DONE_HELP)
@click.pass_context
def run(ctx: click.Context, **how: Unpack[How]) -> int:
    """Run CMD while holding the lock NAME, and exit with its status.

    \b
    gripfast run nightly -- ./backup.sh --full
    gripfast run nightly --wait 60 --label "by hand" -- ./backup.sh
    gripfast run digest:2026-11-15 --once --keep 7d -- ./send-digest.sh
    gripfast run api --limit 3 -- ./fetch.sh

    In CMD's environment, $GRIPFAST_NAME is the lock's name, and $GRIPFAST_TOKEN is the fencing token, a number that
    grows with every holder. With --limit, $GRIPFAST_SLOTS is the number of the permit, from 0 on: no other holder has
    the same number at the same time. A lock, a semaphore and a read/write lock of the same name have nothing to do with
    each other. What follows about the lock is true for all three.

    gripfast passes signals on to CMD. CMD inherits gripfast's standard input, output and error. If one of them is
    closed, it is closed for CMD, too.

    If the lock can't be renewed, CMD gets TERM before the lease ends: --grace says how long before. CMD and everything
    it started get KILL before someone else can get the lock. Then gripfast exits with 76.

    If gripfast itself is killed, Linux kills CMD as well (unless CMD is setuid), but not the processes that CMD has
    started. On other systems CMD keeps running. Nobody renews the lock any more, so it is free after its ttl at the
    latest, even if CMD still runs. With the embedded store (sqlite://, the default) the lock is free as soon as CMD has
    ended.

    The lock is released when CMD ends, even if CMD leaves processes running in the background. There is one exception,
    on Linux: gripfast gets TERM, passes it on, and CMD ends because of it. Then gripfast also sends TERM to the
    processes that CMD left behind (except those in another session), and keeps the lock until they have ended.

    gripfast can't send signals to processes of another user, for example with -- sudo ./backup.sh. It prints a message
    and waits until they end. If the lock is lost in the meantime, it kills the processes that it may kill, waits for
    the others, and exits with 76.

    While gripfast is suspended by Ctrl-Z, the lock is not renewed. If the ttl has passed when gripfast continues, it
    kills CMD.
    """
    _check(ctx, how)
    with open_client(ctx) as client:
        return _run_in(client, ctx, how, to_show(how["name"], kind_in(ctx.params)), to_forget(how["name"]))


OPTIONS = [each for each in run.params if isinstance(each, click.Option) and each.name not in ("url", "otel")]
"""What another program may offer that knows the store."""


def run_for(client: gripfast.Client, program: str, words: Sequence[str], look: str, forget: str) -> int:
    """`run`, for another program that has a client: the exit code. Its words are read as those of `gripfast run` are.
    For `manage.py locked` of `contrib/django/`."""
    try:
        ctx = run.make_context(program, list(words))
        how = cast(How, ctx.params)
        _check(ctx, how)
        return _run_in(client, ctx, how, look, forget)
    except click.UsageError as error:
        raise Failure(*explain(error)) from None


def _run_in(client: gripfast.Client, ctx: click.Context, how: How, look: str, forget: str) -> int:
    name, patience, kind = how["name"], 0.0 if how["no_wait"] else how["wait"], kind_in(ctx.params)
    busy, done = how["busy_exit_code"], how["done_exit_code"]
    settings = Settings(name, how["words"], patience, busy, how["grace"], how["quiet"], done, kind, look, forget)
    lock = _lock(client, name, how)
    check_grace(ctx, how["grace"], lock.ttl)
    if how["keep"] is not None:
        label, group = how["label"], how["group"]
        attempt = client.once(name, keep=how["keep"], wait=patience, ttl=how["ttl"], label=label, group=group)
        return _run_once(client, attempt, settings, listening())
    return _run_holding(client, lock, settings, listening())


def _check(ctx: click.Context, how: How) -> None:
    if how["no_wait"] and how["wait"] is not None:
        raise click.UsageError("Use --wait or --no-wait, not both.", ctx)
    if how["once"] and how["keep"] is None:
        raise click.UsageError("--once needs --keep: for how long the store remembers it, such as --keep 7d.", ctx)
    if how["keep"] is not None and not how["once"]:
        raise click.UsageError("--keep is for --once.", ctx)
    given = {
        "--limit": how["limit"] is not None,
        "--read": how["read"],
        "--write": how["write"],
        "--once": how["once"],
        "--min-hold": how["min_hold"] is not None,
    }
    first, second, *_ = (*(option for option, is_given in given.items() if is_given), None, None)
    if second is not None:
        raise click.UsageError(f"Use {first} or {second}, not both.", ctx)


def _lock(client: gripfast.Client, name: str, how: How) -> gripfast.Lock | gripfast.Semaphore:
    ttl, label, group = how["ttl"], how["label"], how["group"]
    if how["limit"] is not None:
        return client.semaphore(name, how["limit"], ttl, label=label, group=group)
    if how["read"]:
        return client.rwlock(name, ttl, label=label, group=group).read()
    if how["write"]:
        return client.rwlock(name, ttl, label=label, group=group).write()
    return client.lock(name, ttl=ttl, label=label, group=group, min_hold=how["min_hold"])


def check_grace(ctx: click.Context, grace: float | None, ttl: float) -> None:
    if grace is not None and grace > sane_grace(ttl):
        raise click.UsageError(f"--grace may be at most half the ttl, here {sane_grace(ttl):g} seconds.", ctx)


def _run_holding(
    client: gripfast.Client, lock: gripfast.Lock | gripfast.Semaphore, settings: Settings, signals: Signals
) -> int:
    """Run the command while holding the lock; the exit code."""
    try:
        with campaigning(client, lock.name, signals, settings.quiet, settings.kind):
            lease = lock.acquire(wait=settings.wait)
    except gripfast.LockTimeout as busy:
        return _busy(settings, _who(client, settings, busy), busy.holder)
    ending = supervised(client, lease, settings.words, settings.grace, signals)
    return _conclude(lease, ending, lambda status: lease.release())


def _run_once(client: gripfast.Client, once: gripfast.Once, settings: Settings, signals: Signals) -> int:
    with campaigning(client, once.name, signals, settings.quiet, once=True):
        run = once._begin(False)
    if run.done:
        if not settings.quiet:
            say(f"{settings.name!r} was {holder(run.holder)}. To have it done again: {settings.forget}")
        return settings.done_code
    if not run:
        return _busy(settings, holder(run.holder), run.holder)
    ending = supervised(client, run.lease, settings.words, settings.grace, signals)
    return _conclude(run.lease, ending, run._finish)


def _who(client: gripfast.Client, settings: Settings, busy: gripfast.LockTimeout) -> str:
    """Permits have several holders, and the error names one: the others are looked up, if the store answers."""
    if settings.kind == "lock" or settings.quiet:
        return holder(busy.holder)
    try:
        info = client.inspect(settings.name, settings.kind)
    except gripfast.GripfastError:
        info = None
    return holder(busy.holder) if info is None else str(words_of(settings.kind).holder(info))


def _busy(settings: Settings, who: str, info: gripfast.LockInfo | None) -> int:
    if not settings.quiet:
        what_next = "Wait longer with --wait" if settings.wait else "Wait for it with --wait SECONDS"
        say(f"{settings.name!r} is {who}. {advice(settings.forget, info, f'{what_next}, or see: {settings.look}')}")
    return settings.busy_code


def supervised(
    client: gripfast.Client, lease: gripfast.Lease, words: Sequence[str], grace: float | None, signals: Signals
) -> Ending:
    """Run the command while the lease is held."""
    command = start(words, _environment(lease), signals)
    try:
        return _begin(client, lease, command, grace, signals)
    except BaseException:
        end_family(command, signals, KEPT)
        raise


def _environment(lease: gripfast.Lease) -> dict[str, str]:
    """Without the slots of another `gripfast run` around this one."""
    environment = {**os.environ, "GRIPFAST_NAME": lease.name, "GRIPFAST_TOKEN": str(lease.token)}
    environment.pop(SLOTS, None)
    if lease._state.want.share is not None and lease._state.slots:
        environment[SLOTS] = ",".join(map(str, lease._state.slots))
    return environment


def _begin(
    client: gripfast.Client, lease: gripfast.Lease, command: Command, grace: float | None, signals: Signals
) -> Ending:
    """The lock counts for the command's process before the command begins."""
    client._vouch(lease, command.pid)
    lease.ensure_held()
    command.open_gate()
    grace = min(GRACE if grace is None else grace, sane_grace(lease.ttl))
    return Supervisor(lease, command, signals, grace).watch()


def _conclude(lease: gripfast.Lease, ending: Ending, finish: Callable[[int], None]) -> int:
    """Said before the client is closed, which takes a while on a store that does not answer."""
    if ending.status is None or ending.warned:
        say_stopped(lease, ending)
        return codes.LOST
    try:
        finish(ending.status)
    except gripfast.LeaseLost as lost:
        so = f"The command ended with status {ending.status}, and may have run without the lock at the end"
        say(f"lost the {called(lease)} {lease.name!r}: {why_lost(lost)}. {so}")
        return codes.LOST
    return ending.status


def say_stopped(lease: gripfast.Lease, ending: Ending, then: str = "") -> None:
    if not ending.complete:
        say("some processes of the command still run although gripfast sent them KILL; look for them with ps")
    what = "has ended, but gripfast could not kill all its processes" if ending.refused else "was stopped"
    say(f"lost the {called(lease)} {lease.name!r}: {ending.why}. The command {what}{then}")
