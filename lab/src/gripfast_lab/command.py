"""`gripfast lab`: the locks of the field, and the history that breaks each of them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gripfast.cli import codes
from gripfast.cli.failure import Failure, say

if TYPE_CHECKING:
    from gripfast_lab.entry import Entry
    from gripfast_lab.own import Own
    from gripfast_lab.story import Story

WIDTH_AT_MOST = 120
SCENARIO_HELP = (
    "What to simulate: redis, permits, once, failover-0 to failover-2, etcd, redlock3 or redlock5; see "
    "docs/simulation.md."
)
_FILE = click.Path(dir_okay=False, allow_dash=True)
svg_option = click.option("--svg", type=_FILE, help="Draw a picture into this file; - is the standard output.")
html_option = click.option("--html", type=_FILE, help="Write a self-contained HTML page to this file.")


@click.group(invoke_without_command=True, short_help="See how locks break.")
@html_option
@click.pass_context
def lab(ctx: click.Context, html: str | None) -> int | None:
    """Show the locks that people commonly build, store by store, each with the shortest sequence of events (a
    history) that breaks it. After them come semaphores, read/write locks, elections and work that is done once.

    \b
    gripfast lab                          all of them, with verdicts; takes two minutes
    gripfast lab show set-nx-ex-del       one of them, and how it breaks
    gripfast lab seed 42                  one random run of the simulation, drawn in the same way

    A program finds these histories by searching everything that can happen in a small world. It also searches for
    histories that break Gripfast's own locks. For that it runs the production code in the simulation.
    """
    if ctx.invoked_subcommand is not None:
        if html is not None:
            raise click.UsageError(f"Write --html after {ctx.invoked_subcommand}.", ctx)
        return None
    return _list(html)


@lab.command(short_help="Show how one of these locks breaks.")
@click.argument("name", shell_complete=lambda ctx, param, typed: _names(typed))
@click.option("--program", is_flag=True, help="Also show the lock's protocol as Python code.")
@svg_option
@html_option
def show(name: str, program: bool, svg: str | None, html: str | None) -> int:
    """Show how NAME breaks, with a timeline. `gripfast lab` lists the names."""
    from gripfast_lab.entries import BY_NAME
    from gripfast_lab.own import OWN
    from gripfast_lab.verdicts import judged

    own = {each.name: each for each in OWN}
    if name in own:
        return _show_own(own[name], svg or html)
    if name not in BY_NAME:
        raise click.UsageError(f"{name} is not in the lab. List all names: gripfast lab")
    verdict = judged(BY_NAME[name])
    if verdict.story is None:
        click.echo(f"{verdict.entry.title}: {verdict}")
        return codes.DECLINED
    if not draw(verdict.story, svg, html):
        _tell(verdict.entry, verdict.story, program)
    return 0


@lab.command(short_help="Run the simulation with one seed and draw it.")
@click.argument("seed", type=click.IntRange(min=0))
@click.option("--scenario", default="redis", show_default=True, help=SCENARIO_HELP)
@svg_option
@html_option
def seed(seed: int, scenario: str, svg: str | None, html: str | None) -> int:
    """Run the simulation with SEED and draw what happened. If the run breaks a rule, draw the smallest set of actions
    and faults that still breaks it."""
    from gripfast_lab.seeds import story_of_seed
    from gripfast_lab.sim.runner import scenarios

    known = scenarios()  # imported by being asked for
    if scenario not in known:
        raise click.UsageError(f"No scenario is called {scenario}. Scenarios: {', '.join(known)}.")
    story, violations = story_of_seed(seed, scenario)
    if not draw(story, svg, html):
        click.echo(timeline(story))
    for violation in violations:
        say(str(violation))
    return codes.DECLINED if violations else 0


def _list(html: str | None) -> int:
    from gripfast_lab.entries import ENTRIES
    from gripfast_lab.own import OWN
    from gripfast_lab.verdicts import judged, judged_own

    names, titles = (max(map(len, words)) for words in zip(*_headings(ENTRIES, OWN), strict=True))
    stories, surprises = [], []
    for entry in ENTRIES:
        verdict = judged(entry)
        _row(f"{entry.name:<{names}}  {entry.title:<{titles}}  {verdict}", html)
        surprises += [] if verdict.is_as_expected else [entry.name]
        stories += [] if verdict.story is None else [verdict.story]
    for own in OWN:
        own_verdict = judged_own(own)
        _row(f"{own.name:<{names}}  {own.title:<{titles}}  {own_verdict}", html)
        surprises += [] if own_verdict.is_as_expected else [own.name]
    if html is not None:
        from gripfast_lab.pictures import html as pages

        _write(html, pages.page(stories, "How locks break"))
    if surprises:
        what = f"these verdicts are not those of the documentation: {', '.join(surprises)}. Please report this"
        raise Failure(codes.INTERNAL, what)
    return 0


def _headings(entries: Sequence[Entry], own: Sequence[Own]) -> Iterator[tuple[str, str]]:
    yield from ((each.name, each.title) for each in entries)
    yield from ((each.name, each.title) for each in own)


def _row(line: str, html: str | None) -> None:
    """As soon as it is known. A page on the standard output wants that for itself."""
    click.echo(line, err=html == "-")
    sys.stdout.flush()


def _show_own(own: Own, file: str | None) -> int:
    from gripfast_lab.verdicts import OwnVerdict

    if file is not None:
        raise click.UsageError(f"Nothing was found that breaks {own.name}, so there is nothing to draw.")
    click.echo(f"{own.title}\n\n{own.text}\n")
    searched = []
    for each in own.searched():
        click.echo(f"  {each.where:<14}{each.number:>9,} {each.unit:<8}{each.wrong or 'nothing found'}")
        searched.append(each)
    verdict = OwnVerdict(own, tuple(searched))
    click.echo(f"\n{verdict}")
    return 0 if verdict.is_as_expected else codes.DECLINED


def _tell(entry: Entry, story: Story, program: bool) -> None:
    from gripfast_lab.page import source_of

    parts = [entry.idea]
    if program:
        parts.append(f"\n{source_of(entry)}")
    parts.append(f"\n{timeline(story)}\n")
    said = f"Study notes    {entry.notes}" if entry.notes else f"Seen           {entry.seen}"
    parts += [f"What happens   {entry.happens}", said, f"Gripfast       {entry.answer}"]
    click.echo("\n".join(_wrapped(part) for part in parts))


def _wrapped(part: str) -> str:
    if "\n" in part.strip("\n"):
        return part
    margin = " " * 15 if part.lstrip("\n").startswith(("What happens", "Study notes", "Seen  ", "Gripfast  ")) else ""
    return click.wrap_text(part, _width(), subsequent_indent=margin, preserve_paragraphs=True)


def timeline(story: Story) -> str:
    from gripfast_lab.pictures import terminal

    encoding = sys.stdout.encoding or "ascii"
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return terminal.drawn(story, _width(), colour, ascii_only=not encoding.lower().startswith("utf"))


def _width() -> int:
    return min(shutil.get_terminal_size().columns, WIDTH_AT_MOST)


def draw(story: Story, svg: str | None, html: str | None) -> bool:
    """Whether it was asked for."""
    if svg is not None:
        from gripfast_lab.pictures import svg as drawings

        _write(svg, drawings.drawn(story))
    if html is not None:
        from gripfast_lab.pictures import html as pages

        _write(html, pages.page([story], story.title))
    return svg is not None or html is not None


def _write(file: str, text: str) -> None:
    if file == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{file} can't be written: {error.strerror}.") from None
    say(f"drawn into {file}")


def _names(typed: str) -> list[str]:
    from gripfast_lab.entries import BY_NAME
    from gripfast_lab.own import OWN

    return [name for name in (*BY_NAME, *(own.name for own in OWN)) if name.startswith(typed)]
