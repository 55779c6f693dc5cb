"""`gripfast serve`: a page that shows what is held and waited for. `gripfast.serve` has the page."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gripfast.cli import codes
from gripfast.cli.failure import Failure, say
from gripfast.cli.options import duration_option, open_client, url_argument, url_option
from gripfast.extras import how_to_install

if TYPE_CHECKING:
    from gripfast import Client
    from gripfast.serve.access import Access, Network
    from gripfast.serve.app import Settings
    from gripfast.serve.listening import Address

LISTEN = "127.0.0.1:8023"
INTERVAL = 2.0
INTERVAL_LEAST = 0.2


def _read_by(read: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback for an option, by a function that raises ValueError."""

    def callback(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from None

    return callback


def _address(text: str) -> Address:
    from gripfast.serve.listening import address_of

    return address_of(text)


def _public(text: str) -> str:
    from gripfast.serve.access import site_of

    site_of(text)
    return text


def _token_in(path: str) -> str:
    from gripfast.serve.access import TOKEN_LEAST

    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"can't be read: {error}") from None
    if len(token) < TOKEN_LEAST:
        raise ValueError(f"has a token of {len(token)} characters, too easy to guess. Make one: openssl rand -hex 32")
    return token


def _networks(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Network, ...]:
    try:
        return tuple(map(ipaddress.ip_network, texts))
    except ValueError as error:
        raise click.BadParameter(f"{error}: it must be a network or an address, such as 10.1.0.0/16.") from None


@click.command(short_help="Show what is held and waited for on a page, live.")
@url_argument
@url_option
@click.option(
    "--listen",
    default=LISTEN,
    callback=_read_by(_address),
    metavar="ADDRESS",
    help="Where to listen: an IP address and a port, or unix:/PATH for a reverse proxy on this machine. Port 0 takes a "
    "free one. "
    f"[default: {LISTEN}]",
)
@click.option(
    "--allow-break",
    is_flag=True,
    help="Visitors may break locks, as gripfast break does. The page asks before it does, and each break is logged.",
)
@click.option("--prefix", default="", metavar="TEXT", help="Show only what has a name that starts with TEXT.")
@duration_option("--every", f"How often to scan the store while somebody has the page open. [default: {INTERVAL:g}s]")
@click.option(
    "--public-url",
    callback=_read_by(_public),
    metavar="URL",
    help="The address that visitors use, if it is not ADDRESS: that of the reverse proxy. Needed if ADDRESS is not on "
    "the loopback interface.",
)
@click.option(
    "--token-file",
    "token",
    callback=_read_by(_token_in),
    metavar="FILE",
    help="Read the token for visitors from FILE. Otherwise each start makes a new one and prints it.",
)
@click.option(
    "--trust-header",
    metavar="NAME",
    help="The reverse proxy says in this header who the visitor is, such as X-Forwarded-User. Then no token is needed.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    callback=_networks,
    metavar="NETWORK",
    help="Where the reverse proxy connects from, such as 10.1.0.0/16. From elsewhere the header does not count. "
    "May be given several times.",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Ask for no token: every user of this machine may look. Not for an ADDRESS that others can reach.",
)
@click.pass_context
def serve(
    ctx: click.Context,
    listen: Address,
    allow_break: bool,
    prefix: str,
    every: float | None,
    public_url: str | None,
    token: str | None,
    trust_header: str | None,
    proxies: tuple[Network, ...],
    is_open: bool,
) -> None:
    """Serve a page that shows who holds which locks and how many wait, live. It ends with Ctrl-C.

    \b
    gripfast serve redis://localhost:6379
    gripfast serve --allow-break
    gripfast serve --listen unix:/run/gripfast/page.sock \\
        --trust-header X-Forwarded-User --public-url https://locks.example.com/

    It prints a link with a token, which opens the page. The page is read-only unless you add --allow-break, and only
    users of this machine can connect unless you choose another address. While somebody has the page open, it scans
    the store every two seconds, once for all visitors. Otherwise it does not scan.

    For machines there are /healthz (the server runs), /readyz (the store can be reached) and /metrics (for Prometheus;
    send the token as Authorization: Bearer TOKEN).

    Put a reverse proxy in front of it, for TLS and your own log-in: docs/serve.md shows how. Without URL it shows the
    store in --url or $GRIPFAST_URL, or else the file in your home directory.
    """
    _check_installed()
    from gripfast.serve.access import Access

    interval = INTERVAL if every is None else every
    if interval < INTERVAL_LEAST:
        raise click.UsageError(f"--every must be at least {INTERVAL_LEAST:g}s: each scan reads the whole store.", ctx)
    if is_open and (token or trust_header):
        raise click.UsageError("--open lets everybody look: leave --token-file and --trust-header out.", ctx)
    if proxies and not trust_header:
        raise click.UsageError("--proxy says whose header counts: name the header with --trust-header.", ctx)
    printed = None if is_open or token or trust_header else secrets.token_urlsafe(32)
    access = Access(token or printed, trust_header and trust_header.lower(), proxies)
    with open_client(ctx) as client:
        _serve(client, listen, access, public_url, allow_break, interval, prefix, printed)


def _check_installed() -> None:
    try:
        import starlette
        import uvicorn
    except ImportError as error:
        why = f"the page needs the packages starlette and uvicorn: {how_to_install('serve')}"
        raise Failure(codes.USAGE, why) from error
    del starlette, uvicorn


def _serve(
    client: Client,
    address: Address,
    access: Access,
    public_url: str | None,
    may_break: bool,
    interval: float,
    prefix: str,
    printed: str | None,
) -> None:
    import asyncio

    from gripfast.serve.app import Settings
    from gripfast.serve.listening import bind, check, site_at
    from gripfast.serve.server import Page

    check(address, access, public_url)
    with bind(address) as bound:
        site = site_at(address, bound, public_url)
        settings = Settings(access, site, _cookie(bound.getsockname()), may_break, prefix)
        page = Page(settings, client, interval, partial(_announce, client, settings, printed))
        asyncio.run(page.run_until_signal(bound))
    if address.path:
        Path(address.path).unlink(missing_ok=True)


def _cookie(name: Any) -> str:
    return f"gripfast_{name[1] if isinstance(name, tuple) else 'page'}"


def _announce(client: Client, settings: Settings, printed: str | None) -> None:
    """The link alone on stdout, for programs that read it."""
    what = "visitors may break locks" if settings.may_break else "read-only"
    access = settings.access
    how = "" if printed or not access.token else ", and enter the token of --token-file there"
    say(f"shows {client.where}, {what}, until Ctrl-C; open this link{how}:")
    click.echo(f"{settings.site.url}{f'#token={printed}' if printed else ''}")
