"""`gripfast init`: a new deployment of Redis with replicas, before its first lock."""

from __future__ import annotations

import click

import gripfast
from gripfast.cli import codes
from gripfast.cli.failure import Failure
from gripfast.cli.options import duration_option, open_client, url_option

KINDS = ("lock", "semaphore", "rwlock")


@click.command(short_help="Prepare a new Redis that has replicas.")
@click.argument("server", required=False, metavar="[URL]")
@url_option
@duration_option("--max-ttl", "Raise the largest ttl that a lock may have to this: 2m, 1h.")
@click.option("--yes", is_flag=True, help="Prepare it even if locks are held there, or if it is in its grace.")
@click.pass_context
def init(ctx: click.Context, server: str | None, max_ttl: float | None, yes: bool) -> None:
    """Prepare a new Redis whose URL has failover_grace, so that it grants locks at once.

    \b
    gripfast init 'redis://db1?failover_grace=15'
    gripfast init 'redis+sentinel://s1,s2,s3/main' --max-ttl 5m

    Without this, the first locks have to wait for one grace, because the server can't know that there was no server
    before it. --max-ttl raises the largest ttl that a lock may have; write the same max_ttl into the URL of every
    client.

    If locks are held, or if the server is in its grace, gripfast changes nothing without --yes. Use --yes only if no
    server has failed in the last few minutes.
    """
    with gripfast.connect(server) if server else open_client(ctx) as client:
        if not yes:
            _refuse_if_in_use(client)
        done = client._prepare(max_ttl, ends_grace=yes)
    if done.why_not:
        words = "A promoted node must wait until all leases that it may not know of are over, so nothing was changed"
        advice = "Wait. If no node was promoted in the last minutes, run this again with --yes"
        raise Failure(codes.DECLINED, f"{done.why_not}. {words}. {advice}")
    if done.grace > 0.0:
        words = f"it grants no lock for another {done.grace:.1f} s, because a server before it may have granted leases"
        raise Failure(codes.DECLINED, f"{words}: wait. If there was no server before it, run this again with --yes")
    click.echo(f"prepared: locks are granted at once, with a ttl of at most {done.max_ttl:g} s")
    if done.unaware:
        count = f"{done.unaware} replica{'s have' if done.unaware > 1 else ' has'}"
        raise Failure(
            codes.UNAVAILABLE,
            f"{count} not confirmed what this command wrote: run it again when every replica follows its primary",
        )


def _refuse_if_in_use(client: gripfast.Client) -> None:
    for kind in KINDS:
        for info in client.list(kind=kind):  # type: ignore[call-overload]
            raise Failure(
                codes.DECLINED,
                f"{info.name!r} is held, so this store is in use; nothing was changed. If no server has failed in the "
                "last minutes, run this again with --yes",
            )
