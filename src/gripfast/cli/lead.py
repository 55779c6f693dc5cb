"""`gripfast lead`: runs a command while this machine leads, and campaigns again when it has lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import click

import gripfast
from gripfast.cli import codes
from gripfast.cli.failure import explain, say
from gripfast.cli.options import duration_option, name_argument, open_client, otel_option, quiet_option, url_option
from gripfast.cli.run import GRACE_HELP, TTL_HELP, RunCommand, check_grace, say_stopped, supervised
from gripfast.cli.signals import Signals, listening
from gripfast.cli.supervise import Ending
from gripfast.cli.waiting import campaigning
from gripfast.errors import why_lost

VALUE_HELP = "What others read about the leader, such as its address; ls and show print it as the label."
AGAIN = "; gripfast campaigns again"


class Settings(NamedTuple):
    words: Sequence[str]
    grace: float | None
    quiet: bool


@click.command(cls=RunCommand, short_help="Run a command on one machine at a time.", epilog=codes.listing())
@name_argument
@url_option
@click.option("--value", metavar="TEXT", default="", help=VALUE_HELP)
@duration_option("--ttl", TTL_HELP)
@duration_option("--grace", GRACE_HELP)
@quiet_option
@otel_option
@click.pass_context
def lead(
    ctx: click.Context,
    name: str,
    words: Sequence[str],
    value: str,
    ttl: float | None,
    grace: float | None,
    quiet: bool,
) -> int:
    """Run CMD while this machine leads the election NAME, and exit with its status.

    \b
    gripfast lead scheduler --value "$(hostname)" -- ./scheduler.sh

    Start the same on several machines. One of them runs CMD, the others wait. If that machine or its gripfast dies,
    another machine runs CMD, after the ttl at the latest. An election is the lock of its name: gripfast show NAME shows
    who leads.

    If the lock is lost, CMD gets TERM and KILL, as with gripfast run, before someone else can lead. Then gripfast waits
    until it leads again, and starts CMD anew. If the store can't be reached, it keeps trying.

    If CMD ends by itself, or because of a signal that gripfast passed on, gripfast ends with its status, and another
    machine runs CMD. $GRIPFAST_NAME and $GRIPFAST_TOKEN are as with gripfast run.
    """
    with open_client(ctx) as client:
        election = client.election(name, value, ttl)
        check_grace(ctx, grace, election.ttl)
        return _lead(client, election, Settings(words, grace, quiet), listening())


def _lead(client: gripfast.Client, election: gripfast.Election, settings: Settings, signals: Signals) -> int:
    while True:
        with campaigning(client, election.name, signals, settings.quiet):
            term = election._campaign()
        status = _serve(client, term, settings, signals)
        if status is not None:
            return status
        _resign(term)


def _serve(client: gripfast.Client, term: gripfast.Lease, settings: Settings, signals: Signals) -> int | None:
    """The exit status; None if the term was lost, and nothing of the command is left."""
    try:
        ending = supervised(client, term, settings.words, settings.grace, signals)
    except (gripfast.LeaseLost, gripfast.StoreUnavailable) as error:
        say(f"the command was not started, because {explain(error)[1]}{AGAIN}")
        return None
    if ending.status is None or ending.warned:
        return _stopped(term, ending)
    try:
        term.release()
    except gripfast.LeaseLost as lost:
        so = f"The command ended with status {ending.status}, and may have run without the lock at the end"
        say(f"lost the lock {term.name!r}: {why_lost(lost)}. {so}")
    return ending.status


def _stopped(term: gripfast.Lease, ending: Ending) -> int | None:
    """Nobody campaigns while something of the command may still run, or after a signal that asked to end."""
    goes_on = ending.complete and not ending.asked_to_end
    say_stopped(term, ending, AGAIN if goes_on else "")
    return None if goes_on else codes.LOST


def _resign(term: gripfast.Lease) -> None:
    """It may be held: the command was stopped when it was about to be lost."""
    try:
        term.release()
    except gripfast.LeaseLost:
        pass
