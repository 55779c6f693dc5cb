"""`gripfast verify`: how a run is asked for, and how it is told."""

from __future__ import annotations

import logging
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gripfast.api.config import Config, configure
from gripfast.api.fallback import default_url
from gripfast.cli import codes, text
from gripfast.cli.failure import Failure
from gripfast.cli.options import duration_option, json_option, url_of, url_option
from gripfast.cli.signals import Interrupted
from gripfast.durations import shown
from gripfast_lab.command import draw, html_option, svg_option, timeline

if TYPE_CHECKING:
    from gripfast_lab.sim.violation import Violation
    from gripfast_lab.story import Story
    from gripfast_lab.verify.crew import Crew
    from gripfast_lab.verify.run import Outcome

NAMESPACE = "gripfast-verify:"
SECONDS, TTL = 60.0, 2.0
SHOWN = 3
"""Violations that are told one by one."""
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@click.command(short_help="Try a deployment: real processes, paused and killed, and a verdict.")
@click.argument("target", required=False, metavar="[URL]")
@url_option
@duration_option("--seconds", "How long to pause and kill workers: 60 (seconds), 10m, 1h. [default: 60]")
@click.option("--workers", type=click.IntRange(2, 256), default=8, show_default=True, help="How many processes.")
@duration_option("--ttl", "The ttl of the locks. A short one finds more. [default: 2 seconds]")
@click.option(
    "--seed", help="Make the same random choices again. The order in which the processes act may still differ."
)
@click.option("--prefix", help=f"Keep the locks below this prefix. [default: that of the URL, and {NAMESPACE}]")
@click.option("--force", is_flag=True, help="First remove what is already below the prefix.")
@json_option
@svg_option
@html_option
@click.option("--plant", default="", hidden=True, help="A bug of the simulation, for tests of this command.")
@click.pass_context
def verify(
    ctx: click.Context,
    target: str | None,
    seconds: float | None,
    workers: int,
    ttl: float | None,
    seed: str | None,
    prefix: str | None,
    force: bool,
    in_json: bool,
    svg: str | None,
    html: str | None,
    plant: str,
) -> int:
    """Use the store at URL as many programs would, with real processes that are paused and killed at random, and judge
    what happened.

    \b
    gripfast verify redis://localhost:6379
    gripfast verify --seconds 10m --workers 32
    gripfast verify --json --svg broken.svg

    The workers acquire locks (and semaphores and read/write locks, where the store has them), wait, hold and release.
    Every second worker uses asyncio. The rules are those of the simulation: no two holders at the same time, tokens
    that grow, no lease that counts as held after its deadline, no lost update behind a fence, a lock that is free again
    after its holder died. While it runs, try what your deployment should survive: restart a replica, fail over. It puts
    some load on the server.

    It prints how often locks were acquired, how long that took, how many waiters were passed over, and what was lost.
    The exit code is 1 if a rule was broken, and a picture shows how; --svg and --html draw it into a file.

    All names are below a prefix of their own. If something is there already, gripfast verify refuses to start. In the
    end everything is removed, also after Ctrl-C: keys, processes, and tables or a file that were not there before.

    Without URL it tries the store in --url or $GRIPFAST_URL, or else the file in your home directory. If the URL has a
    password, set $GRIPFAST_URL: other users of the machine can see the arguments of a command.
    """
    if not hasattr(signal, "SIGSTOP"):
        raise Failure(codes.USAGE, "this system can't pause a process: run gripfast verify on Linux or macOS")
    from gripfast_lab.verify.crew import Broken
    from gripfast_lab.verify.run import Settings, ran

    logging.getLogger("gripfast").setLevel(logging.ERROR)  # what the library warns about is judged here
    url = target or url_of(ctx) or default_url()
    config = configure(url, {})
    config = configure(url, {"prefix": config.prefix + NAMESPACE if prefix is None else prefix})
    seed = seed or f"{random.getrandbits(32):x}"
    settings = Settings(url, SECONDS if seconds is None else seconds, workers, ttl or TTL, seed, force, plant)
    progress = _Progress(settings.seconds)
    try:
        with _ending_by_signals():
            outcome = ran(config, settings, progress)
    except Broken as error:
        raise Failure(codes.INTERNAL, f"{error}. Please report it") from None
    finally:
        progress.end()
    return _tell(outcome, config, settings.workers, seed, in_json, svg, html)


