"""`gripfast schema`: the tables as text."""

from __future__ import annotations

import click

from gripfast.api import schema as texts
from gripfast.cli.options import url_of, url_option

FENCING_HELP = "Print only the tables for fencing tokens; create them in the database that you write to."


@click.command(short_help="Print the SQL that creates Gripfast's tables.")
@click.argument("engine", type=click.Choice(texts.ENGINES), required=False, metavar="[ENGINE]")
@url_option
@click.option("--locks-only", is_flag=True, help="Print only the tables for locks.")
@click.option("--fencing-only", is_flag=True, help=FENCING_HELP)
@click.pass_context
def schema(ctx: click.Context, engine: str | None, locks_only: bool, fencing_only: bool) -> None:
    """Print the SQL that creates Gripfast's tables in ENGINE, for your own migrations. ENGINE is postgresql, mysql,
    mariadb or sqlite.

    \b
    gripfast schema postgresql | psql shop
    gripfast schema mysql --fencing-only

    Without ENGINE, it prints the tables for the store in --url or $GRIPFAST_URL. Gripfast creates the tables for locks
    on first use, if its database user has the right. You always have to create the tables for fencing tokens yourself.
    For sqlite, only those are printed: the embedded store creates its own file of locks.
    """
    if locks_only and fencing_only:
        raise click.UsageError("Use --locks-only or --fencing-only, not both.", ctx)
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
        raise click.UsageError(f"This store has no tables. Name a database: {', '.join(texts.ENGINES)}.", ctx)
    return engine
