"""`gripfast schema`: the tables as text."""

from __future__ import annotations

import click

from gripfast.api import schema as texts
from gripfast.cli.options import url_of, url_option


@click.command(short_help="Print the tables as SQL.")
@click.argument("engine", type=click.Choice(texts.ENGINES), required=False)
@url_option
@click.option("--locks-only", is_flag=True, help="Only the tables of the locks.")
@click.option("--fencing-only", is_flag=True, help="Only the table of gripfast.fencing, for the database you write to.")
@click.pass_context
def schema(ctx: click.Context, engine: str | None, locks_only: bool, fencing_only: bool) -> None:
    """Print the tables for ENGINE as SQL, for your own migrations.

    \b
    gripfast schema postgresql | psql shop
    gripfast schema mysql --fencing-only

    Without ENGINE, it prints the tables for the store in --url or $GRIPFAST_URL. Gripfast creates the tables of its
    locks on first use, if its user may. You always have to create the table for fencing tokens yourself. The embedded
    store creates its own file.
    """
    if locks_only and fencing_only:
        raise click.UsageError("--locks-only and --fencing-only exclude each other.", ctx)
    engine = engine or _engine_of_store(ctx)
    parts = []
    if not fencing_only and (locks_only or engine != "sqlite"):
        parts.append(f"-- Locks.\n{texts.locks(engine)}")
    if not locks_only:
        parts.append(f"-- Fencing tokens, for the database that you write to.\n{texts.fences(engine)}")
    click.echo("\n".join(parts), nl=False)


def _engine_of_store(ctx: click.Context) -> str:
    engine = texts.engine_of(url_of(ctx) or "")
    if engine is None:
        raise click.UsageError(f"Name the engine: {', '.join(texts.ENGINES)}. Other stores have no tables.", ctx)
    return engine
