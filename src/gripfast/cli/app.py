"""The commands together, and what becomes of errors: one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import sys
import threading
from collections.abc import Sequence

import click

import gripfast
from gripfast.cli import codes
from gripfast.cli.commands import Commands
from gripfast.cli.failure import explain, redacted, say
from gripfast.cli.options import url_option
from gripfast.cli.streams import open_closed_streams

PROGRAM = "gripfast"
GARBAGE = 50_000
"""Objects, from which on garbage is looked for. A start makes so many that Python looks again and again, for 5 ms, and
finds next to none."""
COMPLETE = "_GRIPFAST_COMPLETE"
"""The variable by which a shell's script asks for completions."""


HELP = {"help_option_names": ["-h", "--help"]}
"""For the commands of other packages, too: a command has those of its group."""


@click.group(cls=Commands, invoke_without_command=True, epilog=codes.listing(), context_settings=HELP)
@url_option
@click.version_option(gripfast.__version__, message="gripfast %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """Locks for commands, shared by everyone who uses the same store.

    \b
    gripfast run nightly -- ./backup.sh     run it, never twice at the same time
    gripfast ls                             list who holds which lock

    Without --url and $GRIPFAST_URL the locks are in a file in your home directory. That works on one machine only.
    """
    if ctx.invoked_subcommand is not None:
        return None
    click.echo(ctx.get_help(), err=True)
    return codes.USAGE


def main(args: Sequence[str] | None = None) -> int:
    """The exit status of `gripfast ARGS`. Without arguments, do what this process was started for, and end it."""
    if args is None:
        gc.set_threshold(GARBAGE)
    open_closed_streams()
    _say_warnings()
    try:
        status = _invoke(sys.argv[1:] if args is None else list(args))
        sys.stdout.flush()
    except BrokenPipeError:
        status = _reader_left()
    except (Exception, KeyboardInterrupt) as error:
        status = _failed(error)
    if args is None:
        _end(status)
    return status


def _end(status: int) -> None:
    """To take the interpreter apart takes longer than to take a lock and release it: that is left to the system.

    Only where nobody would notice: not under a debugger, a profiler or a tool that measures coverage, and not while a
    thread is at work that a process waits for.
    """
    if sys.gettrace() or sys.getprofile() or "coverage" in sys.modules:
        return
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _invoke(args: list[str]) -> int:
    """As click's own main does it, without its answers to errors."""
    if instruction := os.environ.get(COMPLETE):
        from gripfast.cli.completion import complete

        return complete(cli, instruction)
    try:
        with cli.make_context(PROGRAM, args) as ctx:
            return cli.invoke(ctx) or 0
    except click.exceptions.Exit as done:
        return done.exit_code


def _failed(error: BaseException) -> int:
    code, message = explain(error)
    if os.environ.get("GRIPFAST_DEBUG"):
        import traceback

        click.echo(redacted("".join(traceback.format_exception(error))), err=True)
    if message:
        say(message)
    return code


def _reader_left() -> int:
    """Whoever read our output has seen enough. Nothing may be written at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return codes.of_signal(13)


class _Sayer(logging.Handler):
    """What the library warns about, as one line each, unless the command tells the same in its own words."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno != logging.WARNING or record.name not in _TOLD_BY_COMMANDS:
            say(record.getMessage())


_TOLD_BY_COMMANDS = {"gripfast.client", "gripfast.lease", "gripfast.watchdog", "gripfast.zookeeper"}


def _say_warnings() -> None:
    log = logging.getLogger("gripfast")
    log.setLevel(logging.DEBUG if os.environ.get("GRIPFAST_DEBUG") else logging.WARNING)
    log.handlers = [_Sayer()]
    log.propagate = False