@contextmanager
def _ending_by_signals() -> Iterator[None]:
    """They raise, so that everything is removed."""

    def end(signum: int, _: FrameType | None) -> NoReturn:
        raise Interrupted(signum)

    before = {signum: signal.signal(signum, end) for signum in ENDING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class _Progress:
    """One line in a terminal; elsewhere nothing."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_drawn = sys.stderr.isatty()

    def __call__(self, share: float, crew: Crew) -> None:
        if self._is_drawn:
            from gripfast_lab.sim.report import bar

            far = f"{share * self._seconds:.0f} of {self._seconds:.0f} s"
            done = f"{crew.reader.grants():,} acquired, {crew.faults['paused']} paused, {crew.faults['killed']} killed"
            click.echo(f"\r{bar(int(share * 100), 100)} {far}, {done}\x1b[K", nl=False, err=True)

    def end(self) -> None:
        if self._is_drawn:
            click.echo("\r\x1b[K", nl=False, err=True)


# -- telling -----------------------------------------------------------------------------------------------------------


def _tell(
    outcome: Outcome, config: Config, workers: int, seed: str, in_json: bool, svg: str | None, html: str | None
) -> int:
    story = _story(outcome, config)
    is_drawn = story is not None and draw(story, svg, html)
    if in_json:
        click.echo(text.as_json(_as_dict(outcome, config, workers, seed, story)))
    elif "-" not in (svg, html):
        click.echo("\n".join(_lines(outcome, config, workers, seed)))
        if story is not None and not is_drawn:
            click.echo(f"\n{timeline(story)}")
    return codes.PROBLEM if outcome.found else 0


def _story(outcome: Outcome, config: Config) -> Story | None:
    from gripfast_lab.verify.picture import story_of_violation

    if not outcome.found:
        return None
    return story_of_violation(f"What broke on {config.factory.where}", outcome.history, outcome.found[0])


def _as_dict(outcome: Outcome, config: Config, workers: int, seed: str, story: Story | None) -> dict[str, Any]:
    from gripfast_lab.pictures import terminal
    from gripfast_lab.verify.figures import as_dict

    return {
        "where": config.factory.where,
        "store": config.kind,
        "good": not outcome.found,
        "seconds": round(outcome.seconds, 3),
        "workers": workers,
        "ttl": outcome.ttl,
        "seed": seed,
        **{name: outcome.faults.get(name, 0) for name in ("paused", "killed")},
        **as_dict(outcome.figures),
        "fair": config.factory.capabilities.fair,
        "tokens_grow": not any(each.rule == "token" for each in outcome.found),
        "violations": [each._asdict() for each in outcome.found],
        "picture": story and terminal.drawn(story, 100, False, ascii_only=True),
    }


def _lines(outcome: Outcome, config: Config, workers: int, seed: str) -> Iterator[str]:
    found, figures, faults = outcome.found, outcome.figures, outcome.faults
    yield f"{click.style(config.factory.where, bold=True)}  {config.kind}, ttl {shown(outcome.ttl)}, seed {seed}"
    yield _row("trouble", f"{workers} workers, {faults.get('paused', 0)} paused, {faults.get('killed', 0)} killed")
    others = f"{figures.refused:,} refused, {figures.unreachable:,} unreachable"
    yield _row("acquired", f"{figures.entries:,} times, {others}")
    yield _row("waits", ", ".join(f"{name} {_seconds(seconds)}" for name, seconds in figures.waits.items()))
    fair = "" if config.factory.capabilities.fair else " (this store promises no order)"
    yield _row("fairness", f"waiters were passed over {figures.passed_over:,} times{fair}")
    margin = "" if figures.least_margin is None else f", the latest when {_seconds(figures.least_margin)} were left"
    yield _row("renewals", f"{figures.renewals:,}{margin}")
    yield _row("lost", ", ".join(f"{count:,} {reason}" for reason, count in figures.losses.items()) or "nothing")
    grow = "do NOT grow" if any(each.rule == "token" for each in found) else "grow strictly"
    yield _row("tokens", f"{figures.tokens:,}, which {grow}")
    yield from _verdict(found)


def _seconds(number: float) -> str:
    return f"{number * 1000:.3g} ms" if number < 1.0 else f"{number:.3g} s"


def _row(head: str, words: str) -> str:
    return f"{head:<10}{words}"


def _verdict(found: list[Violation]) -> Iterator[str]:
    if not found:
        yield click.style("good      ", fg="green") + "no rule was broken"
        return
    yield click.style("BROKEN    ", fg="red", bold=True) + f"{len(found)} violation{'s' * (len(found) != 1)}"
    for each in found[:SHOWN]:
        yield f"          {each}"
    if len(found) > SHOWN:
        yield f"          and {len(found) - SHOWN:,} more"
