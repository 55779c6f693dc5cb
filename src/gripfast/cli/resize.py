"""The command `resize`: how many may have a permit of a semaphore."""

from __future__ import annotations

import click

from gripfast.cli.options import json_option, name_argument, open_client, url_option
from gripfast.cli.text import as_json


@click.command(short_help="Change the limit of a semaphore.")
@name_argument
@click.argument("limit", type=int, metavar="N")
@url_option
@json_option
@click.pass_context
def resize(ctx: click.Context, name: str, limit: int, in_json: bool) -> None:
    """Change the limit of the semaphore NAME to N, for everybody. It is what Semaphore.resize() does in Python.

    \b
    gripfast resize weather 5
    gripfast run weather --limit 5 -- ./fetch.sh

    From now on, a program that passes another limit is refused, with an error that names both. If the limit grows,
    waiters get their permits at once. If it shrinks, nobody loses a permit, and nobody gets one until fewer than N are
    in use.
    """
    with open_client(ctx) as client:
        semaphore = client.semaphore(name, limit)
        before = client.inspect(name, "semaphore")
        semaphore.resize(limit)
    if in_json:
        click.echo(as_json({"name": name, "limit": limit, "before": before and before.limit}))
    else:
        was = f"; it was {before.limit}" if before else ""
        click.echo(f"the limit of the semaphore {name!r} is {limit}{was}")
