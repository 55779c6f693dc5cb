"""`gripfast schema`: the tables as text."""

from __future__ import annotations

import click

from gripfast.api import schema as texts
from gripfast.cli.options import url_of, url_option


@click.command(short_help="Print the tables as SQL.")
@click.argument("engine", type=click.Choice(texts.ENGINES), required=False)
@url_option
@click.option("--locks-only", is_flag=True, help="Without the table of gripfast.fencing.")
@click.option("--fencing-only", is_flag=True, help="Only the table of gripfast.fencing, for the database you write to.")
@click.pass_context
def schema(ctx: click.Context, engine: str | None, locks_only: bool, fencing_only: bool) -> None:
    """Print the tables that ENGINE needs as SQL, for those who run migrations themselves.

    \b
    gripfast schema postgresql | psql shop
    gripfast schema mysql --fencing-only

    Without ENGINE, those of the store that --url or $GRIPFAST_URL names. Gripfast makes the tables of its locks on
    first use if it may; the table for fencing tokens is always yours to make. The embedded store makes its own file.
    """
    if locks_only and fencing_only:
        raise click.UsageError("--locks-only and --fencing-only leave nothing.", ctx)
    engine = engine or _engine_of_store(ctx)
    parts = []
    if not fencing_only and (locks_only or engine != "sqlite"):
        parts.append(f"-- Locks.\n{texts.locks(engine)}")
    if not locks_only:
        parts.append(f"-- Fencing tokens, in the database that is written to.\n{texts.fences(engine)}")
    click.echo("\n".join(parts), nl=False)


def _engine_of_store(ctx: click.Context) -> str:
    engine = texts.engine_of(url_of(ctx) or "")
    if engine is None:
        raise click.UsageError(f"Name the engine: {', '.join(texts.ENGINES)}. No other store has tables.", ctx)
    return engine
