"""`gripfast doctor`: what is wrong or risky with a deployment, each with what to do. `api/doctor.py` finds it."""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from gripfast.api.config import configure
from gripfast.cli import codes, text
from gripfast.cli.options import json_option, url_of, url_option
from gripfast.errors import visible
from gripfast.stores.doctor import Finding, precise

if TYPE_CHECKING:
    from gripfast.api.doctor import Report

WIDTH_MOST = 100
"""Longer lines are hard to read."""
INDENT, HANGING = " " * 10, " " * 6
USABLE = click.style("usable    ", fg="green")
HEADS = {"problem": click.style("PROBLEM   ", fg="red", bold=True), "advice": click.style("advice    ", fg="yellow")}


@click.command(short_help="Judge a deployment: what is wrong or risky, and what to do.")
@click.argument("target", required=False, metavar="[URL]")
@url_option
@json_option
@click.option("--quick", is_flag=True, help="Only say whether the store can be reached and used.")
@click.pass_context
def doctor(ctx: click.Context, target: str | None, in_json: bool, quick: bool) -> int:
    """Connect to the store at URL and judge it: what is wrong or risky for locks, why, and what to do.

    \b
    gripfast doctor redis://localhost:6379
    gripfast doctor --quick && ./start.sh
    gripfast doctor --json

    It acquires, renews and releases a lock with a random name, measures how long that takes, compares clocks, and reads
    the settings of the server. It changes nothing else. The more its user may read (INFO and CONFIG GET on Redis, for
    instance), the more it sees.

    The exit code is 1 if there is a problem: something that, as the server is now, can give one lock to two holders,
    stop locks from working, or end the lease of a living holder. Advice alone does not change the exit code.
    docs/doctor.md lists every finding.

    Without URL it judges the store in --url or $GRIPFAST_URL, or else the file in your home directory. If the URL has a
    password, set $GRIPFAST_URL: other users of the machine can see the arguments of a command.
    """
    from gripfast.api.doctor import examine

    logging.getLogger("gripfast").setLevel(logging.ERROR)  # what the library warns about is a finding here
    report = examine(configure(target or url_of(ctx) or None, {}), quick)
    click.echo(text.as_json(as_dict(report)) if in_json else "\n".join(lines(report, quick, _width())))
    return codes.PROBLEM if report.problems else 0


def as_dict(report: Report) -> dict[str, object]:
    latency = report.latency
    return {
        "where": report.where,
        "store": report.store,
        "summary": report.summary,
        "usable": report.usable,
        "problems": report.problems,
        "ttl": report.ttl,
        "latency": latency and {name: round(value, 6) for name, value in latency._asdict().items()},
        "clock_difference": None if report.clock is None else round(report.clock, 3),
        "findings": [finding._asdict() for finding in report.findings],
    }


def lines(report: Report, quick: bool, width: int | None) -> Iterator[str]:
    """`width`: columns of the terminal; None if it is none, and then lines are as long as they are."""
    yield from _head(report, width)
    if report.usable:
        yield from _hanging(USABLE, _usable(report), width)
    for finding in report.findings:
        yield from ["", *_finding(finding, width)]
    if not quick:
        yield from ["", _count(report)]


def _usable(report: Report) -> str:
    words = "a lock was acquired, waited for, renewed and released"
    if report.latency is None:
        return words
    median, tail = precise(report.latency.median), precise(report.latency.tail)
    return f"{words}; {median} to acquire and release, {tail} at most for 99 of 100"


def _head(report: Report, width: int | None) -> list[str]:
    where, summary = visible(report.where), visible(report.summary)
    fits = width is None or len(where) + 2 + len(summary) <= width
    head = click.style(where, bold=True)
    if not summary:
        return [head]
    return [f"{head}  {summary}"] if fits else [head, *_hanging(INDENT, summary, width)]


def _finding(finding: Finding, width: int | None) -> Iterator[str]:
    what = f"{finding.where}: {finding.what}" if finding.where else finding.what
    yield from _hanging(HEADS[finding.kind], f"{what} [{finding.name}]", width)
    yield from _hanging(INDENT, f"why   {finding.why}", width)
    yield from _hanging(INDENT, f"to do {finding.todo}", width)


def _hanging(head: str, words: str, width: int | None) -> Iterator[str]:
    """Behind a head as wide as INDENT."""
    first, *rest = _wrapped(visible(words), width)
    yield head + first
    yield from (INDENT + line for line in rest)


def _wrapped(words: str, width: int | None) -> list[str]:
    if width is None:
        return [words]
    room = max(30, width - len(INDENT))
    return textwrap.wrap(words, room, subsequent_indent=HANGING, break_long_words=False, break_on_hyphens=False)


def _count(report: Report) -> str:
    advice = len(report.findings) - report.problems
    if not report.findings:
        return "nothing to say: no problem, no advice"
    problems = "no problem" if not report.problems else f"{report.problems} problem{'s' * (report.problems > 1)}"
    return f"{problems}, {advice} piece{'s' * (advice != 1)} of advice; docs/doctor.md lists every finding"


def _width() -> int | None:
    return min(WIDTH_MOST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None
