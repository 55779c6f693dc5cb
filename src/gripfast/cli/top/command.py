"""`gripfast top`: live on a terminal; otherwise one table."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC

import click

from gripfast.api.rows import Order, Row, Scan, matching, ordered, scan
from gripfast.api.watching import Rates
from gripfast.cli import text
from gripfast.cli.failure import say
from gripfast.cli.options import duration_option, json_option, open_client, url_argument, url_option
from gripfast.cli.top.picture import columns, use
from gripfast.cli.top.state import ORDERS, State
from gripfast.errors import visible

INTERVAL = 2.0


@click.command(short_help="Watch what is held and waited for, live.")
@url_argument
@url_option
@json_option
@click.option("--once", is_flag=True, help="Print one table and end; the same if stdout is not a terminal.")
@duration_option("--interval", "Scan the store this often. [default: 2s] With --once: scan twice, this far apart.")
@click.option(
    "--sort", "order", type=click.Choice(ORDERS), default="waiting", help="What comes first. [default: waiting]"
)
@click.option("--filter", "words", default="", metavar="WORDS", help="Only rows that contain each of these words.")
@click.option("--prefix", default="", metavar="TEXT", help="Only names that start with TEXT; others are not even read.")
@click.pass_context
def top(
    ctx: click.Context, in_json: bool, once: bool, interval: float | None, order: Order, words: str, prefix: str
) -> None:
    """Watch a store: who holds what and for how long, how many wait, and how often locks are acquired.

    \b
    gripfast top
    gripfast top redis://localhost:6379 --sort held
    gripfast top --once --json --filter web-1

    Keys: Enter shows one row, / filters, s sorts, b breaks (it asks first), p pauses, ? lists all keys, q quits.

    RATE is how often a name is acquired each second, at least: top counts the tokens that changed between two scans.
    LEFT is the time until a lock expires unless its holder renews it. If the store can't be reached, the last rows
    stay, and top goes on when the store is back.

    With --once it prints a table with headings on a terminal. Into a pipe it prints one line for each name, without
    headings: name, kind, use (1, or permits in use/limit, or read, or write, or done or kept if nobody is at work),
    number of holders, waiters, rate, and of the first holder: label, host, pid, since, seconds left, token. What is not
    known is a dash; a space inside a field is written as \\x20. For a rate, top has to scan twice: add --interval 1s.

    If the URL has a password, set $GRIPFAST_URL: other users of the machine can see the arguments of a command.
    """
    client = open_client(ctx)

    def look() -> Scan:
        return scan(client, prefix)

    if once or in_json or not _is_live():
        _print(_looked(look, interval), words, order, in_json)
    else:
        from gripfast.cli.top.session import live

        live(client, look, interval or INTERVAL, State(client.where, order, filter=words))


def _is_live() -> bool:
    if sys.platform == "win32" or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def _looked(look: Callable[[], Scan], interval: float | None) -> Scan:
    """With rates, if there is time for a second look."""
    rates, found = Rates(), look()
    if not interval:
        return found
    rates.of(found)
    time.sleep(interval)
    found = look()
    return found._replace(rows=rates.of(found)[0])


def _print(found: Scan, words: str, order: Order, in_json: bool) -> None:
    found = found._replace(rows=ordered(matching(found.rows, words), order))
    if in_json:
        click.echo(text.as_json(found.to_json()))
    elif found.rows:
        click.echo(_table(found) if sys.stdout.isatty() else text.aligned([_words(row) for row in found.rows]))
    if not in_json:
        _say_what_is_missing(found, words)


def _say_what_is_missing(found: Scan, words: str) -> None:
    for note in found.notes:
        say(note)
    if not found.rows and sys.stderr.isatty():
        say("nothing that is held matches the filter" if words else "nothing is held")


def _table(found: Scan) -> str:
    shown = columns(found.wall)
    rows = ([visible(column.text(row)) for column in shown] for row in found.rows)
    return text.aligned([[column.heading for column in shown], *rows])


def _words(row: Row) -> Sequence[str]:
    first = row.holders[0]
    since = "-" if first.since is None else first.since.astimezone(UTC).isoformat(timespec="milliseconds")
    waiters = "-" if row.waiters is None else str(row.waiters)
    rate = "-" if row.rate is None else f"{row.rate:.3f}"
    who = (text.word(first.label or "-"), text.word(first.host or "-"), str(first.pid), since)
    counts = (row.kind, _use(row), str(len(row.holders)), waiters, rate)
    return (text.word(row.name), *counts, *who, f"{first.expires_in:.3f}", str(first.token))


def _use(row: Row) -> str:
    if row.kind == "semaphore":
        return f"{row.in_use}/{row.limit}"
    return str(row.mode) if row.kind == "rwlock" else use(row).replace("lock", "1")
